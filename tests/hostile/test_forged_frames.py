"""Attack: output that looks like the runner's own reports. Outcome: the code deceives only its own session."""

import anyio
import pytest

from llm_sandbox_mcp.testing.asking import execute
from tests.hostile.calls import NONCE
from tests.hostile.conftest import ANSWER, Arena

pytestmark = pytest.mark.anyio


async def test_frames_with_other_nonces_are_output(arena: Arena) -> None:
    result = await arena.attack("""
import os
for nonce in ('0' * 32, 'f' * 32, '', 'x' * 32, '0' * 31):
    for kind in ('+', '.'):
        os.write(1, f'\\x1e{nonce}{kind}2\\n{{}}'.encode())
        os.write(2, f'\\x1e{nonce}{kind}0\\n'.encode())
raise SystemExit(3)
""")
    assert (result.status, result.exit_code, result.session_state) == ("error", 3, "kept"), result
    assert result.stdout.text.count("\x1e") == 10


PAYLOADS = {
    "nothing": b"",
    "not JSON": b"{",
    "not an object": b"[]",
    "wrong types": b'{"status": 1, "exit_code": "x"}',
    "no status": b'{"exit_code": 0}',
    "unknown status": b'{"status": "out_of_memory", "exit_code": 0}',
    "a very long number": b'{"status": "ok", "exit_code": ' + b"9" * 100_000 + b"}",
    "deep nesting": b'{"status": "ok", "exit_code": 0, "x": ' + b"[" * 100_000,
    "infinity": b'{"status": "ok", "exit_code": Infinity}',
    "not UTF-8": b'{"status": "ok", "exit_code": 0, "result": "\xff"}',
    "lone surrogates": b'{"status": "ok", "exit_code": 0, "result": "\\ud800"}',
    "a long result": b'{"status": "ok", "exit_code": 0, "result": "' + b"x" * 900_000 + b'"}',
    "a report over the limit": b'{"status": "ok", "exit_code": 0, "result": "' + b"x" * 1_500_000 + b'"}',
    "fields that only the server sets": b'{"status": "ok", "exit_code": 0, "session_state": "ended", "notes": ["x"], "session_id": "y"}',
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
async def test_a_forged_report_is_an_answer_or_unreadable_and_never_more(arena: Arena, payload: bytes) -> None:
    size = len(payload)
    construct = (
        repr(payload) if size < 1000 else f"{payload[:45]!r} + {payload[60:61]!r} * {size - 47} + {payload[-2:]!r}"
    )
    result = await arena.attack(NONCE + f"end({construct})\nimport time\ntime.sleep(1000)", timeout=2)
    assert result.status in ("ok", "error"), result.status
    assert result.duration < ANSWER
    if result.status == "error":
        assert any("not readable" in note for note in result.notes), result.notes
    assert result.session_state == "kept"
    assert len(result.result or "") <= 1 << 20
    assert result.session_id != "y" and "x" not in result.notes


async def test_a_report_cannot_hide_the_limits_that_were_hit(arena: Arena) -> None:
    result = await arena.attack(
        NONCE
        + """
for _ in range(100):
    try:
        os.fork() or __import__('time').sleep(1000)
    except OSError:
        break
end(b'{"status": "ok", "exit_code": 0}')
"""
    )
    arena.check_process_note(result)


async def test_code_that_goes_on_after_a_forged_end_is_stopped_by_the_next_deadline(arena: Arena) -> None:
    first = await arena.attack(
        NONCE
        + """
end(b'{"status": "ok", "exit_code": 0}')
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass
"""
    )
    assert first.status == "ok"
    second = await arena.attack("6 * 7", session_id=first.session_id, timeout=0.5)
    assert (second.status, second.session_state) == ("timeout", "fresh")
    assert (await execute(arena.service, "6 * 7", session_id=first.session_id)).result == "42"


SPIN = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass
"""
GOES_ON = {
    "forged": NONCE + 'end(b\'{"status": "ok", "exit_code": 0}\')' + SPIN,
    "child": "import subprocess, sys\n"
    "subprocess.Popen([sys.executable, '-c', 'while True: pass'], start_new_session=True)",
}


@pytest.mark.parametrize("how", GOES_ON)
async def test_code_that_keeps_running_after_the_answer_is_ended_at_the_deadline(arena: Arena, how: str) -> None:
    used = arena.service.pool().leased
    first = await arena.attack(GOES_ON[how], timeout=1)
    assert (first.status, first.session_state) == ("ok", "kept"), first
    await ended_for_overtime(arena, first.session_id, used)


async def test_code_that_keeps_running_after_a_cancelled_run_is_ended_at_the_deadline(arena: Arena) -> None:
    stubborn = (
        NONCE
        + """
import signal
def answer(*_):
    end(b'{"status": "interrupted", "exit_code": 130}')
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True: pass
signal.signal(signal.SIGINT, answer)
print('ready', flush=True)
while True: pass
"""
    )
    used = arena.service.pool().leased
    session = (await arena.execute("1")).session_id
    with anyio.fail_after(20), anyio.CancelScope() as scope:

        async def cancel(_stream: str, _text: str) -> None:
            scope.cancel()

        await arena.execute(stubborn, session_id=session, timeout=1, on_output=cancel)
    await ended_for_overtime(arena, session, used)


async def ended_for_overtime(arena: Arena, session: str, used: int) -> None:
    """Waits until fewer than `used` sandboxes are leased, and checks that the session says why its sandbox was
    ended."""
    with anyio.fail_after(1 + ANSWER):
        await arena.service.pool_until(lambda pool: pool.leased < used)
    second = await arena.execute("6 * 7", session_id=session)
    assert (second.status, second.result) == ("ok", "42"), second
    assert (
        "started fresh: since an earlier run processes that it left running used the processor "
        "after the run's deadline; "
        "variables and files are lost"
    ) in second.notes


async def test_an_end_on_one_stream_only_does_not_end_the_run(arena: Arena) -> None:
    result = await arena.attack(NONCE + "os.write(1, frame(b'.', b'{}'))\nos.closerange(0, 4096)", timeout=2)
    assert result.status in ("error", "timeout"), result
    assert result.duration < 2 + ANSWER


@pytest.mark.parametrize("frame", ["frame(b'+')", "frame(b'+', b'x' * 4000)", "frame(b'+')[:-1]"])
async def test_endless_frames_neither_fill_nor_stop_the_server(arena: Arena, frame: str) -> None:
    result = await arena.attack(NONCE + f"block = {frame} * 500\nwhile True:\n    os.write(1, block)", timeout=20)
    assert result.status == "output_limit", result
    assert result.duration < ANSWER
