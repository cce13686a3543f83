"""Programs of languages without a runner: what is known of a run is reported, also if its files are not."""

from typing import cast

import pytest

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.listing import Files
from llm_sandbox_mcp.base.errors import Unavailable
from llm_sandbox_mcp.base.results import StreamName
from llm_sandbox_mcp.runs.program import Program
from llm_sandbox_mcp.runs.requests import RunRequest
from llm_sandbox_mcp.runs.run import Outcome

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Listed:
    """A sandbox whose files are listed so often; then code keeps our own tools from it."""

    def __init__(self, lists: int) -> None:
        self._left = lists

    async def list_files(self) -> Files:
        if not self._left:
            raise Unavailable("listing files was not done in time", "reset the session")
        self._left -= 1
        return {}


class Built(Program):
    """A program that is built already and prints one line."""

    def __init__(self, lists: int) -> None:
        self._sandbox = cast(Sandbox, Listed(lists))
        self.runs = 0
        self._compile = []
        self._sources = ()

    async def _run_built(self, key: bytes, request: RunRequest) -> Outcome | None:
        self.runs += 1
        return Outcome("exited", None, True, 0, True, b"done\n", b"", 0, 0.1)


async def test_an_outcome_without_its_files_is_still_the_outcome() -> None:
    outcome = await Built(1).run(RunRequest("", timeout=5, output=100, grace=1), 1)
    assert (outcome.ending, outcome.stdout) == ("answered", b"done\n")
    assert outcome.report is not None and outcome.report.files == ()


async def test_where_files_cannot_be_listed_no_program_runs() -> None:
    program = Built(0)
    with pytest.raises(Unavailable):
        await program.run(RunRequest("", timeout=5, output=100, grace=1), 1)
    assert program.runs == 0


class Refused(Built):
    """A program that the compiler refuses."""

    async def _run_built(self, key: bytes, request: RunRequest) -> Outcome | None:
        return None

    def _free_number(self) -> int:
        return 0

    async def _step(self, words: list[str], number: int, stdin: bytes, request: RunRequest) -> Outcome:
        return Outcome("exited", None, True, 1, True, b"", "main.cpp:1: error: größer\n".encode(), 0, 0.1)


async def test_those_who_listen_to_a_run_hear_why_it_was_not_built() -> None:
    heard = []

    async def listen(stream: StreamName, text: str) -> None:
        heard.append((stream, text))

    outcome = await Refused(1).run(RunRequest("", timeout=5, output=100, grace=1, on_output=listen), 1)
    assert (outcome.exit_code, outcome.program) == (1, False)
    assert heard == [("stderr", "main.cpp:1: error: größer\n")]
