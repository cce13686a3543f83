"""The jobs that clients give a server, and the answers that they expect."""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Any

import anyio
from mcp import Client
from mcp.types import CallToolResult

from tests.mcp.results import answer

LIBRARY = "tiny"
"""The library in the server's index."""
_PRINTED = "import time\nprint('on', flush=True)\ntime.sleep(1000)"
_HELLO = {
    "bash": "echo $((6 * 7))",
    "cpp": '#include <iostream>\nint main() { std::cout << 6 * 7 << "\\n"; }',
    "go": 'package main\nimport "fmt"\nfunc main() { fmt.Println(6 * 7) }',
    "java": "System.out.println(6 * 7);",
    "javascript": "console.log(6 * 7)",
    "r": "cat(6 * 7, '\\n', sep = '')",
    "ruby": "puts 6 * 7",
}


class WrongAnswer(Exception):
    """An answer that a client did not expect."""


@dataclass
class Tally:
    """What all clients have counted during one part of the soak."""

    runs: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """How long each run in a live session took."""


@dataclass
class User:
    """A client, with the session that it uses and the value that the session must contain."""

    connect: Callable[[], Client]
    client: Client
    random: Random
    tally: Tally
    languages: Sequence[str]
    session: str = ""
    count: int = 0

    async def run(self, code: str, status: str = "ok", **arguments: Any) -> dict[str, Any]:
        """Runs code in the session, or in a new one if there is none; the answer must have the status."""
        self.tally.runs += 1
        found = await answer(self.client, "execute_code", code=code, **{"session_id": self.session, **arguments})
        require(found["status"] == status, f"{status} was expected of {code[:60]!r}: {str(found)[:600]}")
        return found

    async def state(self) -> None:
        """One run in a live session, which must have the state of the runs before it."""
        if not self.session:
            self.count = 0
            self.session = (await self.run("count = 0", session_id=""))["session_id"]
        began = perf_counter()
        found = await self.run("count += 1; count")
        self.tally.seconds.append(perf_counter() - began)
        self.count += 1
        require(
            found["result"] == str(self.count),
            f"{self.count} runs were expected, but the session counted {found['result']}",
        )

    async def manage(self, action: str) -> None:
        await answer(self.client, "manage_session", action=action, session_id=self.session)

    async def leave(self) -> None:
        """Closes the session, if there is still one."""
        if self.session:
            await self.client.call_tool("manage_session", {"action": "close", "session_id": self.session})
            self.session = ""

    async def close(self) -> None:
        """Ends the session."""
        await self.state()
        await self.manage("close")
        self.session = ""

    async def reset(self) -> None:
        await self.state()
        await self.manage("reset")
        await self.run("count = 0")
        self.count = 0

    async def once(self) -> None:
        number = self.random.randrange(10**9)
        found = await self.run(f"print({number})", session_id="", keep_session=False)
        require(found["stdout"] == f"{number}\n", f"{number} was not printed: {found}")

    async def forget(self) -> None:
        """Opens a session that is never closed, so that it expires."""
        await self.run("lost = 1", session_id="")

    async def error(self) -> None:
        await self.state()
        found = await self.run("1 / 0", "error")
        require("ZeroDivisionError" in found["stderr"], f"the error is missing: {found}")

    async def timeout(self) -> None:
        await self.state()
        found = await self.run("while True: pass", "timeout", timeout_seconds=0.3)
        require(found["session_state"] == "kept", f"state is lost with a timeout: {found}")

    async def interrupt(self) -> None:
        await self.state()
        async with self._printing(self.client):
            await self.manage("interrupt")

    async def cancel(self) -> None:
        """Cancels a request while its code runs."""
        await self.state()
        async with self._printing(self.client) as scope:
            scope.cancel()

    async def disconnect(self) -> None:
        """Disconnects a client in the middle of its run."""
        await self.state()
        async with self.connect() as other, self._printing(other) as scope:
            scope.cancel()

    @asynccontextmanager
    async def _printing(self, client: Client) -> AsyncIterator[anyio.CancelScope]:
        """Starts a long run in the session; yields once it has printed."""
        self.tally.runs += 1
        printed = anyio.Event()
        ended: list[CallToolResult] = []

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            printed.set()

        async def run() -> None:
            arguments = {"code": _PRINTED, "session_id": self.session}
            ended.append(await client.call_tool("execute_code", arguments, progress_callback=progressed))
            printed.set()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await printed.wait()
                yield tasks.cancel_scope
        for result in ended:
            state = (result.structured_content or {}).get("session_state")
            require(state == "kept", f"state is lost with an interrupt: {str(result)[:600]}")

    async def install(self) -> None:
        await self.state()
        found = await answer(self.client, "install_libraries", libraries=[LIBRARY], session_id=self.session)
        require(LIBRARY in str(found["libraries"]) or found["unchanged"] == 1, f"{LIBRARY} is missing: {found}")

    async def copy(self) -> None:
        await self.state()
        content = base64.b64encode(self.random.randbytes(self.random.randrange(100_000))).decode()
        given = {"session_id": self.session, "path": "copied/file", "encoding": "base64"}
        await answer(self.client, "copy_file", content=content, **given)
        found = await answer(self.client, "copy_file", direction="out", **given)
        require(found["content"] == content, "the content copied out differs from the content copied in")

    async def artifact(self) -> None:
        await self.state()
        name = f"{self.random.randrange(5)}.csv"
        await self.run(f"open({name!r}, 'w').write('a,b\\n1,2\\n') and None")
        found = await answer(self.client, "get_artifacts", session_id=self.session, names=[name])
        require(name in str(found), f"{name} is missing: {found}")

    async def flood(self) -> None:
        await self.state()
        await self.run("import os\nwhile True: os.write(1, b'x' * 65536)", "output_limit")

    async def kill_itself(self) -> None:
        await self.state()
        self.tally.runs += 1
        await answer(self.client, "execute_code", code="import os; os.kill(os.getpid(), 9)", session_id=self.session)
        await self.run("count = 0")
        self.count = 0

    async def fork_bomb(self) -> None:
        self.tally.runs += 1
        code = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
        await answer(self.client, "execute_code", code=code, keep_session=False, timeout_seconds=0.5)

    async def memory_bomb(self) -> None:
        self.tally.runs += 1
        await answer(
            self.client, "execute_code", code="x = []\nwhile True: x.append(bytearray(1 << 24))", keep_session=False
        )

    async def daemon(self) -> None:
        code = "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True) and None"
        await self.run(code, session_id="", keep_session=False)

    async def speak(self) -> None:
        """Runs another language."""
        language = self.random.choice(self.languages)
        found = await self.run(_HELLO[language], session_id="", keep_session=False, language=language)
        require(found["stdout"] == "42\n", f"42 was not printed by {language}: {found}")


MIX: Mapping[Callable[[User], Awaitable[None]], float] = {
    User.state: 60,
    User.once: 8,
    User.error: 6,
    User.copy: 6,
    User.artifact: 3,
    User.close: 3,
    User.speak: 2,
    User.reset: 1,
    User.timeout: 1,
    User.interrupt: 1,
    User.cancel: 1,
    User.disconnect: 1,
    User.install: 1,
    User.flood: 1,
    User.kill_itself: 1,
    User.daemon: 1,
    User.forget: 0.5,
    User.fork_bomb: 0.2,
    User.memory_bomb: 0.2,
}
"""The relative frequency of each job."""


def require(true: bool, problem: str) -> None:
    """Raises `WrongAnswer` with the problem if the condition is false."""
    if not true:
        raise WrongAnswer(problem)
