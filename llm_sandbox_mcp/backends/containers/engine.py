"""What a container engine is asked to do. Every call blocks and is made in a worker thread."""

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

from ...errors import EngineUnavailable, StartFailed
from ..base import Check
from .settings import Mount
from .tls import SecureSocket

SECONDS = 30
"""Longest time for an engine to answer a call; builds and pulls tell how they go and may take longer."""
FIRST_SECONDS = 8
"""Longest time for its first answer: within ten it is told that there is no engine, also where something is silent."""
LAST_CHARACTERS = 1500
"""Of what an engine says when something fails."""
CERTIFICATES = "see docker.ca, docker.cert and docker.key in the profile, or DOCKER_CERT_PATH"
"""The next step where TLS fails; no other engine has it."""
USERS = range(1 << 20, 1 << 30)
"""Of containers, where theirs are the machine's own; few systems have anyone there."""
MAPPED_USERS = range(10_000, 60_000)
"""Where an engine maps those of containers to others of the machine, of which it has 65,536."""
FILES = 4096
"""Open files of one process in a container."""


def told(error: OSError) -> str:
    """What an error says, without where in OpenSSL's binding it arose."""
    return re.sub(r"\[SSL[^]]*\] | \(_ssl\.c:\d+\)", "", str(error))


@dataclass(frozen=True, slots=True)
class Recipe:
    """One container to be made; what is not here is the engine's default or, where that is looser, denied."""

    name: str
    """No other has it: it is found by it where its making was not answered."""
    image: str
    command: Sequence[str]
    user: str
    labels: Mapping[str, str]
    folders: Mapping[str, int]
    """Writable folders in memory, and the bytes that each may hold."""
    memory: int
    cpus: float
    pids: int
    files: Mapping[str, int]
    """Files and folders that some of the folders may hold, for engines that see to that."""
    file_size: int
    runtime: str = ""
    mounts: Sequence[Mount] = ()
    gpus: str = ""
    network: bool = False
    """Whether it has the network that containers of the engine have by default."""

    @property
    def process_limits(self) -> Mapping[str, int]:
        """What one process may have."""
        # 1 is the only limit that keeps a core_pattern which
        # starts a program of the engine's machine from doing so: https://docs.kernel.org/admin-guide/sysctl/kernel.html
        return {"nofile": FILES, "core": 1, "fsize": self.file_size}

    @property
    def step(self) -> str:
        """The next step where its engine does not make or start it."""
        asked = [f"containers.{key} in the profile" for key in ("runtime", "gpus", "mounts") if getattr(self, key)]
        toolkit = "install the NVIDIA Container Toolkit for the engine, or " if self.gpus else ""
        if asked:
            return f"{toolkit}change {' or '.join(asked)}"
        return "check image, registry and user below [containers] in the profile, or see the log of the engine"


@dataclass(frozen=True, slots=True)
class State:
    """A container as its engine sees it."""

    running: bool
    pid: int
    """Of its first process, on the engine's machine; 0 where that is not told."""
    message: str = ""
    """Why it ended, where it has."""


