"""A real server process on stdin and stdout: whatever ends it, it ends soon and leaves nothing behind."""

import fcntl
import json
import os
import select
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.broken_text import CUT, ENCODED, NOTE, PRINTED
from tests.effort import EFFORT

from .processes import gone, watch_children
from .talking import SERVE, server
from .wire import CLIENT, message

pytestmark = pytest.mark.anyio

SOON = 20.0
"""Seconds. Usually it takes one; something that never ends by itself would take longer."""
LONG = "x" * 10_000
MANY = 500
"""Requests with a text of this length: many more than fit into pipes."""
STUCK = 2.0
"""Seconds after which a request that could not be sent counts as not accepted."""


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(60):
        yield


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_server_in_the_middle_of_a_run(number: signal.Signals) -> None:
    async with server() as talk:
        await talk.start_endless_run()
        with watch_children(talk.process.pid) as watched, anyio.fail_after(SOON):
            talk.process.send_signal(number)
            assert await talk.process.wait() == 0
            await gone(watched)


async def test_the_end_of_the_input_ends_the_server_in_the_middle_of_a_run() -> None:
    async with server() as talk:
        await talk.start_endless_run()
        with watch_children(talk.process.pid) as watched, anyio.fail_after(SOON):
            await talk.hang_up()
            assert await talk.process.wait() == 0
            await gone(watched)


@pytest.mark.parametrize("_time", range(EFFORT * EFFORT))
async def test_a_server_that_is_killed_leaves_no_process(_time: int) -> None:
    async with server() as talk:
        await talk.start_endless_run()
        with watch_children(talk.process.pid) as watched, anyio.fail_after(SOON):
            talk.process.kill()
            await talk.process.wait()
            await gone(watched)


async def test_a_client_that_stopped_reading_does_not_keep_the_server_from_ending() -> None:
    async with server() as talk:
        await talk.send(message("initialize", CLIENT, 1))
        await talk.receive()
        for number in range(2, 400):
            await talk.send(message("tools/list", number=number))
        with anyio.fail_after(SOON):
            talk.process.terminate()
            assert await talk.process.wait() == 0


async def test_requests_are_not_accepted_while_the_client_does_not_read_answers() -> None:
    """Otherwise unread answers would fill the memory of the server."""
    async with server() as talk:
        await talk.send(message("initialize", CLIENT, 1))
        await talk.receive()
        for number in range(2, MANY):
            with anyio.move_on_after(STUCK) as stuck:
                await talk.send(message("tools/list", {"_meta": {"long": LONG}}, number))
            if stuck.cancelled_caught:
                break
        assert number < MANY - 1
        # The request that was not accepted at first is sent, too.
        assert {(await talk.receive())["id"] for _ in range(2, number + 1)} == {*range(2, number + 1)}


async def test_lines_that_are_not_json_rpc_change_nothing() -> None:
    async with server() as talk:
        await talk.send(b"\n{\n\xff\xfe\0\n[]\n" + message("initialize", CLIENT, 1))
        assert (await talk.receive())["id"] == 1
        await talk.hang_up()
        assert await talk.process.wait() == 0


MALFORMED = {
    "no end": '{"jsonrpc": "2.0", "id": 7, "method": "tools/list"',
    "no end of a string, id last": '{"method": "tools/list, "params": {"id": 1}, "jsonrpc": "2.0", "id": 7}',
    "no end and a lone surrogate": r'{"jsonrpc": "2.0", "id": 7, "method": "tools/list\ud800"',
    "too deep": '{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": ' + '{"a": ' * 5000 + "1" + "}" * 5001,
}


async def test_a_request_that_cannot_be_read_is_answered() -> None:
    async with server() as talk:
        await talk.send(message("initialize", CLIENT, 1))
        await talk.receive()
        for name, line in MALFORMED.items():
            await talk.send(line.encode() + b"\n" + message("tools/list", number=8))
            refused = await talk.receive()
            assert (refused["id"], refused["error"]["code"]) == (7, -32700), (name, refused)
            assert (await talk.receive())["id"] == 8, name


