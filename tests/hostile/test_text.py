"""Attack: output and code that are not valid text, and huge code. Outcome: invalid bytes are replaced and flagged, in
valid JSON; code that is too long is refused before anything starts."""

import json

import pytest

from llm_sandbox_mcp.base.errors import InvalidArgument
from llm_sandbox_mcp.server.answering import executed
from llm_sandbox_mcp.testing.asking import execute
from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

PRINTED = {
    "invalid UTF-8": (b"\xff\xfe\xc3(\xe2\x82", True),
    "surrogates": (b"\xed\xa0\x80\xed\xb0\x80", True),
    "overlong": (b"\xc0\xaf\xf0\x80\x80\xaf", True),
    "NUL": (b"a\0b\0", True),
    "other controls": (bytes(number for number in range(1, 32) if number != 0x1E), False),
}


@pytest.mark.parametrize(("data", "replaced"), PRINTED.values(), ids=PRINTED)
async def test_bytes_that_are_not_text_are_replaced_and_flagged(arena: Arena, data: bytes, replaced: bool) -> None:
    result = await arena.attack(f"import os\nfor stream in (1, 2): os.write(stream, {data!r})\nNone")
    assert result.status == "ok", result
    shown = json.loads(executed(result).model_dump_json().encode())
    for name, output in (("stdout", result.stdout), ("stderr", result.stderr)):
        assert output.text == data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        assert bool(output.replaced) == replaced
        assert shown[name] == output.text


CODE = ("print('a')\0", "print('\ud800')", "\ufeffprint('a')", "print('a')  # \u202e\u2066 )'b'(tnirp")


@pytest.mark.parametrize("language", ["python", "bash", "javascript"])
async def test_code_that_is_not_text_causes_at_most_an_error_of_its_own_run(arena: Arena, language: str) -> None:
    session = ""
    for code in CODE:
        result = await arena.attack(code, language=language, session_id=session)
        assert result.status in ("ok", "error") and result.session_state == "kept", (code, result)
        json.loads(executed(result).model_dump_json().encode())
        session = result.session_id


async def test_huge_code_is_refused_before_anything_starts(arena: Arena) -> None:
    before = [info.id for info in arena.service.sessions.list()]
    with pytest.raises(InvalidArgument, match=r"code .*(KiB|MiB)"):
        await execute(arena.service, "x" * 50_000_000)
    assert [info.id for info in arena.service.sessions.list()] == before
