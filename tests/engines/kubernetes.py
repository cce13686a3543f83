"""A cluster for tests: the one that KUBECONFIG names, or one that another program starts on this machine."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .daemon import Unusable, last_words
from .places import CACHE, RUNTIME

PLACE = "SANDBOX_CLUSTER"
"""Environment variable: a folder with the programs `up ARCHIVE...`, which starts a cluster whose nodes have these
images and prints `export KUBECONFIG=...` as its last line, and `down`; optionally also `build`, which prepares what
`up` needs."""

_NOTED = RUNTIME / "kubeconfig"
"""Notes the kubeconfig that `up` printed, the folder of `up`, and the images that `up` was given."""
_LOG = CACHE / "kubernetes.log"
_BUILD_LIMIT, _UP_LIMIT, _DOWN_LIMIT = 900.0, 240.0, 60.0


def kubeconfig() -> str | None:
    """The kubeconfig of the cluster; None when there is no cluster, or the one that was started here has ended."""
    return os.environ.get("KUBECONFIG") or next((path for path in _noted()[:1] if _listens(path)), None)


def can_start() -> bool:
    """Whether there is a program that starts a cluster."""
    return _program("up") is not None


@contextmanager
def building(*, wanted: bool) -> Iterator[Callable[[], None]]:
    """Runs `build` in the background; yields a function that waits for it. Its errors show up later, in `start`."""
    program = _program("build")
    if not wanted or os.environ.get("KUBECONFIG") or program is None or not program.exists():
        yield lambda: None
        return
    with _LOG.open("wb") as log:
        process = subprocess.Popen([program], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def wait() -> None:
        process.wait(_BUILD_LIMIT)

    try:
        yield wait
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def start(archives: Sequence[Path]) -> None:
    """Starts the cluster with these images, unless KUBECONFIG names one or it runs already."""
    if not os.environ.get("KUBECONFIG"):
        program = _program("up")
        if program is None:
            raise Unusable(
                f"KUBECONFIG names no cluster and {PLACE} no folder with programs that start one; set one of them"
            )
        given = [str(archive) for archive in archives]
        if not (noted := _noted()) or not {*given} <= {*noted[2:]} or not _answers(noted[0]):
            print("kubernetes: starting", flush=True)
            path = _started([str(program), *given])
            _NOTED.write_text("\n".join((path, str(program.parent), *given)))
    print(f"kubernetes: {kubeconfig()}", flush=True)


def stop() -> bool:
    """Ends the cluster that was started here, and no other; returns whether there was one."""
    if not (noted := _noted()):
        return False
    existing = [program for program in (Path(noted[1], "down"), _program("down")) if program and program.exists()]
    if existing:
        subprocess.run(existing[:1], check=True, timeout=_DOWN_LIMIT)
    _NOTED.unlink()
    return True


def _started(command: Sequence[str]) -> str:
    """Runs the program, and returns the kubeconfig that its last line names."""
    with _LOG.open("wb") as log:
        try:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=_BUILD_LIMIT + _UP_LIMIT
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    last = last_words(_LOG)
    _, found, path = last.rpartition("export KUBECONFIG=")
    if code != 0 or not found:
        raise Unusable(
            f"{command[0]} {'did not end' if code is None else f'ended with {code}'}; {_LOG} ends with\n{last}"
        )
    return path.strip()


def _answers(kubeconfig: str) -> bool:
    # Imported here because it takes a second.
    from kubernetes.client import CoreV1Api
    from kubernetes.config import ConfigException, new_client_from_config
    from urllib3.exceptions import HTTPError

    try:
        with new_client_from_config(kubeconfig) as client:
            return bool(CoreV1Api(client).list_node(_request_timeout=10.0).items)
    except (ConfigException, HTTPError, OSError):
        return False


def _listens(kubeconfig: str) -> bool:
    """Whether anything listens at the server address in the kubeconfig."""
    try:
        found = re.search(r'server: "?https://([^:/\s]+):(\d+)', Path(kubeconfig).read_text())
        if found is None:
            return False
        socket.create_connection((found[1], int(found[2])), 5.0).close()
    except OSError:
        return False
    return True


def _noted() -> list[str]:
    try:
        return _NOTED.read_text().splitlines()
    except OSError:
        return []


def _program(name: str) -> Path | None:
    place = os.environ.get(PLACE)
    return Path(place, name).resolve() if place else None