async def test_code_with_half_an_emoji_runs() -> None:
    async with server() as talk:
        await talk.send(message("initialize", CLIENT, 1))
        await talk.receive()
        for name, half in ENCODED.items():
            call = message("tools/call", {"name": "execute_code", "arguments": {"code": CUT.format("<half>")}}, 2)
            await talk.send(call.replace(b"<half>", half))
            ran = (await talk.receive())["result"]["structuredContent"]
            assert (ran["stdout"], ran["notes"]) == (PRINTED, [NOTE]), name


async def test_a_message_larger_than_a_pipe_goes_both_ways() -> None:
    async with server() as talk:
        await talk.send(message("initialize", CLIENT, 1))
        await talk.receive()
        await talk.send(message("notifications/initialized"))
        name = "x" * 300_000
        await talk.send(message("resources/read", {"uri": f"sandbox://languages/{name}"}, 2))
        assert (await talk.receive())["error"]["code"] == -32602
        await talk.send(message("tools/call", {"name": "execute_code", "arguments": {"code": "1", name: 1}}, 3))
        assert (await talk.receive())["result"]["isError"]


async def test_a_client_that_never_reads_the_log_gets_its_answers_and_the_end(tmp_path: Path) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text("[languages.python]\ndeny = ['idna']\n")
    outlet, inlet = os.pipe()
    fcntl.fcntl(inlet, fcntl.F_SETPIPE_SZ, 16 << 10)
    try:
        async with server("--profile", str(profile), stderr=inlet) as talk:
            await talk.send(message("initialize", CLIENT, 1))
            await talk.receive()
            await talk.send(message("notifications/initialized"))
            for number in range(2, 2 + 250):  # each refusal is a line for the operator
                call = {"name": "install_libraries", "arguments": {"libraries": ["idna"]}}
                await talk.send(message("tools/call", call, number))
                received = await talk.receive()
                assert received["result"]["isError"]
                assert "is denied by the profile" in received["result"]["content"][0]["text"]
            assert not select.select([], [inlet], [], 0)[1]  # the pipe is full
            with anyio.fail_after(SOON):
                await talk.hang_up()
                assert await talk.process.wait() == 0
    finally:
        os.close(inlet)
        os.close(outlet)


def peak(pid: int) -> int:
    """The peak memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError


HUGE = 50_000_000


async def test_a_message_without_an_end_is_refused_by_its_id_and_not_kept() -> None:
    async with server() as talk:
        await talk.send(message("initialize", CLIENT, 1))
        await talk.receive()
        await talk.send(message("notifications/initialized"))
        before = peak(talk.process.pid)
        arguments = {"name": "execute_code", "arguments": {"code": "#" * HUGE}}
        body = {"jsonrpc": "2.0", "method": "tools/call", "params": arguments}
        for fields in ({**body, "id": 7}, {"jsonrpc": "2.0", "id": 7, **body}):
            await talk.send(json.dumps(fields).encode() + b"\n")
            refused = await talk.receive()
            assert (refused["id"], refused["error"]["code"]) == (7, -32600), list(fields)
            assert "16MiB at most; send less" in refused["error"]["message"]
        assert peak(talk.process.pid) - before < HUGE
        await talk.send(b"x" * HUGE + b"\n" + message("tools/list", number=8))
        assert (await talk.receive())["id"] is None
        assert (await talk.receive())["id"] == 8


@pytest.mark.parametrize("source", [os.devnull, "file"])
async def test_input_that_is_not_a_pipe_is_read_until_eof(source: str, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(message("initialize", CLIENT, 1))
    async with await anyio.open_file(os.devnull if source == os.devnull else path, "rb") as given:
        done = await anyio.run_process(SERVE, stdin=given.wrapped, stderr=subprocess.DEVNULL)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ([] if source == os.devnull else [1])
