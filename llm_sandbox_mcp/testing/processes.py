"""The promises of `spawn`: a process with exactly the given arguments and variables, three raw streams, and an end."""

import json
import signal
from collections.abc import AsyncIterator

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Completed, Process, Sandbox
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.errors import SandboxLost, StartFailed

pytestmark = pytest.mark.anyio

ENV = {"PATH": PATH}
MANY = 10 << 20


async def output(process: Process) -> tuple[bytes, bytes, int]:
    streams = bytearray(), bytearray()

    async def drain(number: int) -> None:
        async for chunk in (process.stdout, process.stderr)[number]:
            streams[number].extend(chunk)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drain, 0)
        tasks.start_soon(drain, 1)
    return bytes(streams[0]), bytes(streams[1]), await process.wait()


async def python(sandbox: Sandbox, code: str, *words: str) -> Completed:
    with anyio.fail_after(30):
        return await sandbox.run(["python3", "-I", "-c", code, *words], ENV)


@pytest.mark.parametrize(
    "words", [["a", "", " ", "*", "$HOME", "'", '"', "\\", "a\nb", "é", "--", "-x"], [], ["x" * 100_000]]
)
async def test_arguments_arrive_as_they_are(sandbox: Sandbox, words: list[str]) -> None:
    done = await python(sandbox, "import json, sys; print(json.dumps(sys.argv[1:])[:1000000])", *words)
    assert json.loads(done.stdout) == words


async def test_the_environment_is_what_was_given_and_nothing_else(sandbox: Sandbox) -> None:
    env = {"PATH": PATH, "EMPTY": "", "EQUALS": "a=b=c", "LINES": "a\nb", "UNI": "é"}
    with anyio.fail_after(30):
        done = await sandbox.run(["env", "-0"], env)
    assert dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0") if entry) == env


async def test_a_process_starts_in_the_given_folder(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        async with await sandbox.spawn(["pwd"], ENV) as process:
            assert await output(process) == (b"/sandbox\n", b"", 0)
        async with await sandbox.spawn(["pwd"], ENV, cwd="/tmp") as process:
            assert (await output(process))[0] == b"/tmp\n"


@pytest.mark.parametrize("code", [0, 1, 42, 255])
async def test_the_exit_code_is_the_processs_own(sandbox: Sandbox, code: int) -> None:
    assert (await python(sandbox, f"raise SystemExit({code})")).exit_code == code


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT, signal.SIGPIPE, signal.SIGHUP]
)
async def test_a_signal_ends_it_with_128_and_its_number(sandbox: Sandbox, number: signal.Signals) -> None:
    with anyio.fail_after(30):
        async with await sandbox.spawn(["sleep", "1000"], ENV) as process:
            await process.signal(number)
            assert await process.wait() == 128 + number
            assert not process.running
            assert process.signalled is not False


