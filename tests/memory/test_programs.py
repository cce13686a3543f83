"""Programs of compiled languages: what is built when, and what is told of a build and of a run."""

from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
import pytest

from llm_sandbox_mcp.aio.tasks import open_tasks
from llm_sandbox_mcp.backends.listing import Stamp
from llm_sandbox_mcp.base.errors import StartFailed
from llm_sandbox_mcp.base.results import Library
from llm_sandbox_mcp.languages.languages import Build, load_languages
from llm_sandbox_mcp.languages.places import Places
from llm_sandbox_mcp.runs.program import Program
from llm_sandbox_mcp.runs.requests import RunRequest
from llm_sandbox_mcp.runs.run import Outcome
from tests.memory import backend
from tests.memory.backend import MemoryBackend, MemoryProcess, MemorySandbox
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio

KEPT = 32
"""Programs that are kept."""


class Compiler:
    """Builds programs of words: each is done when it is built if it begins with `build`, else when it runs."""

    def __init__(self) -> None:
        self.built: list[str] = []
        """All that was built, in order."""
        self.programs: dict[str, backend.Program] = {"cc": self.compile, "true": backend.true}

    async def compile(self, process: MemoryProcess) -> int:
        source = b""
        with suppress(anyio.EndOfStream):
            while True:
                source += await process.receive()
        self.built.append(source.decode())
        code = 0
        for line in source.decode().splitlines():
            if line.startswith("build "):
                code = await self._do(process, line.removeprefix("build "))

        async def program(process: MemoryProcess) -> int:
            code = 0
            for line in source.decode().splitlines():
                if not line.startswith("build "):
                    code = await self._do(process, line)
            return code

        if code == 0:
            self.programs[process.argv[1]] = program
        return code

    async def _do(self, process: MemoryProcess, line: str) -> int:
        verb, _, words = line.partition(" ")
        match verb:
            case "print":
                await process.print(words.encode())
            case "complain":
                await process.print(words.encode(), "stderr")
            case "read":
                with suppress(anyio.EndOfStream):
                    while True:
                        await process.print(await process.receive())
            case "sleep":
                await anyio.sleep(float(words))
            case "deaf":
                process.interrupted = lambda: None
            case "exit":
                return int(words)
            case "touch":
                for number in range(int(words)):
                    size = (
                        process.sandbox.files[name].size + 1 if (name := f"{number:03}") in process.sandbox.files else 0
                    )
                    process.sandbox.files[name] = Stamp(number + 1, size, 0, 0)
            case "remove":
                for name in [name for name in self.programs if name not in ("cc", "true")]:
                    del self.programs[name]
        return 0


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
async def sandbox(compiler: Compiler) -> AsyncIterator[MemorySandbox]:
    engine = MemoryBackend(compiler.programs)
    async with engine.sandbox(POLICY):
        yield engine.live["memory-1"]


@pytest.fixture
def program(sandbox: MemorySandbox) -> Program:
    return Program(sandbox, Places(load_languages()["go"]), Build(compile=("cc", "{build}"), run=("{build}",)))


async def run(program: Program, code: str, *, timeout: float = 10, stdin: str = "") -> Outcome:
    return await program.run(RunRequest(code, timeout=timeout, output=1000, grace=1, stdin=stdin), 1)


async def test_a_program_is_built_once_and_runs_with_its_input_each_time(program: Program, compiler: Compiler) -> None:
    for text in ("one\n", "two\n"):
        outcome = await run(program, "read\nexit 3", stdin=text)
        assert (outcome.ending, outcome.exit_code, outcome.stdout) == ("answered", 3, text.encode())
        assert outcome.report is not None and outcome.report.status == "error"
    assert compiler.built == ["read\nexit 3"]
    outcome = await run(program, "print other")
    assert (outcome.stdout, outcome.exit_code, outcome.alive) == (b"other", 0, True)
    assert outcome.report is not None and outcome.report.status == "ok"
    assert (await run(program, "read\nexit 3", stdin="kept")).stdout == b"kept"
    assert len(compiler.built) == 2


async def test_of_too_many_programs_the_least_recently_run_one_is_replaced(
    program: Program, compiler: Compiler
) -> None:
    codes = [f"print {number}" for number in range(KEPT)]
    for code in [*codes, codes[0]]:
        await run(program, code)
    assert compiler.built == codes
    assert len(compiler.programs) == 2 + KEPT
    await run(program, "print new")
    for code in (codes[0], codes[2], codes[-1], codes[1]):
        assert (await run(program, code)).stdout == code.partition(" ")[2].encode()
    assert compiler.built == [*codes, "print new", codes[1]]
    assert len(compiler.programs) == 2 + KEPT


