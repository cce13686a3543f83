"""Engines that tests start for themselves: one can be ended in the middle of a run, is reached over TLS, or is rootless."""

import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from . import base_image, certificates, docker, images, podman, rootless
from .certificates import Authority
from .daemon import Daemon, alone
from .places import CACHE

IMAGE = base_image.NAME
"""The image that all of them have."""


@dataclass
class Spare:
    """An engine that a test may end and start again."""

    daemon: Daemon
    _prepare: Callable[[], None]
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """Of its socket, such as unix:///run/x.sock."""
        return f"unix://{self.daemon.socket}"

    def start(self) -> None:
        """Returns when it answers; nothing happens when it does already."""
        if not self.daemon.healthy():
            self._prepare()
            self._process = self.daemon.start()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Returns when it has ended; nothing happens when it has already."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None


@dataclass
class SecureDocker(Spare):
    """A Docker daemon that is reached over TLS too."""

    secure_address: str
    """Such as tcp://127.0.0.1:2376."""
    authority: Authority
    """The one that it believes."""
    settings: dict[str, object]
    """Of its own, as in daemon.json, when it starts next."""


@contextmanager
def spare_docker() -> Iterator[SecureDocker]:
    """A Docker daemon with the base image alone."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    authority = certificates.ensure("ours")
    daemon = docker.spare(port, authority.server)
    settings: dict[str, object] = {}
    prepare = partial(docker.prepare, daemon, settings)
    engine = SecureDocker(daemon, prepare, f"tcp://127.0.0.1:{port}", authority, settings)
    with _running(engine):
        _load(engine)
        yield engine


@contextmanager
def spare_podman() -> Iterator[Spare]:
    """A service beside the shared one, on the same containers."""
    with _running(engine := Spare(podman.spare(), podman.prepare)):
        yield engine


@contextmanager
def rootless_podman() -> Iterator[Spare]:
    """The service of an ordinary user, with the base image alone."""
    # Only its end takes all of the user's processes with it.
    with _running(engine := Spare(rootless.daemon(), rootless.prepare), signal.SIGKILL):
        _load(engine)
        yield engine


def lone_place(engine: str) -> Path:
    """The folder with all data of an engine that shares nothing with the others."""
    return CACHE / (docker.LONE if engine == "docker" else podman.LONE)


@contextmanager
def lone(engine: str) -> Iterator[Spare]:
    """Docker or Podman with the base image alone, its data in a folder of its own."""
    if engine == "docker":
        daemon = docker.lone()
        made = Spare(daemon, partial(docker.prepare, daemon))
    else:
        made = Spare(podman.lone(), podman.prepare)
    with _running(made):
        _load(made)
        yield made


def stop() -> None:
    """Ends what tests that were killed left."""
    for daemon in (Daemon("spare-docker", ()), docker.lone(), podman.spare(), podman.lone(), rootless.daemon()):
        daemon.stop()


@contextmanager
def _running(engine: Spare, ending: signal.Signals = signal.SIGTERM) -> Iterator[None]:
    """Runs it for this process alone; one that an earlier process left is ended first."""
    with alone(f"{engine.daemon.name}-"):
        engine.daemon.stop()
        engine.start()
        try:
            yield
        finally:
            engine.end(ending)


def _load(engine: Spare) -> None:
    with images.client(docker.daemon()) as source, images.client(engine.daemon) as target:
        images.hand_on(source, target, [IMAGE])