async def test_an_exit_code_is_not_taken_for_a_signal(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        async with await sandbox.spawn(["sh", "-c", "exit 139"], ENV) as process:
            assert await process.wait() == 128 + signal.SIGSEGV
            assert process.signalled is not True


async def test_the_streams_are_separate_and_raw(sandbox: Sandbox) -> None:
    every = bytes(range(256)) * 100
    code = "import os; every = bytes(range(256)) * 100; os.write(1, every); os.write(2, every[::-1])"
    done = await python(sandbox, code)
    assert (done.stdout, done.stderr) == (every, every[::-1])


async def test_the_end_of_input_arrives(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        async with await sandbox.spawn(["cat"], ENV) as process:
            await process.stdin.send(b"words")
            await process.stdin.aclose()
            assert await output(process) == (b"words", b"", 0)


async def test_ten_megabytes_pass_in_every_direction(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        async with (
            await sandbox.spawn(["sh", "-c", "tee /dev/stderr"], ENV) as process,
            anyio.create_task_group() as tasks,
        ):

            async def feed() -> None:
                for _ in range(10):
                    await process.stdin.send(b"0123456789abcdef" * (1 << 16))
                await process.stdin.aclose()

            tasks.start_soon(feed)
            out, err, code = await output(process)
    assert (len(out), len(err), code) == (MANY, MANY, 0)
    assert out == err == b"0123456789abcdef" * (MANY // 16)


async def test_writing_to_an_ended_process_fails(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        async with await sandbox.spawn(["true"], ENV) as process:
            await process.wait()
            with pytest.raises(anyio.BrokenResourceError):  # noqa: PT012 - the first may still fit into the pipe
                for _ in range(100):
                    await process.stdin.send(b"x" * 65536)


@pytest.mark.parametrize(
    ("argv", "env", "cwd"),
    [
        (["no-such-program"], ENV, "/sandbox"),
        (["/no/such/program"], ENV, "/sandbox"),
        (["/etc/passwd"], ENV, "/sandbox"),
        (["/"], ENV, "/sandbox"),
        (["true"], ENV, "/no/such/folder"),
        (["true"], {}, "/sandbox"),
        (["true", "a\0b"], ENV, "/sandbox"),
        (["true"], {**ENV, "A": "a\0b"}, "/sandbox"),
        (["true", "x" * 200_000], ENV, "/sandbox"),
        (["true", *["x" * 1000] * 3000], ENV, "/sandbox"),
    ],
)
async def test_a_failed_start_is_an_error_and_the_sandbox_still_works(
    sandbox: Sandbox, argv: list[str], env: dict[str, str], cwd: str
) -> None:
    with anyio.fail_after(30):
        with pytest.raises(StartFailed, match="cannot start"):
            await sandbox.spawn(argv, env, cwd)
        assert (await sandbox.run(["true"], ENV)).exit_code == 0


async def test_a_signal_reaches_the_whole_group_and_no_other(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        async with (
            await sandbox.spawn(["cat"], ENV) as other,
            await sandbox.spawn(["sh", "-c", "sleep 1000 & echo ready; wait"], ENV) as process,
        ):
            assert await process.stdout.receive() == b"ready\n"
            await process.kill()
            # The stream ends only when the background child is dead, because that has it open too.
            with pytest.raises(anyio.EndOfStream):
                await process.stdout.receive()
            await other.stdin.send(b"alive")
            assert await other.stdout.receive() == b"alive"


async def test_a_wait_can_be_cancelled_and_repeated(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        async with await sandbox.spawn(["cat"], ENV) as process:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await process.wait()
            assert scope.cancelled_caught and process.running
            await process.stdin.aclose()
            assert [await process.wait() for _ in range(3)] == [0, 0, 0]


async def test_a_cancelled_receive_loses_nothing(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        async with await sandbox.spawn(["cat"], ENV) as process:
            for number in range(20):
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await process.stdout.receive()
                await process.stdin.send(b"%d," % number)
            await process.stdin.aclose()
            assert (await output(process))[0] == b"".join(b"%d," % number for number in range(20))


async def test_closing_a_process_kills_it(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        async with await sandbox.spawn(["sleep", "1000"], ENV) as process:
            pass
        assert await process.wait() == 137
        await process.kill()
        await process.aclose()


async def test_run_writes_and_reads_at_the_same_time_and_keeps_a_megabyte(sandbox: Sandbox) -> None:
    async def content() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 65536

    with anyio.fail_after(30):
        done = await sandbox.run(["sh", "-c", "tee /dev/stderr"], ENV, stdin=content())
    assert (len(done.stdout), len(done.stderr), done.exit_code) == (1 << 20, 1 << 20, 0)


async def test_many_processes_at_once_keep_their_own_streams(sandbox: Sandbox) -> None:
    results: dict[int, bytes] = {}

    async def one(number: int) -> None:
        results[number] = (await sandbox.run(["sh", "-c", f"echo {number}; exit {number}"], ENV)).stdout

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(one, number)
    assert results == {number: b"%d\n" % number for number in range(20)}


async def test_a_killed_sandbox_loses_its_processes_and_reports_it(sandbox: Sandbox) -> None:
    with anyio.fail_after(30):
        process = await sandbox.spawn(["sleep", "1000"], ENV)
        assert sandbox.alive
        await sandbox.kill()
        with pytest.raises(SandboxLost):
            await process.wait()
        assert not sandbox.alive
        with pytest.raises(SandboxLost):
            await sandbox.spawn(["true"], ENV)
        await process.aclose()


async def test_nothing_is_counted_before_a_limit_is_hit(sandbox: Sandbox) -> None:
    usage = await sandbox.usage()
    assert (usage.oom_kills, usage.pids_refused, (await sandbox.fullness(thorough=True)).disk) == (0, 0, False)


async def test_each_limit_that_is_hit_is_counted(sandbox: Sandbox, control_groups: None) -> None:
    await python(sandbox, "held = []\nwhile True: held.append(bytearray(1 << 20))")
    assert (await sandbox.usage()).oom_kills >= 1
    await python(
        sandbox, "import os, signal\ntry:\n  while os.fork(): pass\n  signal.pause()\nexcept OSError: os.killpg(0, 9)"
    )
    assert (await sandbox.usage()).pids_refused >= 1
    await python(sandbox, "open('/sandbox/full', 'wb').write(bytes(1 << 25))")
    assert (await sandbox.fullness(thorough=True)).disk
