"""The library as a program uses it, on every backend."""

import functools
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

import llm_sandbox_mcp
from llm_sandbox_mcp import Execution, Printed, Profile, SandboxError, Sandboxes
from llm_sandbox_mcp.base.errors import BadPath, InvalidArgument, PolicyDenied, UnknownLanguage, UnknownSession
from llm_sandbox_mcp.testing.asking import execute
from tests.broken_text import CODE, NOTE, PRINTED
from tests.engines import need, small_profile

pytestmark = pytest.mark.anyio

ENDLESS = "kept = 1\nprint('on', flush=True)\nwhile True: pass"


@pytest.fixture
async def sandboxes(anyio_backend: str, backend_name: str, profile: Profile) -> AsyncIterator[Sandboxes]:
    await need(backend_name)
    with anyio.fail_after(60):
        async with Sandboxes(profile) as opened:
            yield opened


async def test_a_session_keeps_state_files_and_its_own_limits(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(limits={"timeout": 5, "cpus": 0.5}) as session:
        assert (await session.run("x = 41")).status == "ok"
        result = await session.run("print(x, file=open('made.txt', 'w'))\nx + 1", variables={"y": 2})
        assert (result.result, result.session_id) == ("42", session.id)
        assert [made.name for made in session.artifacts()] == ["made.txt"]
        assert await session.artifact("made.txt") == b"41\n"
        await session.write("deep/given.txt", "given")
        assert await session.read("deep/given.txt") == b"given"
        with pytest.raises(BadPath):
            await session.read("nothing")
        await session.make_folder("empty")
        await session.write("script", "#!/bin/sh\n", executable=True)
        with tarfile.open(fileobj=io.BytesIO(await session.pack())) as archive:
            assert {"sandbox/empty", "sandbox/made.txt"} < set(archive.getnames())
            assert archive.getmember("sandbox/script").mode == 0o755
        for path in ("deep", "/sandbox/deep"):
            with tarfile.open(fileobj=io.BytesIO(await session.pack(path))) as archive:
                assert archive.getnames() == ["deep", "deep/given.txt"]
        with pytest.raises(BadPath):
            await session.pack("../etc")
        with pytest.raises(PolicyDenied):
            await session.run("1", timeout=6)
        await session.run("x = 1")
        await session.write("stays", "")
        await session.restart()
        again = await session.run("import os\n'x' in globals(), os.path.exists('stays')")
        assert (again.result, again.notes) == ("(False, True)", ())
        await session.reset()
        assert (await session.run("x")).status == "error"
    assert sandboxes.service.sessions.list() == ()


async def test_output_that_is_too_long_to_show_is_a_file_of_the_session(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        long = await session.run("print('é' * 100_000)")
        assert long.stdout.omitted > 0
        assert "is in the file run-1-stdout.txt of the working directory" in str(long.notes)
        again = await session.run("open('run-1-stdout.txt').read() == 'é' * 100_000 + '\\n'")
        assert (again.result, again.artifacts) == ("True", ())
        assert await session.artifact("run-1-stdout.txt") == await session.read("run-1-stdout.txt")


async def test_files_with_long_output_take_an_eighth_of_the_disk(sandboxes: Sandboxes) -> None:
    async with sandboxes.session(limits={"disk": 4 << 20}) as session:
        too_long = await session.run("print('x' * 600_000)")
        assert "was not written: it has 585.9KiB, and such files at most 512KiB" in str(too_long.notes)
        for _ in range(3):
            await session.run("print('x' * 200_000)")
        left = await session.run("import glob; sorted(glob.glob('run-*'))")
        assert left.result == "['run-3-stdout.txt', 'run-4-stdout.txt']"


async def test_output_is_streamed_and_the_result_comes_last(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        code = "import sys\nprint('out')\nsys.stdout.flush()\nprint('err', file=sys.stderr)\n6 * 7"
        *pieces, last = [piece async for piece in session.stream(code)]
        printed = [piece for piece in pieces if isinstance(piece, Printed)]
        assert len(printed) == len(pieces)
        assert "".join(piece.text for piece in printed if piece.stream == "stdout") == "out\n"
        assert "".join(piece.text for piece in printed if piece.stream == "stderr") == "err\n"
        assert isinstance(last, Execution)
        assert last.result == "42"


async def test_leaving_a_stream_interrupts_the_code_and_keeps_the_state(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        async for piece in session.stream(ENDLESS):
            assert piece == Printed("stdout", "on\n")
            break
        assert (await session.run("kept + 1")).result == "2"


async def test_a_refreshed_session_has_its_files_and_no_variables(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        await session.refresh()
        await session.run("x = 1\nopen('kept', 'w').write('kept')")
        await session.refresh()
        await session.refresh()
        after = await session.run("print(open('kept').read(), 'x' in globals())")
        assert (after.stdout.text, after.notes) == ("kept False\n", ())
        await session.close()
        with pytest.raises(UnknownSession):
            await session.refresh()


async def test_a_run_by_itself_leaves_nothing(sandboxes: Sandboxes) -> None:
    result = await sandboxes.run("echo $((6 * 7))", language="bash")
    assert (result.stdout.text, result.session_state) == ("42\n", "ended")
    assert sandboxes.service.sessions.list() == ()


async def test_code_with_half_an_emoji_runs(sandboxes: Sandboxes) -> None:
    result = await sandboxes.run(CODE)
    assert (result.stdout.text, result.notes) == (PRINTED, (NOTE,))
    assert (result.notes[0].code, result.notes[0].facts) == ("replaced_characters", {"names": ["code"]})


# Behaviour that does not depend on the backend.


@pytest.fixture
async def here(anyio_backend: str, folder: Path) -> AsyncIterator[Sandboxes]:
    await need("embedded")
    with anyio.fail_after(60):
        async with Sandboxes(small_profile("embedded", folder)) as opened:
            yield opened


async def test_a_run_that_comes_while_a_refresh_still_waits_has_a_fresh_interpreter(here: Sandboxes) -> None:
    async with here.session() as session, anyio.create_task_group() as tasks:
        await session.run("x = 1")
        tasks.start_soon(functools.partial(session.refresh, pause=0.5))
        await anyio.wait_all_tasks_blocked()
        assert (await session.run("print('x' in globals())")).stdout.text == "False\n"


async def test_a_session_that_is_closed_while_a_refresh_waits_takes_no_other_sandbox(here: Sandboxes) -> None:
    async with here.session() as session:
        await session.run("x = 1")
        before = here.service.pool()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.close)
            with pytest.raises(UnknownSession):
                await session.refresh(pause=0.1)
        assert here.service.pool().misses == before.misses


async def test_an_error_that_keeps_code_from_running_is_raised_by_the_stream(here: Sandboxes) -> None:
    async with here.session() as session:
        for code, language, error in (("", "", InvalidArgument), ("1", "cobol", UnknownLanguage)):
            with pytest.raises(error):
                await anext(session.stream(code, language=language))
        assert (await session.run("1")).result == "1"


async def test_an_error_of_the_caller_ends_the_session_and_is_raised(here: Sandboxes) -> None:
    async def fail() -> None:
        async with here.session() as session:
            async for _ in session.stream(ENDLESS):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert here.service.sessions.list() == ()


async def test_a_cancelled_caller_interrupts_the_code(here: Sandboxes) -> None:
    async with here.session() as session:
        for way in ("run", "stream"):
            running = anyio.Event()

            async def run(way: str = way, running: anyio.Event = running) -> None:
                async def seen(stream: str, text: str) -> None:
                    running.set()

                if way == "run":
                    await session.run(ENDLESS, on_output=seen)
                async for _ in session.stream(ENDLESS):
                    running.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await running.wait()
                tasks.cancel_scope.cancel()
            assert (await session.run("kept + 1")).result == "2"


async def test_leaving_a_session_that_is_already_closed_raises_nothing(here: Sandboxes) -> None:
    async with here.session() as session:
        await here.service.sessions.close(session.id)


async def test_two_programs_in_one_process_do_not_see_each_other(here: Sandboxes, folder: Path) -> None:
    async with Sandboxes(small_profile("embedded", folder)) as other, other.session() as session:
        await session.run("x = 1")
        assert here.service.sessions.list() == ()
        with pytest.raises(UnknownSession):
            await execute(here.service, "x", session_id=session.id)


def test_sandboxes_that_are_not_open_say_so() -> None:
    with pytest.raises(InvalidArgument, match="async with"):
        Sandboxes().session()


async def test_a_profile_is_given_named_or_taken_from_the_environment(folder: Path) -> None:
    path = folder / "profile.toml"
    path.write_text("[limits]\nmemory = 1\n")
    for wrong in (Sandboxes(path), Sandboxes(str(path)), Sandboxes(environ={"LLM_SANDBOX_PROFILE": str(path)})):
        with pytest.raises(SandboxError, match=r"limits\.memory: must be a string with a unit"):
            await wrong.__aenter__()
    async with Sandboxes("default", environ={}) as opened:
        assert opened.service.profile.limits.pids == 256


def test_every_name_of_the_package_exists() -> None:
    for name in llm_sandbox_mcp.__all__:
        assert getattr(llm_sandbox_mcp, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        llm_sandbox_mcp.other  # noqa: B018
