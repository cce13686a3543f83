"""Engines that single tests start: a test can end one in the middle of a run, use TLS, or run it rootless."""

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
    """An engine that a test can end and start again."""

    daemon: Daemon
    _prepare: Callable[[], None]
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """The address of its socket, such as unix:///run/x.sock."""
        return f"unix://{self.daemon.socket}"

    def start(self) -> None:
        """Starts the engine and returns when it answers; does nothing when it answers already."""
        if not self.daemon.healthy():
            self._prepare()
            self._process = self.daemon.start()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends the engine and returns when it has ended; does nothing when it has ended already."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None


@dataclass
class SecureDocker(Spare):
    """A Docker daemon that also listens with TLS."""

    secure_address: str
    """Such as tcp://127.0.0.1:2376."""
    authority: Authority
    """The authority that it trusts."""
    settings: dict[str, object]
    """More settings, as in daemon.json, for its next start."""


@contextmanager
def spare_docker() -> Iterator[SecureDocker]:
    """A Docker daemon that has only the base image."""
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
    """A second service on the containers of the shared one."""
    with _running(engine := Spare(podman.spare(), podman.prepare)):
        yield engine


@contextmanager
def rootless_podman() -> Iterator[Spare]:
    """The service of an ordinary user, which has only the base image."""
    # Only SIGKILL ends all of the user's processes too.
    with _running(engine := Spare(rootless.daemon(), rootless.prepare), signal.SIGKILL):
        _load(engine)
        yield engine


def lone_place(engine: str) -> Path:
    """The folder with all data of an engine that shares nothing with the others."""
    return CACHE / (docker.LONE if engine == "docker" else podman.LONE)


@contextmanager
def lone(engine: str) -> Iterator[Spare]:
    """Docker or Podman with only the base image and its data in a separate folder."""
    if engine == "docker":
        daemon = docker.lone()
        made = Spare(daemon, partial(docker.prepare, daemon))
    else:
        made = Spare(podman.lone(), podman.prepare)
    with _running(made):
        _load(made)
        yield made


def stop() -> None:
    """Ends the engines that killed tests left."""
    for daemon in (Daemon("spare-docker", ()), docker.lone(), podman.spare(), podman.lone(), rootless.daemon()):
        daemon.stop()


@contextmanager
def _running(engine: Spare, ending: signal.Signals = signal.SIGTERM) -> Iterator[None]:
    """Runs it for this process only; ends one that an earlier process left first."""
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
