"""Attack: signals to everything. Outcome: an error that says so, and the session recovers."""

import json
from contextlib import suppress
from functools import partial

import anyio
import pytest

from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.testing.asking import execute
from tests.hostile.calls import ATTEMPT, HUNT, REPORT, RESUMED
from tests.hostile.conftest import ANSWER, Arena

pytestmark = pytest.mark.anyio

KILLS = {
    "the runner itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "the runner by a fault": "import ctypes\nctypes.string_at(0)",
    "its group": "import os, signal\nos.killpg(0, signal.SIGKILL)",
    "everything, the runner last": "import os, signal\nif os.fork() == 0:\n    os.kill(-1, signal.SIGKILL)\nos.wait()\nos.kill(os.getpid(), signal.SIGKILL)",
    "from a child": "import os, signal\nif os.fork() == 0:\n    os.setsid()\n    os.kill(-1, signal.SIGKILL)\nelse:\n    signal.pause()",
    "by an exit": "import os\nos._exit(5)",
    "by abort": "import os\nos.abort()",
}


@pytest.mark.parametrize("code", KILLS.values(), ids=KILLS)
async def test_a_killed_runner_is_an_error_that_says_so(arena: Arena, code: str) -> None:
    result = await arena.attack("open('file', 'w').write('kept')\n" + code)
    assert result.status == "error", result
    assert any("the interpreter ended with" in note for note in result.notes), result
    output = await arena.check("print(open('file').read())", result.session_id)
    assert output == "kept\n"


async def test_pid_1_survives_every_signal(arena: Arena) -> None:
    result = await arena.attack("""
import os, time
sent = 0
for number in range(65):
    try:
        os.kill(1, number)
        sent += 1
    except OSError:
        pass
for number in range(1, 65):
    try:
        os.killpg(1, number)
    except OSError:
        pass
time.sleep(0.3)
print(sent > 0)
""")
    assert (result.status, result.stdout.text) == ("ok", "True\n"), result
    assert await arena.check("print(6 * 7)", result.session_id) == "42\n"


async def test_pid_1_cannot_be_read_written_or_traced(arena: Arena) -> None:
    output = await arena.check(
        ATTEMPT
        + """
for name in ('environ', 'mem', 'maps', 'auxv', 'stack', 'syscall', 'io', 'pagemap', 'fd/0', 'fd/3', 'fd/4'):
    attempt(f'read {name}', open, f'/proc/1/{name}', 'rb')
for name in ('mem', 'oom_score_adj', 'clear_refs', 'coredump_filter'):
    attempt(f'write {name}', open, f'/proc/1/{name}', 'r+b')
for name in ('exe', 'cwd', 'root', 'ns/mnt', 'ns/user'):
    attempt(f'link {name}', os.readlink, f'/proc/1/{name}')
for name in ('fd', 'map_files', 'fdinfo'):
    attempt(f'list {name}', os.listdir, f'/proc/1/{name}')
if platform.machine() == 'x86_64':
    call('attach', 101, 16, 1, 0, 0)
    call('seize', 101, 0x4206, 1, 0, 0)
    call('readv', 310, 1, None, 0, None, 0, 0)
    call('writev', 311, 1, None, 0, None, 0, 0)
    call('descriptor', 438, 0, 3, 0)
"""
        + REPORT
    )
    attempts = json.loads(output)
    assert {name: how for name, how in attempts.items() if how == "done"} == {}


@pytest.mark.parametrize(
    "resource",
    ["RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_NPROC", "RLIMIT_STACK", "RLIMIT_FSIZE"],
)
async def test_pid_1_cannot_be_starved(arena: Arena, resource: str) -> None:
    result = await arena.attack(f"import resource\nresource.prlimit(1, resource.{resource}, (0, 0))")
    assert result.status == "error"
    assert "PermissionError" in result.stderr.text
    for code in ("raise SystemExit(0)", "import os\nos._exit(3)", "6 * 7"):
        again = await execute(arena.service, code, session_id=result.session_id, timeout=5)
    assert again.result == "42"


async def test_code_can_lower_its_own_priority_but_not_that_of_pid_1(arena: Arena) -> None:
    output = await arena.check("""
import json, os
def attempt(name, call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return
    done.append(name)
done = []
attempt('process', os.setpriority, os.PRIO_PROCESS, 1, 19)
attempt('group', os.setpriority, os.PRIO_PGRP, 1, 19)
attempt('user', os.setpriority, os.PRIO_USER, 0, 19)
attempt('policy', os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))
for who in (0, os.getpid()):
    os.setpriority(os.PRIO_PROCESS, who, 5)
    os.sched_setscheduler(who, os.SCHED_BATCH, os.sched_param(0))
print(json.dumps(done))
""")
    assert json.loads(output) == []


