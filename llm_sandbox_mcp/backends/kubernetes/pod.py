"""One pod: starts processes in it over websockets, and deletes it."""

from collections.abc import Sequence
from contextlib import suppress

import aiohttp
import anyio
from anyio.abc import TaskGroup

from ...base.errors import SandboxError, SandboxLost, StartFailed
from ...base.messages import Problem
from ..containers.container import Container, lost_sandbox
from .api import Api, Query, Refused
from .channels import FEEDER, PROTOCOLS, Channels, feeder
from .manifest import CONTAINER
from .refusals import as_error

_STREAMS = [("stdin", "true"), ("stdout", "true"), ("stderr", "true")]

# Only the node could limit the processes of a whole pod; this limits those of its user, with -p or -u, depending on the
# shell. File sizes are counted in blocks of 512 bytes. Core dumps are turned off.
_LIMITED = """\
ulimit -p "$1" 2>/dev/null || ulimit -u "$1" || exit
ulimit -f "$2" && ulimit -c 0 || exit
shift 2
exec "$@"
"""
_BLOCK = 512


class Pod(Container):
    """A pod, given by its name; tasks of the group read the output of its processes."""

    engine = "kubernetes"

    def __init__(
        self, api: Api, name: str, tasks: TaskGroup, pids: int = 0, file_size: int = 0, *, container: str = CONTAINER
    ) -> None:
        """`pids`: maximum processes of its user, if only this pod has it; `file_size`: maximum bytes of a file then.

        `container`: the name of the container in which processes are started.
        """
        self.id = name
        self._api = api
        self._tasks = tasks
        self._limits = (str(pids), str(file_size // _BLOCK)) if pids else ()
        self._streams = [("container", container), *_STREAMS]

    async def attach(self) -> Channels:
        """The streams of its main process, the agent; the caller closes them."""
        return self._of_agent(await self._connect("attach", self._streams))

    async def join(self, argv: Sequence[str]) -> Channels:
        """Starts an agent next to the pod's own processes and returns its streams; the caller closes them."""
        return self._of_agent(await self._exec(argv))

    async def start(self, argv: Sequence[str], *, closes_input: bool) -> Channels:
        command = [*feeder(closes_input), *argv]
        if self._limits:
            command = ["/bin/sh", "-c", _LIMITED, "sh", *self._limits, *command]
        channels = self._pumped(Channels(await self._exec(command), framed=True))
        try:
            with suppress(anyio.BrokenResourceError):  # it has ended, which its streams will show
                await channels.stdin.send(FEEDER)
        except BaseException:
            channels.close()
            raise
        return channels

    def _of_agent(self, socket: aiohttp.ClientWebSocketResponse) -> Channels:
        # No linger: closing the connection ends the pod at once, by the end of its input, long before its node would.
        return self._pumped(Channels(socket, linger=0))

    async def _exec(self, argv: Sequence[str]) -> aiohttp.ClientWebSocketResponse:
        return await self._connect("exec", [*self._streams, *(("command", word) for word in argv)])

    async def remove(self) -> None:
        now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        try:
            await self._api.call("DELETE", self._path, body=now)
        except Refused as refused:
            if refused.status != 404:
                raise StartFailed(f"pod {self.id} cannot be deleted: {refused}", "delete it yourself") from refused

    async def silence(self) -> Problem | None:
        return await self._api.silence()

    def remove_soon(self) -> None:
        """Removes the pod in the background; if that fails, its owner has to remove it."""
        self._tasks.start_soon(self._try_to_remove)

    async def _try_to_remove(self) -> None:
        with suppress(SandboxError):
            await self.remove()

    async def _connect(self, verb: str, query: Query) -> aiohttp.ClientWebSocketResponse:
        try:
            return await self._api.connect(f"{self._path}/{verb}", query, PROTOCOLS)
        except Refused as refused:
            if refused.status in (404, 409):
                raise lost_sandbox() from refused
            if refused.status in (401, 403):
                raise as_error(refused, f"{verb} in pod {self.id}", self._api) from refused
            raise SandboxLost(f"{verb} in pod {self.id} failed: {refused}", "open a new session") from refused

    def _pumped(self, channels: Channels) -> Channels:
        self._tasks.start_soon(channels.pump)
        return channels

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._api.namespace}/pods/{self.id}"
