"""The profile that a command line names, the service with this profile, and the signals that end a command."""

import argparse
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager

import anyio
from anyio.abc import TaskStatus

from ..base.errors import InvalidArgument
from ..base.open_folders import OpenFolder
from ..host.folders import HostFolders, host_folders
from ..profile.profile import Profile, load_profile
from ..service import Service
from ..wiring import open_service


def named_profile(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """The profile named by `--profile`, else by `LLM_SANDBOX_PROFILE`; empty if neither is given."""
    return options.profile or environ.get("LLM_SANDBOX_PROFILE", "")


def read_profile(
    options: argparse.Namespace, environ: Mapping[str, str], over: Mapping[str, Mapping[str, object]] | None = None
) -> Profile:
    """The named profile, else the default profile, with the settings in `over` and those of options on top."""
    if getattr(options, "offline", False):
        over = {**(over or {}), "server": {**(over or {}).get("server", {}), "offline": True}}
    profile = load_profile(named_profile(options, environ), over)
    folders = (*profile.files.folders, *named_folders(options))
    return profile.model_copy(update={"files": profile.files.model_copy(update={"folders": folders})})


def named_folders(options: argparse.Namespace) -> Iterator[str]:
    """Each folder that `--folder` opens, with its absolute path; raises `InvalidArgument` if it is none."""
    for text in getattr(options, "folders", ()):
        try:
            folder = OpenFolder.parse(text, beside=os.getcwd())
        except ValueError as error:
            raise InvalidArgument(f"--folder: {error}") from error
        if not os.path.isdir(folder.path):
            raise InvalidArgument(f"--folder: {folder.path} is no folder", "make it, or name another one")
        yield str(folder)


def folders_of(profile: Profile, environ: Mapping[str, str]) -> HostFolders:
    """The folders of this machine that the profile, or else the environment, sets for this program."""
    server = profile.server
    return host_folders(server.cache, server.runtime, environ)


def opened(profile: Profile, environ: Mapping[str, str]) -> AbstractAsyncContextManager[Service]:
    """The service with a profile."""
    return open_service(profile, folders_of(profile, environ), environ)


def run_until_signal(work: Callable[[], Awaitable[int]]) -> int:
    """Runs a command to completion and returns its exit status.

    SIGINT and SIGTERM cancel it, so that it leaves nothing behind; the status is then 128 plus the signal's number.
    """
    return anyio.run(_until_signal, work)


async def _until_signal(work: Callable[[], Awaitable[int]]) -> int:
    status = 0
    async with anyio.create_task_group() as tasks:

        async def watch(*, task_status: TaskStatus[None]) -> None:
            nonlocal status
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                task_status.started()
                async for number in signals:
                    status = 128 + number
                    tasks.cancel_scope.cancel()

        await tasks.start(watch)
        status = await work()
        tasks.cancel_scope.cancel()
    return status
