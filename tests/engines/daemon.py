"""The daemon of one engine: it is started so that it outlives this process, can be found again later, and ended."""

import fcntl
import http.client
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from .places import CACHE, RUNTIME


class Unusable(Exception):
    """An engine cannot be used here; the message is the reason."""


@dataclass(frozen=True)
class Daemon:
    """A program that serves the Docker API on its own socket."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    place: Path | None = None
    """The path of its socket, if it is not the usual one."""

    @property
    def socket(self) -> Path:
        return self.place or RUNTIME / f"{self.name}.sock"

    @property
    def log(self) -> Path:
        return CACHE / f"{self.name}.log"

    @property
    def _noted(self) -> Path:
        return RUNTIME / f"{self.name}.pid"

    def pid(self) -> int | None:
        """The pid of the process that we started; None when it has ended."""
        try:
            pid, birth = self._noted.read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if _birth(int(pid)) == birth else None

    def healthy(self) -> bool:
        """Whether the daemon that we started answers."""
        return self.pid() is not None and _answers(self.socket)

    def start(self, patience: float = 45.0) -> subprocess.Popen[bytes] | None:
        """Starts the daemon and returns its process once it answers; None when it answers already."""
        if self.healthy():
            return None
        self.stop()
        self.socket.unlink(missing_ok=True)
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                # It outlives this checkout, and its child processes need a working directory that exists.
                cwd="/",
                start_new_session=True,
            )
        self._noted.write_text(f"{process.pid} {_birth(process.pid)}")
        deadline = time.monotonic() + patience
        while not _answers(self.socket):
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
                raise Unusable(f"{self.command[0]} ended at once; {self._end_of_log()}")
            if time.monotonic() > deadline:
                self.stop()
                process.wait()
                raise Unusable(f"{self.command[0]} did not answer within {patience:.0f} s; {self._end_of_log()}")
        return process

    def stop(self, patience: float = 30.0) -> bool:
        """Ends the process that we started, and no other; returns whether there was one."""
        pid = self.pid()
        if pid is not None:
            end(pid, patience)
        self._noted.unlink(missing_ok=True)
        return pid is not None

    def _end_of_log(self) -> str:
        return f"{self.log} ends with\n{last_words(self.log)}"


def last_words(log: Path, lines: int = 10) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) or "nothing"


@contextmanager
def alone(name: str = "") -> Iterator[None]:
    """Lets only one process at a time start engines and build images; another `name` is a separate lock."""
    for folder in (CACHE, RUNTIME):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (CACHE / f"{name}lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _birth(pid: int) -> str:
    """When the process started, as its pid may be reused. Empty when there is no such process, or it is a zombie."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if after_name[0] == "Z" else after_name[19]


def end(pid: int, patience: float) -> None:
    """Ends a process: SIGTERM first, SIGKILL after `patience` seconds."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 5.0)):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
            if select.select([process], [], [], seconds)[0]:
                return
    finally:
        os.close(process)


def _answers(path: Path) -> bool:
    connection = http.client.HTTPConnection("localhost")
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(5.0)
        connection.sock.connect(str(path))
        connection.request("GET", "/_ping")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
