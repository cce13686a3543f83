"""Addresses of the engines that `python -m tests.engines up` started."""

from . import docker, podman
from .daemon import Daemon


def docker_host() -> str | None:
    """The address of our Docker daemon, such as unix:///run/x.sock; None when it does not run."""
    return _address(docker.daemon())


def podman_host() -> str | None:
    """The address of our Podman service; None when it does not run."""
    return _address(podman.daemon())


def _address(daemon: Daemon) -> str | None:
    return f"unix://{daemon.socket}" if daemon.healthy() else None
