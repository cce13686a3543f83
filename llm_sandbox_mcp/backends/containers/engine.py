"""The interface to a container engine. Every call but `silence` blocks and is made in a worker thread."""

import errno
import http.client
import os
import re
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream

from ...base.errors import EngineUnavailable, StartFailed
from ...base.messages import Problem
from ..base import SILENT, Check
from .settings import Mount
from .tls import SecureSocket

SECONDS = 30
"""Timeout for an engine to answer a call; builds and pulls report their progress and can take longer."""
FIRST_SECONDS = 8
"""Timeout for its first answer: a missing engine is reported within ten seconds, even if the address never answers."""
LAST_CHARACTERS = 1500
"""How much of an engine's message is kept, from its end, when something fails."""
CERTIFICATES = "check docker.ca, docker.cert and docker.key in the profile, or DOCKER_CERT_PATH"
"""The next step if TLS fails; no other engine uses TLS."""
USERS = range(1 << 20, 1 << 30)
"""Uids for containers, if an engine does not map them; few systems have users in this range."""
MAPPED_USERS = range(10_000, 60_000)
"""Uids for containers, if an engine maps them to other uids of the machine; it maps 65,536 of them."""
_PING = b"GET /_ping HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n"
FILES = 4096
"""Maximum open files of one process in a container."""


def reason_of(error: OSError) -> str:
    """The message of an error, without its location in Python's OpenSSL binding."""
    return re.sub(r"\[SSL[^]]*\] | \(_ssl\.c:\d+\)", "", str(error))


@dataclass(frozen=True, slots=True)
class Recipe:
    """One container to make; all else is the engine's default or, if the default is less strict, denied."""

    name: str
    """Unique: the container can be found by it if the engine did not answer the request to make it."""
    image: str
    command: Sequence[str]
    user: str
    labels: Mapping[str, str]
    folders: Mapping[str, int]
    """Writable folders in memory, and the maximum bytes in each."""
    memory: int
    cpus: float
    pids: int
    files: Mapping[str, int]
    """Maximum files and folders in some of the writable folders, for engines that enforce this."""
    file_size: int
    runtime: str = ""
    mounts: Sequence[Mount] = ()
    gpus: str = ""
    network: bool = False
    """Whether it has the engine's default network."""

    @property
    def process_limits(self) -> Mapping[str, int]:
        """The limits of one process."""
        # 1 is the only limit that stops a core_pattern from
        # starting a program on the engine's machine: https://docs.kernel.org/admin-guide/sysctl/kernel.html
        return {"nofile": FILES, "core": 1, "fsize": self.file_size}

    @property
    def step(self) -> str:
        """The next step if the engine does not make or start the container."""
        asked = [f"containers.{key} in the profile" for key in ("runtime", "gpus", "mounts") if getattr(self, key)]
        toolkit = "install the NVIDIA Container Toolkit for the engine, or " if self.gpus else ""
        if asked:
            return f"{toolkit}change {' or '.join(asked)}"
        return "check image, registry and user below [containers] in the profile, or read the engine's log"


@dataclass(frozen=True, slots=True)
class State:
    """A container as its engine sees it."""

    running: bool
    pid: int
    """The pid of its first process on the engine's machine; 0 if the engine does not report it."""
    message: str = ""
    """Why it ended, if it has ended."""


@dataclass(frozen=True, slots=True)
class Found:
    """A container that carries our labels."""

    id: str
    name: str
    """Empty for a container that is being removed."""
    labels: Mapping[str, str]

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """Converts an entry of an engine's list of containers."""
        name = next(iter(entry.get("Names") or ()), "")
        return cls(str(entry["Id"]), str(name).removeprefix("/"), entry.get("Labels") or {})


@dataclass(frozen=True, slots=True)
class Stored:
    """An image that an engine has."""

    id: str
    size: int
    """Bytes."""
    names: Sequence[str] = ()
    """Each with its tag, as the engine spells it."""
    labels: Mapping[str, str] = field(default_factory=dict)


