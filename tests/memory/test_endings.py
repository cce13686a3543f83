"""Every way in which a run ends: its status, its notes, and what is left of its session."""

import anyio
import pytest

from llm_sandbox_mcp.base.errors import SandboxLost
from llm_sandbox_mcp.base.results import SessionState, Status
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import open_session

from .backend import PROGRAMS, MemoryBackend, MemoryProcess
from .conftest import run

pytestmark = pytest.mark.anyio

KILLED = "the code did not answer an interrupt and was killed; variables and files are lost"

ENDINGS: dict[str, tuple[str, Status, int, SessionState, str]] = {
    "answers": ("set x 1", "ok", 0, "kept", ""),
    "fails": ("fail 3", "error", 3, "kept", ""),
    "takes too long": ("sleep 1000", "timeout", 130, "kept", "stopped after 5s"),
    "takes too long and ignores the interrupt": ("deaf\nsleep 1000", "timeout", 137, "fresh", KILLED),
    "floods": ("flood", "output_limit", 130, "kept", "stopped after printing 1MiB"),
    "floods and ignores the interrupt": ("deaf\nflood", "output_limit", 137, "fresh", KILLED),
    "ends its interpreter": ("exit 7", "error", 7, "fresh", "the interpreter ended with exit code 7"),
    "ends its interpreter with success": ("exit 0", "ok", 0, "fresh", "the interpreter ended with exit code 0"),
    "ends its interpreter by a signal": ("exit 139", "error", 139, "fresh", "ended with signal SIGSEGV"),
    "replaces its interpreter": ("replace 5", "error", 5, "fresh", "the interpreter ended with exit code 5; variables"),
    "replaces its interpreter and is killed": ("replace 143", "error", 143, "fresh", "ended with signal SIGTERM; "),
    "forges its report": ("garble", "error", 1, "kept", "the runner's report was not readable"),
    "fills the disk": ("fill", "disk_limit", 1, "kept", "the disk limit of 16MiB was reached"),
    "fills the disk and ends its sandbox": (
        "fill\ndie",
        "disk_limit",
        137,
        "fresh",
        "the sandbox ended while the code ran; variables and files are lost",
    ),
    "is refused a process": ("fork", "process_limit", 1, "kept", "the limit of 64 processes and threads was reached"),
    "outgrows its memory": ("outgrow", "out_of_memory", 137, "fresh", "the memory limit of 128MiB was reached"),
    "makes too many files": (
        "crowd 1000000",
        "inode_limit",
        0,
        "fresh",
        "there were more files and folders than allowed",
    ),
    "hides what it used": ("hide", "ok", 0, "fresh", ""),
}


@pytest.mark.parametrize(("code", "status", "exit_code", "state", "message"), ENDINGS.values(), ids=ENDINGS)
async def test_a_run_ends_with_its_status_notes_and_session_state(
    service: Service, code: str, status: Status, exit_code: int, state: SessionState, message: str
) -> None:
    result = await run(service, code, timeout=5)
    assert (result.status, result.exit_code, result.session_state) == (status, exit_code, state), result
    assert any(message in note for note in result.notes) if message else not result.notes, result.notes
    again = await run(service, "get x", session_id=result.session_id)
    assert (again.status, again.result) == ("ok", "1" if code == "set x 1" else None), again


async def test_a_sandbox_that_is_gone_is_an_error_and_the_next_run_starts_fresh(service: Service) -> None:
    session = open_session(service, "script")
    with pytest.raises(SandboxLost, match="the sandbox ended while the code ran, and what the code did is unknown"):
        await run(service, "set x 1\ndie", session_id=session)
    again = await run(service, "get x", session_id=session)
    assert (again.status, again.result) == ("ok", None)
    assert any("started fresh" in note for note in again.notes), again.notes


async def test_code_that_lost_only_a_process_to_the_memory_limit_keeps_its_state(service: Service) -> None:
    first = await run(service, "set x 1\noutgrow child")
    assert (first.status, first.session_state) == ("ok", "kept")
    assert any("killed at the memory limit of 128MiB: 1" in note for note in first.notes), first.notes
    assert (await run(service, "get x", session_id=first.session_id)).result == "1"


async def test_limits_are_also_counted_of_code_that_was_killed_after_its_grace(service: Service) -> None:
    result = await run(service, "outgrow child\ndeaf\nsleep 1000", timeout=5)
    assert (result.status, result.exit_code) == ("out_of_memory", 137), result
    assert any("the memory limit of 128MiB was reached" in note for note in result.notes), result.notes


async def test_a_session_whose_sandbox_ends_while_files_are_copied_out_of_it_starts_fresh(
    service: Service, engine: MemoryBackend
) -> None:
    async def ending(process: MemoryProcess) -> int:
        await process.sandbox.kill()
        return 0

    engine.programs = {**PROGRAMS, "tar": ending}
    first = await run(service, 'set x 1\nreport {"files": ["a"]}')
    assert (first.status, first.session_state) == ("ok", "fresh")
    assert (await run(service, "get x", session_id=first.session_id)).result is None


async def test_the_reason_of_the_end_of_a_sandbox_may_be_known_only_after_the_timeout_of_the_run(
    service: Service,
) -> None:
    result = await run(service, "hide\noutgrow all", timeout=5)
    assert (result.status, result.session_state) == ("out_of_memory", "fresh"), result


async def test_a_sandbox_that_stops_answering_costs_its_session_and_blocks_nothing(service: Service) -> None:
    before = anyio.current_time()
    result = await run(service, "hide\nset x 1", timeout=5)
    assert (result.status, result.session_state) == ("ok", "fresh"), result
    assert anyio.current_time() - before < 20, "seconds on a clock that jumps"
    again = await run(service, "get x", session_id=result.session_id)
    assert any("the sandbox did not answer any more" in note for note in again.notes), again.notes


async def test_code_that_stops_at_the_timeout_keeps_its_variables(service: Service) -> None:
    first = await run(service, "set x 1\nsleep 1000", timeout=0.5)
    assert first.status == "timeout"
    assert first.duration == pytest.approx(0.5, abs=0.2)
    assert (await run(service, "get x", session_id=first.session_id)).result == "1"


async def test_only_output_beyond_the_limit_is_slowed_down(service: Service) -> None:
    result = await run(service, "print x\n" * 100)
    assert (result.status, len(result.stdout.text)) == ("ok", 200)
    assert result.duration < 0.1, "seconds on a clock that jumps"


@pytest.mark.parametrize("changes", [{"limits": {"cpu_time": 2.0, "cpus": 4.0}}])
async def test_processor_time_is_bounded(service: Service) -> None:
    result = await run(service, "work 1000", timeout=25)
    assert (result.status, result.session_state) == ("cpu_limit", "kept"), result
    assert result.duration < 5
    assert any("stopped after 2s of processor time" in note for note in result.notes), result.notes


async def test_nothing_is_left_when_the_service_ends(engine: MemoryBackend, service: Service) -> None:
    for _ in range(3):
        await run(service, "set x 1")
    assert len(engine.live) == 3
