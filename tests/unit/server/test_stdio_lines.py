"""Lines on stdin: each message is one, and of one that is too long only its ends are kept, for the answer."""

import json
import os
from typing import Any

import anyio
import pytest

from llm_sandbox_mcp.server import stdio

pytestmark = pytest.mark.anyio

LONGEST, END = 64, 16


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_LONGEST", LONGEST)
    monkeypatch.setattr(stdio, "_END", END)
    monkeypatch.setattr(stdio, "_READ_SIZE", 8)


async def lines(sent: bytes) -> list[tuple[bytes, bool]]:
    """What is read of it, and whether only the ends are left."""
    outlet, inlet = os.pipe()
    try:
        os.write(inlet, sent)
        os.close(inlet)
        with anyio.fail_after(10):
            return [(line, isinstance(line, stdio._Ends)) async for line in stdio._lines(outlet)]
    finally:
        os.close(outlet)


async def test_lines_are_read_one_by_one_and_a_rest_without_an_end_is_none() -> None:
    assert await lines(b"one\n\ntwo and more than a piece\nrest") == [
        (b"one", False),
        (b"", False),
        (b"two and more than a piece", False),
    ]


async def test_a_line_of_the_greatest_length_is_whole_and_of_a_longer_one_the_ends_are_left() -> None:
    longest = b"a" * LONGEST
    longer = b"a" * 40 + b"b" * 100 + b"c" * 40
    assert await lines(longest + b"\nnext\n") == [(longest, False), (b"next", False)]
    [(left, cut), after] = await lines(longer + b"\nnext\n")
    assert cut and after == (b"next", False)
    assert left.startswith(b"a" * END) and left.endswith(b"c" * END)
    assert len(left) <= 3 * END + 8


@pytest.mark.parametrize("request_id", [7, "a-b.c:1"])
@pytest.mark.parametrize("first", [True, False])
def test_the_id_of_a_message_is_found_at_either_end(request_id: int | str, first: bool) -> None:
    content: dict[str, Any] = {"method": "x", "params": {"id": 8}}
    ends = {"jsonrpc": "2.0", "id": request_id}
    whole = json.dumps({**ends, **content} if first else {**content, **ends}).encode()
    assert stdio._id(whole) == request_id
    assert stdio._id(whole[: len(whole) - 1] if first else whole[1:]) == request_id
    assert stdio._id(b'{"method": "x", "params": {"id": 8}, "y": 1}') is None
