"""Servers of object stores on loopback, as processes of packages that are not in this environment (`environments.py`)."""

import os
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llm_sandbox_mcp.backends import libc

from ..environments import OBJECT_STORES, python_with

BUCKET = "sessions"
_KEY, _SECRET = "sandbox", "not-a-secret"
_STARTING = 60.0
"""Seconds until a server listens, and until it has ended; usually they are four and less than one."""
_LISTENS = re.compile(rb"(?:Running on|Starting s3 server on) \[?(http://127\.0\.0\.1:\d+)")


@dataclass(frozen=True)
class ObjectServer:
    """A server of an S3 API that has a bucket."""

    url: str
    process: subprocess.Popen[bytes]
    folder: Path | None = None
    """Where the objects are, as files; None if they are in its memory."""

    def place(self, prefix: str) -> str:
        """The place of a store there."""
        return f"s3://{BUCKET}/{prefix}"

    def variables(self, *, secret: str = _SECRET) -> Mapping[str, str]:
        """The environment of a client."""
        return variables(self.url, secret=secret)

    def there(self, prefix: str) -> list[str]:
        """All that is below a prefix, uploads that are neither complete nor taken back included."""
        if self.folder is not None:
            return [str(path) for path in (self.folder / prefix).rglob("*") if path.is_file()]
        asks = (f"list-type=2&prefix={prefix}/", f"uploads&prefix={prefix}/")
        return [key for ask in asks for key in re.findall("<Key>(.*?)</Key>", _read(f"{self.url}/{BUCKET}?{ask}"))]

    def kill(self) -> None:
        """Ends the server at once, with all of its processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_STARTING)


def variables(url: str, *, secret: str = _SECRET) -> Mapping[str, str]:
    """The environment of a client of the server at an address."""
    return {
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def moto() -> Iterator[ObjectServer]:
    """A server that keeps objects in memory, honours conditions of writes, and lets everybody in."""
    command = [_program("moto_server"), "--host", "127.0.0.1", "--port", "0"]
    with _running(command) as (url, process):
        urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")).close()
        yield ObjectServer(url, process)


@contextmanager
def rclone(folder: Path) -> Iterator[ObjectServer]:
    """A server that keeps objects in a folder, and looks at signatures.

    It ignores conditions of writes, lists tags without their quotes, and answers a range with the status of a whole object.
    """
    (folder / BUCKET).mkdir()
    options = ["--addr", "127.0.0.1:0", "--auth-key", f"{_KEY},{_SECRET}", "--config", "/dev/null"]
    with _running([_program("rclone"), "serve", "s3", *options, str(folder)]) as (url, process):
        yield ObjectServer(url, process, folder / BUCKET)


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_STARTING) as answer:
        return str(answer.read(), "utf-8")


def _program(name: str) -> str:
    return str(python_with(OBJECT_STORES).parent / name)


@contextmanager
def _running(command: Sequence[str]) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A process of a group of its own, and its address, which it prints once it listens."""
    nothing = subprocess.DEVNULL
    with subprocess.Popen(
        command,
        stdin=nothing,
        stdout=nothing,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_end_with_tests,
    ) as process:
        said = _Said(process)
        try:
            yield said.address(), process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            said.join(_STARTING)


def _end_with_tests() -> None:
    """Makes the kernel end the server when the tests are killed, whose scopes do not end then."""
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)


class _Said(threading.Thread):
    """Reads what a server prints, so that it never waits for that, until it ends."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        assert process.stderr
        self._lines = process.stderr
        self._first = list[bytes]()
        self._known = threading.Event()
        self._address = ""
        self.start()

    def address(self) -> str:
        assert self._known.wait(_STARTING) and self._address, b"".join(self._first).decode()
        return self._address

    def run(self) -> None:
        for line in self._lines:
            if not self._address:
                self._first.append(line)
                if found := _LISTENS.search(line):
                    self._address = found[1].decode()
                    self._known.set()
        self._known.set()