@pytest.mark.parametrize(("code", "status"), [(1, "error"), (2, "error")])
async def test_a_build_that_fails_is_the_outcome_and_nothing_runs(
    program: Program, compiler: Compiler, code: int, status: str
) -> None:
    for _ in range(2):
        outcome = await run(program, f"build complain no\nbuild exit {code}\nprint ran")
        assert (outcome.ending, outcome.exit_code, outcome.stdout, outcome.stderr) == ("answered", code, b"", b"no")
        assert outcome.report is not None and outcome.report.status == status
    assert len(compiler.built) == 2


async def test_a_build_that_takes_too_long_is_stopped_and_nothing_runs(program: Program) -> None:
    outcome = await run(program, "build sleep 20\nprint ran", timeout=5)
    assert (outcome.ending, outcome.stdout, program.alive) == ("timeout", b"", True)


@pytest.mark.parametrize(("timeout", "ending"), [(5, "timeout"), (7, "answered")])
async def test_building_and_running_have_one_deadline(program: Program, timeout: float, ending: str) -> None:
    start = anyio.current_time()
    outcome = await run(program, "build sleep 3\nsleep 3", timeout=timeout)
    assert outcome.ending == ending
    assert anyio.current_time() - start == pytest.approx(min(timeout, 6), abs=0.2)


@pytest.mark.parametrize("code", ["sleep 100", "deaf\nsleep 100"], ids=["interrupted", "killed"])
async def test_after_a_program_that_had_to_be_stopped_the_next_one_can_start(program: Program, code: str) -> None:
    outcome = await run(program, code, timeout=2)
    assert (outcome.ending, outcome.alive, program.alive) == ("timeout", True, True)
    assert (await run(program, "print a")).stdout == b"a"


async def test_a_program_that_another_one_removed_is_built_again(program: Program, compiler: Compiler) -> None:
    await run(program, "print a")
    await run(program, "remove")
    assert (await run(program, "print a")).stdout == b"a"
    assert compiler.built == ["print a", "remove", "print a"]


async def test_programs_are_built_again_for_other_libraries(program: Program, compiler: Compiler) -> None:
    for libraries, builds in [((), 1), ((Library("x", "1"),), 2), ((Library("x", "1"),), 2), ((), 3)]:
        program.use_libraries(libraries)
        await run(program, "print a")
        assert len(compiler.built) == builds


@pytest.mark.parametrize(("files", "omitted"), [(0, 0), (200, 0), (201, 1)])
async def test_the_files_that_a_program_changed_are_listed_or_counted(
    program: Program, sandbox: MemorySandbox, files: int, omitted: int
) -> None:
    sandbox.files |= {"same": Stamp(9, 9, 9, 9), "000": Stamp(1, 0, 0, 0)}
    report = (await run(program, f"touch {files}")).report
    assert report is not None
    assert report.files == tuple(f"{number:03}" for number in range(files - omitted))
    assert report.files_omitted == omitted


async def test_a_run_can_be_stopped_while_there_is_one(program: Program) -> None:
    outcomes: list[Outcome] = []

    async def long() -> None:
        outcomes.append(await run(program, "sleep 100", timeout=200))

    assert not program.stop()
    async with open_tasks() as tasks:
        tasks.start_soon(long)
        await anyio.sleep(10)
        assert program.stop()
    assert outcomes[0].ending == "cancelled"
    assert not program.stop()


async def test_a_program_whose_engine_is_silent_may_still_run_until_the_engine_speaks(
    program: Program, sandbox: MemorySandbox
) -> None:
    await run(program, "sleep 100", timeout=1)
    sandbox.fall_silent()
    outcome = await run(program, "sleep 100", timeout=1)
    assert outcome.silence is not None and program.silence == outcome.silence
    assert not program.alive
    await program.catch_up()
    assert program.silence is not None and not program.alive
    sandbox.speak()
    await program.catch_up()
    assert program.silence is None and program.alive
    assert (await run(program, "print a")).stdout == b"a"


async def test_a_sandbox_that_starts_no_program_in_time_fails_its_check(program: Program, compiler: Compiler) -> None:
    await program.check(1)

    async def never(process: MemoryProcess) -> int:
        await anyio.sleep_forever()
        return 0

    compiler.programs["true"] = never
    with pytest.raises(StartFailed, match="the sandbox started no program within 2 s"):
        await program.check(2)