@dataclass(frozen=True, slots=True)
class Found:
    """A container that carries our labels."""

    id: str
    name: str
    """Empty for one that is being removed."""
    labels: Mapping[str, str]

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """An entry of an engine's list."""
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
    """One engine at one address. Its errors are ours already: `Unavailable` and its kinds, `SandboxLost`."""

    name: str
    address: str
    """For messages and `doctor`; a socket's path, or a host with its port."""
    tls: ssl.SSLContext | None = None

    @property
    def local(self) -> bool:
        """Whether containers may be processes of this machine."""
        return self.address.startswith("unix://")

    @abstractmethod
    def version(self) -> str:
        """The engine's own version; `EngineUnavailable` when it does not answer."""

    @abstractmethod
    def limits(self) -> Check:
        """Whether its control groups hold a container to each of its limits."""

    @abstractmethod
    def checks(self) -> Iterator[Check]:
        """What of its settings matters to sandboxes."""

    @abstractmethod
    def users(self) -> range:
        """The uids that containers can have."""

    def connect(self) -> socket.socket | SecureSocket:
        """A fresh blocking connection to the engine, its TLS done; whoever asked for it closes it."""
        with self._dialled() as plain:
            return SecureSocket(plain, self.tls, self._host) if self.tls else plain

    def http(self) -> http.client.HTTPConnection:
        """A fresh connection for one request, whose answer may come in pieces."""
        connection = http.client.HTTPConnection(self._host or "engine")
        with self._dialled() as plain:
            connection.sock = self.tls.wrap_socket(plain, server_hostname=self._host) if self.tls else plain
        return connection

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
        """The error for an engine that does not answer; the packages wrap the cause several times."""
        while (cause := error.__cause__ or error.__context__) is not None:
            error = cause
        if error.args and isinstance(error.args[0], ssl.SSLError):
            error = error.args[0]
        if isinstance(error, ssl.SSLError):
            return EngineUnavailable(f"TLS with {self.name} at {self.address} fails: {told(error)}; {CERTIFICATES}")
        said = error.strerror if isinstance(error, OSError) else None
        return EngineUnavailable(
            f"{self.name} does not answer at {self.address}: {said or str(error) or type(error).__name__}; "
            f"start it, or name its address in {self.name}.host of the profile"
        )

    def stranger(self) -> EngineUnavailable:
        """The error for something that answers and is no such engine."""
        return EngineUnavailable(
            f"what answers at {self.address} is not {self.name}; "
            f"name the engine's own address in {self.name}.host of the profile"
        )

    def refused(self, doing: str, reason: str, step: str) -> StartFailed:
        """The error for what the engine was asked and did not do."""
        step = self.step(reason, step or "see the log of the engine")
        return StartFailed(f"{doing} failed on {self.name} at {self.address}: {reason}; {step}")

    def step(self, reason: str, usual: str) -> str:
        """The next step after something that failed for this reason: the usual one, unless its disk is full."""
        if os.strerror(errno.ENOSPC).lower() in reason.lower():
            return f"free disk space where {self.name} keeps its images and containers"
        return usual

    @abstractmethod
    def create(self, recipe: Recipe) -> str:
        """Makes a container and gives its id; `StartFailed` when there is no such image."""

    @abstractmethod
    def start(self, container: str, recipe: Recipe) -> None:
        """Starts what was made by the recipe; `StartFailed` with the engine's reason."""

    @abstractmethod
    def state(self, container: str) -> State:
        """How it is; `SandboxLost` when it is gone."""

    @abstractmethod
    def remove(self, container: str) -> None:
        """Ends and removes it; nothing happens when it is gone."""

    @abstractmethod
    def attach_path(self, container: str) -> str:
        """Where a connection becomes the streams of its main process."""

    @abstractmethod
    def exec_path(self, process: str) -> str:
        """Where a connection becomes the streams of a prepared process, which starts it."""

    @abstractmethod
    def prepare(self, container: str, argv: Sequence[str], cwd: str, user: str) -> str:
        """Prepares another process and gives its id; `SandboxLost` when the container is gone."""

    @abstractmethod
    def exit_code(self, process: str) -> int | None:
        """The exit code of a prepared process, None while it runs; `SandboxLost` when its container is gone."""

    @abstractmethod
    def find(self, label: str) -> list[Found]:
        """All containers that carry a label, whatever its value."""

    @abstractmethod
    def image(self, name: str) -> Stored | None:
        """The image of that name or id; None when there is none."""

    @abstractmethod
    def images(self, label: str) -> list[Stored]:
        """All images that carry a label, whatever its value."""

    @abstractmethod
    def remove_image(self, name: str) -> None:
        """Removes a name and, with its last one, the image; `StartFailed` with the reason, such as its use."""

    @abstractmethod
    def pull_path(self, image: str) -> str:
        """Where an image is asked for; the answer tells how that goes."""

    @abstractmethod
    def build_path(self) -> str:
        """Where a folder is made an image; its parameters are those of Docker, whichever engine it is."""

    def credentials(self, image: str) -> Mapping[str, str]:
        """Who asks for an image, as HTTP headers; for a build, which has no name, at every registry."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Lets go of its connections."""
