"""The commands of `python -m tests.engines`."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from subprocess import SubprocessError

import pytest
import requests
from docker import DockerClient
from docker.errors import DockerException

from llm_sandbox_mcp.backends.containers.addresses import Address
from llm_sandbox_mcp.backends.docker.engine import DockerEngine
from llm_sandbox_mcp.base.errors import SandboxError

from ..environments import OBJECT_STORES, python_with
from . import base_image, docker, images, kubernetes, packages, podman, slurm, spare
from .cluster import ON_CLUSTER
from .daemon import Daemon, Unusable, alone
from .places import CACHE
from .requirement import required

ENGINES = {"docker": docker.daemon, "podman": podman.daemon}
PROGRAMS = {"docker": docker.PROGRAMS | base_image.PROGRAMS, "podman": podman.PROGRAMS, "slurm": slurm.PROGRAMS}
"""The programs that each needs. The tests of SLURM start it themselves."""

NAMES = ("docker", "podman", "kubernetes")
"""The engines that `up` starts, in this order: all images are built in Docker."""
_ROOM = {"docker": 5 << 30, "podman": 3 << 30}
"""Bytes of disk that all images take in an engine."""


def install() -> int:
    """Installs the packages of the engines, of SLURM and of object stores; fails only if a required one cannot be."""
    return _report(_prepared() | _servers())


def up(engine: str = "", *, every_language: bool = False) -> int:
    """Installs the packages and starts the engines with all images; fails only if a required engine does not start.

    If one engine is named, only that one and Docker, where all images are built, are started. A cluster gets the images
    of a few languages, or of all with `every_language`.
    """
    failed = _prepared()
    wanted = {"docker", engine} if engine else {*NAMES, *PROGRAMS}
    if reason := _excluded():
        if not kubernetes.kubeconfig():
            failed["kubernetes"] = reason
    else:
        with alone(), kubernetes.building(wanted="kubernetes" in wanted) as built:
            starts: tuple[Callable[[], None], ...] = (_docker, _podman, partial(_kubernetes, built, every_language))
            for name, start in zip(NAMES, starts, strict=True):
                if name in wanted and name not in failed and (reason := _failure(start)):
                    failed[name] = reason
    return _report({name: reason for name, reason in failed.items() if name in wanted})


def down() -> int:
    """Ends the engines that `up` started; images are kept for the next time."""
    if reason := _excluded():
        print(f"nothing was started: {reason}")
        return 0
    with alone():
        _print_stopped("kubernetes", kubernetes.stop())
        for name, daemon in ENGINES.items():
            _print_stopped(name, daemon().stop())
        spare.stop()
        docker.tidy()
    return 0


def status() -> int:
    """Prints which engines run; fails if an engine that `up` starts, or one of its images, is missing."""
    complete = True
    for name, daemon in ENGINES.items():
        if not daemon().healthy():
            print(f"{name}: not running")
            complete = False
            continue
        with images.client(daemon()) as client:
            missing = images.missing(client)
        print(f"{name}: unix://{daemon().socket} {'without ' + ' '.join(missing) if missing else 'with all images'}")
        complete = complete and not missing
    print(f"kubernetes: {kubernetes.kubeconfig() or 'not running'}")
    return 0 if complete and (kubernetes.kubeconfig() or not kubernetes.can_start()) else 1


def save() -> int:
    """Writes the images of three languages as archives, for the nodes of a cluster, and prints their paths."""
    with alone(), images.client(docker.daemon()) as client:
        for archive in images.save(client, CACHE / "archives", ON_CLUSTER):
            print(archive)
    return 0


def _prepared() -> dict[str, str]:
    """Installs the packages; returns what could not be installed, with the reason."""
    if reason := _excluded():
        return dict.fromkeys(PROGRAMS, reason)
    with alone():
        failed = {name: _failure(partial(packages.install, programs)) for name, programs in PROGRAMS.items()}
        packages.install_where_possible(docker.OPTIONAL | podman.OPTIONAL)
    return {name: reason for name, reason in failed.items() if reason}


def _servers() -> dict[str, str]:
    """Makes the environment with the servers of object stores; returns why it could not be made."""
    try:
        python_with(OBJECT_STORES)
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        return {OBJECT_STORES: str(error)}
    return {}


def _report(failed: Mapping[str, str]) -> int:
    for name, reason in failed.items():
        print(f"{name}: skipped: {reason}", file=sys.stderr)
    return 1 if failed.keys() & required() else 0


def _print_stopped(name: str, stopped: bool) -> None:
    print(f"{name}: {'stopped' if stopped else 'was not running'}")


def _docker() -> None:
    docker.prepare(docker.daemon())
    _start(docker.daemon())
    with images.client(docker.daemon()) as client, closing(_engine(docker.daemon())) as engine:
        _need_room("docker", client)
        images.build_all(client, engine)


def _podman() -> None:
    podman.prepare()
    _start(podman.daemon())
    with _images() as source, images.client(podman.daemon()) as target:
        _need_room("podman", target)
        images.hand_on(source, target, images.ALL)


def _kubernetes(built: Callable[[], None], every_language: bool) -> None:
    with _images() as client:
        archives = list(images.save(client, CACHE / "archives", images.LANGUAGES if every_language else ON_CLUSTER))
    built()
    kubernetes.start(archives)


def _need_room(name: str, client: DockerClient) -> None:
    """Fails at once if the disk is too full for the images: an engine may otherwise hang without a message."""
    free = shutil.disk_usage(CACHE).free
    if images.missing(client) and free < _ROOM[name]:
        raise Unusable(
            f"its images need {_ROOM[name] >> 20} MiB, but {CACHE} has {free >> 20} MiB free; free disk space"
        )


@contextmanager
def _images() -> Iterator[DockerClient]:
    """A client of Docker, which has the images of all languages."""
    if not docker.daemon().healthy():
        raise Unusable("its images come from Docker, which is not running")
    with images.client(docker.daemon()) as client:
        if missing := images.missing(client):
            raise Unusable(f"its images come from Docker, where these are missing: {' '.join(missing)}")
        yield client


def _start(daemon: Daemon) -> None:
    if not daemon.healthy():
        print(f"{daemon.name}: starting", flush=True)
        daemon.start()
    print(f"{daemon.name}: unix://{daemon.socket}", flush=True)


def _failure(start: Callable[[], None]) -> str:
    try:
        start()
    except (Unusable, DockerException, SandboxError, requests.RequestException, SubprocessError, OSError) as error:
        return str(error)
    return ""


def _excluded() -> str:
    if os.geteuid() != 0:
        return "tests start their own daemons as root only"
    if shutil.which("apt-get") is None:
        return "tests start their own daemons on Debian only"
    return ""


def _engine(daemon: Daemon) -> DockerEngine:
    """The daemon, through the interface of the product."""
    return DockerEngine(Address(f"unix://{daemon.socket}"))
