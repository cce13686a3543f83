"""The files of sandboxes that others start with, copy-on-write: the server's side."""

import errno
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from ...base.errors import EngineUnavailable, SandboxError, StartFailed
from ...base.text import one_line
from ..base import Layer, Sandbox
from ..layout import PATH, WORKDIR
from . import probe
from .launching import LauncherClient
from .sandbox import EmbeddedSandbox

_END = 20.0
"""Seconds for a sandbox to be gone."""
_BUSY, _BUSY_PAUSE = 1.0, 0.02
"""Seconds for which files can be open for writing although no process is left, such as those that code has sent to a
socket and nobody has received; and between two looks."""
_DROP = 2.0
"""Seconds for the launcher to let go of a layer."""

_NEWER = "use Linux 6.6 or newer"
_FILL = "umask 077 && mkdir d && echo 1 > d/f"
_CHANGE = 'echo 2 >> d/f && test "$(cat d/f)" = "1\n2" && rm -r d && mkdir d && test -z "$(ls -A d)"'
"""What a sandbox does to try out a layer, and what one does that starts with it: it needs its own uid as the files'
owner, and a file system that can hide a folder of the layer below a new one."""

_FIXES = {
    errno.EINVAL: _NEWER,
    errno.EOPNOTSUPP: _NEWER,
    errno.ENODEV: "sudo modprobe overlay",
}
"""The fix for what each error means here; the others are of the kind that keeps sandboxes from starting."""

_logger = logging.getLogger(__name__)


def fix(obstacle: str) -> str:
    """What to do about an obstacle of `Layers`."""
    return next((step for number, step in _FIXES.items() if os.strerror(number) in obstacle), probe.remedy())


class EmbeddedLayer(Layer):
    """The files of one sandbox, which its launcher keeps."""

    def __init__(self, launcher: LauncherClient, name: str) -> None:
        """`name` is the id of the sandbox."""
        self.launcher = launcher
        self.name = name
        self._warned = False

    @property
    def alive(self) -> bool:
        return not self.launcher.gone and self.name in self.launcher.layers

    def missed(self, reason: str) -> None:
        """Notes that a sandbox starts without these files, which the log says once."""
        if not self._warned:
            self._warned = True
            _logger.warning("a sandbox starts without the files that it was to share: %s", one_line(reason))

    async def drop(self) -> None:
        """Lets the launcher forget the files, which exist as long as a sandbox has them."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(_DROP):
            await self.launcher.change_layer("drop", self.name)


class Layers:
    """What the sandboxes of one launcher share, after it has been tried once whether that works here."""

    def __init__(
        self,
        launcher: LauncherClient,
        fork: Callable[[EmbeddedLayer | None], AbstractAsyncContextManager[EmbeddedSandbox]],
        tasks: TaskGroup,
    ) -> None:
        """`fork` opens a sandbox for the trial: a fork, as only these can share files."""
        self._launcher = launcher
        self._fork = fork
        self._tasks = tasks
        self._trying = False
        self._tried = anyio.Event()
        self._obstacle = "the launcher has ended"

    async def obstacle(self) -> str:
        """Why sandboxes cannot share files here; empty if they can. The first call tries it."""
        if not self._trying:
            self._trying = True
            # Not in this task: others wait for it too, and who asks first may be cancelled.
            self._tasks.start_soon(self._try_out)
        await self._tried.wait()
        return self._obstacle

    @asynccontextmanager
    async def kept(self, sandbox: Sandbox) -> AsyncIterator[EmbeddedLayer | None]:
        """As `Backend.kept`."""
        # The mapper has no rights over the mounts of what is no fork. Files of an overlay cannot get another owner.
        if not isinstance(sandbox, EmbeddedSandbox) or not sandbox.forked or sandbox.layer is not None:
            yield None
            return
        if await self.obstacle():
            yield None
            return
        async with self._keeping(sandbox) as (layer, reason):
            if reason:
                _logger.warning("the files of a sandbox cannot be shared: %s", reason)
            yield None if reason else layer

    @asynccontextmanager
    async def _keeping(self, sandbox: EmbeddedSandbox) -> AsyncIterator[tuple[EmbeddedLayer, str]]:
        """The layer, and why it cannot be used; it is dropped when the scope ends."""
        layer = EmbeddedLayer(self._launcher, sandbox.id)
        try:
            yield layer, await self._keep(sandbox)
        finally:
            await layer.drop()

    async def _keep(self, sandbox: EmbeddedSandbox) -> str:
        """Keeps the files and ends the sandbox; why that failed, or nothing."""
        if number := await self._launcher.change_layer("keep", sandbox.id):
            return f"they cannot be kept: {os.strerror(number)}"
        with anyio.move_on_after(_END) as deadline:
            try:
                await sandbox.kill()
            except EngineUnavailable as error:
                return error.cause
            await self._launcher.ended(sandbox.id)
        if deadline.cancelled_caught:
            return f"their sandbox did not end within {_END:g} s"
        await sandbox.close()  # what this process has open of the files would keep them beyond the layer
        if number := await self._freeze(sandbox.id):
            return f"they cannot be made read-only: {os.strerror(number)}"
        return ""

    async def _freeze(self, name: str) -> int:
        until = anyio.current_time() + _BUSY
        while error := await self._launcher.change_layer("freeze", name):
            if error != errno.EBUSY or anyio.current_time() > until:
                break
            await anyio.sleep(_BUSY_PAUSE)
        return error

    async def _try_out(self) -> None:
        try:
            self._obstacle = await self._trial()
        except SandboxError as error:
            self._obstacle = error.cause
        except OSError as error:  # there are too few descriptors
            self._obstacle = str(error)
        finally:
            self._tried.set()

    async def _trial(self) -> str:
        async with self._fork(None) as seed:
            await _do(seed, _FILL)
            async with self._keeping(seed) as (layer, reason):
                if not reason:
                    async with self._fork(layer) as sandbox:
                        await _do(sandbox, _CHANGE)
                return reason


async def _do(sandbox: EmbeddedSandbox, command: str) -> None:
    done = await sandbox.run(("/bin/sh", "-c", command), {"PATH": PATH}, cwd=WORKDIR)
    if done.exit_code:
        raise StartFailed(f"the trial failed: {one_line(done.stderr.decode(errors='replace')) or done.exit_code}")
