"""Messages over the process's own stdin and stdout, without threads.

A thread that reads stdin cannot be stopped, so a process that is asked to end would wait for its client's next line.
"""

import fcntl
import itertools
import json
import os
import re
import select
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial

import anyio
import anyio.lowlevel
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    jsonrpc_message_adapter,
)

from ..aio.fds import readable, writable
from ..base.text import parsed_json
from ..base.units import format_size

_READ_SIZE = 1 << 16
_LONGEST = 16 << 20
"""Bytes of one message; of a longer message only the two ends are kept, to find its id for the answer."""
_END = 4096
_NUMBER = rb'"id"\s*:\s*(\d{1,15}|"[\w.:-]{1,100}")'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_FIRST = re.compile(rb"\s*\{\s*(?:%b\s*,\s*)?%b" % (_VERSION, _NUMBER))
_LAST = re.compile(rb"%b\s*(?:,\s*%b\s*)?\}\s*$" % (_NUMBER, _VERSION))
"""Where clients put the id of a request: before the rest of its content, or after it."""
_TOO_LONG = f"a message may have {format_size(_LONGEST)} at most; send less at once, such as files in parts"
_MALFORMED = "the message is not JSON-RPC 2.0; send valid JSON"
_TYPED = "ignored, as it is not a message of MCP (JSON-RPC 2.0, one message per line); Ctrl-C ends the server\n"
"""For a person who types; nobody reads what is said to a client that sends such lines."""
_WRITE_SIZE = 4096
"""A pipe that is ready takes this much without blocking (PIPE_BUF)."""
_TURN = 16
"""Such parts that are written until other tasks have their turn."""

_UNREAD = 64
"""Answers that may wait for the client to read them; at this number, no more requests of the client are read."""

_LAST_ANSWERS = 5.0
"""Seconds to send the remaining answers after the input has ended."""

Incoming = ObjectReceiveStream[SessionMessage | Exception]
Outgoing = ObjectSendStream[SessionMessage]


@asynccontextmanager
async def stdio_streams() -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Messages that come in on stdin and go out on stdout; the incoming ones end with the input.

    Until the block ends, descriptor 0 is empty and descriptor 1 is stderr, so that nothing else reads or writes between
    messages.
    """
    in_send, in_receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    out_send, out_receive = anyio.create_memory_object_stream[SessionMessage](0)

    written = anyio.Event()
    progress = anyio.Event()

    parse = partial(jsonrpc_message_adapter.validate_json, by_name=False)

    async def read() -> None:
        async with in_send:
            async for line in _lines(source):
                while out_send.statistics().tasks_waiting_send >= _UNREAD:
                    await progress.wait()
                if len(line) > _LONGEST or isinstance(line, _Ends):
                    await out_send.send(_refusal(_id(line), INVALID_REQUEST, _TOO_LONG))
                    continue
                try:
                    message = parsed_json(line, parse)
                except ValueError as error:
                    # The package does not answer such a message, and its sender would wait forever.
                    if (request_id := _id(line)) is not None:
                        await out_send.send(_refusal(request_id, PARSE_ERROR, _MALFORMED))
                    elif os.isatty(source) and line.strip():
                        sys.stderr.write(_TYPED)
                    await in_send.send(error)
                else:
                    await in_send.send(SessionMessage(message))

    async def write() -> None:
        nonlocal progress
        with out_receive:  # once this task has ended, tasks that still send must not wait for it
            async for message in out_receive:
                progress.set()
                progress = anyio.Event()
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await _write(sink, text.encode() + b"\n")
        written.set()

    with ExitStack() as claimed:
        source = claimed.enter_context(_claim(0, lambda: os.open(os.devnull, os.O_RDONLY)))
        sink = claimed.enter_context(_claim(1, lambda: os.dup(2)))
        async with in_send, in_receive, out_send, out_receive, anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            yield in_receive, out_send
            out_send.close()
            with anyio.move_on_after(_LAST_ANSWERS):
                await written.wait()
            tasks.cancel_scope.cancel()


@contextmanager
def _claim(fd: int, substitute: Callable[[], int]) -> Iterator[int]:
    private = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        replacement = substitute()
        os.dup2(replacement, fd)
        os.close(replacement)
        yield private
        os.dup2(private, fd)
    finally:
        os.close(private)


class _Ends(bytes):
    """What is left of a line that is too long."""


async def _lines(fd: int) -> AsyncIterator[bytes]:
    pending, cut = bytearray(), False
    while True:
        await readable(fd)
        data = os.read(fd, _READ_SIZE)
        *lines, rest = data.split(b"\n")
        for line in lines:
            pending += line
            yield _Ends(pending) if cut else bytes(pending)
            pending.clear()
            cut = False
        pending += rest
        if len(pending) > (3 * _END if cut else _LONGEST):
            cut = True
            del pending[_END:-_END]
        if not data:
            return


def _id(line: bytes) -> int | str | None:
    """The id of a message that cannot be read completely; None if the id cannot be found."""
    found = _FIRST.match(line) or _LAST.search(line)
    return json.loads(found[1]) if found else None


def _refusal(request_id: int | str | None, code: int, text: str) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=text)))


async def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    room = select.poll()
    room.register(fd, select.POLLOUT)
    for number in itertools.count(1):
        # As a rule there is room, and to be told so by the event loop takes longer than to write.
        if number % _TURN == 0 or not room.poll(0):
            await writable(fd)
        try:
            view = view[os.write(fd, view[:_WRITE_SIZE]) :]
        except (BrokenPipeError, ConnectionResetError):  # the client is gone, and the end of the input follows
            return
        if not view:
            return