@pytest.mark.in_turns
async def test_a_run_after_its_runner_was_killed_really_runs(arena: Arena) -> None:
    first = await arena.attack("""
import os, signal, threading
open('armed', 'w').close()
threading.Timer(0.05, os._exit, (0,)).start()
kept = 1
""")
    assert first.status == "ok"
    # The Python runner ends after the first run: a Bash run in the same session waits until it is gone.
    waited = await execute(
        arena.service,
        "while [ -n \"$(ls /proc | grep -c '^[0-9]')\" ] && grep -qs 'runner[.]py' /proc/[0-9]*/cmdline; do sleep 0.01; done",
        session_id=first.session_id,
        language="bash",
    )
    second = await execute(arena.service, "print('really ran')", session_id=first.session_id)
    assert second.stdout.text == "really ran\n", second
    assert any("started fresh" in note for note in waited.notes + second.notes), second


async def test_a_run_whose_runner_ends_while_it_reads_the_request_really_runs(arena: Arena) -> None:
    first = await arena.attack("""
import os
read = os.read
os.read = lambda *arguments: (read(*arguments), os._exit(0))
""")
    assert first.status == "ok"
    second = await execute(arena.service, "print('really ran')", session_id=first.session_id)
    assert second.stdout.text == "really ran\n", second
    assert any("started fresh" in note for note in second.notes), second


@pytest.mark.parametrize("number", ["STOP", "KILL"])
async def test_code_that_attacks_every_new_process_cannot_reach_the_servers_own_tools(
    arena: Arena, number: str
) -> None:
    with anyio.fail_after(ANSWER):
        result = await arena.attack(HUNT % number, timeout=2)
    assert (result.status, result.session_state) == ("ok", "kept"), result
    assert [artifact.name for artifact in result.artifacts] == ["run-2-stdout.txt", "file"], result
    assert [note for note in result.notes if "the whole output" in note and "is in the file" in note], result
    for _ in range(10):
        await arena.service.files.copy_in(result.session_id, "other", bytes(200_000))
        assert (await arena.service.files.copy_out(result.session_id, "other")).size == 200_000


async def test_code_that_stops_new_processes_all_the_same_is_gone_with_its_session(arena: Arena) -> None:
    # An engine waits 30 s for the start of a process. The arena checks that no container is left.
    awake = HUNT.replace("    while True:\n", "    while True:\n        stay_awake()\n")
    with anyio.fail_after(5 * ANSWER), suppress(SandboxError):
        result = await arena.attack(RESUMED + awake % "STOP", timeout=2)
        assert result.duration < ANSWER, result


async def test_a_copy_that_code_stops_all_the_same_ends_in_time(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_sandbox_mcp.backends.copying.COPY_SECONDS", 1.0)
    result = await arena.attack(
        RESUMED
        + """
import os, signal
if os.fork() == 0:
    os.setsid()
    while True:
        stay_awake()
        for name in os.listdir('/proc'):
            if name.isdigit():
                try:
                    if open(f'/proc/{name}/comm').read() == 'tar\\n':
                        os.kill(int(name), signal.SIGSTOP)
                except OSError:
                    pass
open('file', 'w').write('x' * 1_000_000)
"""
    )
    assert result.status == "ok"
    session = result.session_id
    for copy in (
        partial(arena.service.files.copy_in, session, "other", bytes(2_000_000)),
        partial(arena.service.files.copy_out, session, "file"),
    ):
        # `tar` may be faster than the code that looks for it, but not every time.
        with pytest.raises(SandboxError, match="not done in time"):  # noqa: PT012
            for _ in range(200):
                await copy()


async def test_code_that_stops_all_processes_in_a_loop_delays_nothing_for_long(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_sandbox_mcp.backends.copying.COPY_SECONDS", 1.0)
    result = await arena.attack("""
import os, signal, time
if os.fork() == 0:
    os.setsid()
    while not os.path.exists('go'):
        time.sleep(0.001)
    while True:
        try:
            os.kill(-1, signal.SIGSTOP)
        except OSError:
            pass
""")
    assert result.status == "ok", result
    session = result.session_id
    with anyio.fail_after(2 * ANSWER):
        for _ in range(5):
            with suppress(SandboxError):
                await arena.service.files.copy_in(session, "go", b"")
        again = await execute(arena.service, "1", session_id=session, timeout=0.5)
        assert again.status in ("ok", "timeout"), again
        await arena.service.sessions.close(session)


async def test_stopping_pid_1_is_not_possible(arena: Arena) -> None:
    result = await arena.attack("import os, signal\nos.kill(1, signal.SIGSTOP)\nos.kill(1, signal.SIGTSTP)")
    assert result.status == "ok"
    assert result.duration < ANSWER
    assert await arena.check("echo yes", result.session_id, language="bash") == "yes\n"