class Engine(ABC):
    """One engine at one address. It raises only `Unavailable`, its subclasses, and `SandboxLost`."""

    name: str
    address: str
    """For messages and `doctor`; a socket's path, or a host with its port."""
    tls: ssl.SSLContext | None = None

    @property
    def local(self) -> bool:
        """Whether containers can be processes of this machine."""
        return self.address.startswith("unix://")

    @abstractmethod
    def version(self) -> str:
        """The engine's own version; `EngineUnavailable` when it does not answer."""

    @abstractmethod
    def limits(self) -> Check:
        """Whether the engine's cgroups enforce each limit of a container."""

    @abstractmethod
    def checks(self) -> Iterator[Check]:
        """Checks of the engine's settings that matter to sandboxes."""

    @abstractmethod
    def users(self) -> range:
        """The uids that containers can have."""

    def connect(self) -> socket.socket | SecureSocket:
        """A new blocking connection to the engine, after the TLS handshake; the caller closes it."""
        with self._dialled() as plain:
            return SecureSocket(plain, self.tls, self._host) if self.tls else plain

    def http(self) -> http.client.HTTPConnection:
        """A new connection for one request, whose answer can come in parts."""
        connection = http.client.HTTPConnection(self._host or "engine")
        with self._dialled() as plain:
            connection.sock = self.tls.wrap_socket(plain, server_hostname=self._host) if self.tls else plain
        return connection

    async def silence(self) -> Problem | None:
        """Why it does not answer now; None if it does.

        Takes no worker thread: all of them may be waiting for it.
        """
        try:
            with anyio.move_on_after(SILENT):
                async with await self._dial() as stream:
                    await stream.send(_PING)
                    await stream.receive()
                return None
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            return self.unreachable(error).problem
        return self.unreachable(TimeoutError(f"no answer within {SILENT:g} s")).problem

    async def _dial(self) -> ByteStream:
        place = urlsplit(self.address)
        if place.scheme == "unix":
            return await anyio.connect_unix(place.path)
        if self.tls is None:
            return await anyio.connect_tcp(self._host, place.port or 0)
        return await anyio.connect_tcp(
            self._host, place.port or 0, ssl_context=self.tls, tls_hostname=self._host, tls_standard_compatible=False
        )

    @property
    def _host(self) -> str:
        return urlsplit(self.address).hostname or ""

    @contextmanager
    def _dialled(self) -> Iterator[socket.socket]:
        place = urlsplit(self.address)
        connected: socket.socket | None = None
        try:
            if place.scheme == "unix":
                connected = socket.socket(socket.AF_UNIX)
                connected.settimeout(SECONDS)
                connected.connect(place.path)
            else:
                connected = socket.create_connection((self._host, place.port or 0), FIRST_SECONDS)
                connected.settimeout(SECONDS)
            yield connected
        except OSError as error:
            if connected is not None:
                connected.close()
            raise self.unreachable(error) from error

    def unreachable(self, error: BaseException) -> EngineUnavailable:
        """The error for an engine that does not answer; the packages wrap the cause in several exceptions."""
        while (cause := error.__cause__ or error.__context__) is not None:
            error = cause
        if error.args and isinstance(error.args[0], ssl.SSLError):
            error = error.args[0]
        if isinstance(error, ssl.SSLError):
            return EngineUnavailable(f"TLS with {self.name} at {self.address} fails: {reason_of(error)}", CERTIFICATES)
        reason = error.strerror if isinstance(error, OSError) else None
        step = f"start it, or name its address in {self.name}.host of the profile"
        if isinstance(error, PermissionError):
            step = "add this user to the group that the socket belongs to"
        return EngineUnavailable(
            f"{self.name} does not answer at {self.address}: {reason or str(error) or type(error).__name__}", step
        )

    def stranger(self) -> EngineUnavailable:
        """The error for a program that answers but is not this engine."""
        return EngineUnavailable(
            f"the program that answers at {self.address} is not {self.name}",
            f"name the engine's own address in {self.name}.host of the profile",
        )

    def refused(self, doing: str, reason: str, step: str) -> StartFailed:
        """The error for a request that the engine did not carry out."""
        step = self.step(reason, step or "read the engine's log")
        return StartFailed(f"{doing} failed on {self.name} at {self.address}: {reason}", step)

    def step(self, reason: str, usual: str) -> str:
        """The next step after a failure for this reason: the usual step, unless the engine's disk is full."""
        if os.strerror(errno.ENOSPC).lower() in reason.lower():
            return f"free disk space where {self.name} keeps its images and containers"
        return usual

    @abstractmethod
    def create(self, recipe: Recipe) -> str:
        """Makes a container and returns its id; raises `StartFailed` if the image does not exist."""

    @abstractmethod
    def start(self, container: str, recipe: Recipe) -> None:
        """Starts the container made from the recipe; raises `StartFailed` with the engine's reason."""

    @abstractmethod
    def state(self, container: str) -> State:
        """The container's state; raises `SandboxLost` if it is gone."""

    @abstractmethod
    def remove(self, container: str) -> None:
        """Ends and removes the container; does nothing if it is already gone."""

    @abstractmethod
    def attach_path(self, container: str) -> str:
        """The path of the request that turns a connection into the streams of the main process."""

    @abstractmethod
    def exec_path(self, process: str) -> str:
        """The path of the request that starts a prepared process and turns a connection into its streams."""

    @abstractmethod
    def prepare(self, container: str, argv: Sequence[str], cwd: str, user: str) -> str:
        """Prepares another process and returns its id; raises `SandboxLost` if the container is gone."""

    @abstractmethod
    def exit_code(self, process: str) -> int | None:
        """The exit code of a prepared process, None while it runs; raises `SandboxLost` if its container is gone."""

    @abstractmethod
    def find(self, label: str) -> list[Found]:
        """All containers that carry a label, whatever its value."""

    @abstractmethod
    def image(self, name: str) -> Stored | None:
        """The image with that name or id; None if there is none."""

    @abstractmethod
    def images(self, label: str) -> list[Stored]:
        """All images that carry a label, whatever its value."""

    @abstractmethod
    def remove_image(self, name: str) -> None:
        """Removes a name of an image, and with the last name the image; raises `StartFailed` if it is in use."""

    @abstractmethod
    def pull_path(self, image: str) -> str:
        """The path of the request that pulls an image; the answer reports the progress."""

    @abstractmethod
    def build_path(self) -> str:
        """The path of the request that builds an image from a folder; every engine takes Docker's parameters."""

    def credentials(self, image: str) -> Mapping[str, str]:
        """The credentials for an image's registry, as HTTP headers; for every registry if the name is empty."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Closes its connections."""
