"""The rules for a token file; an error never shows the token."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.base.errors import ProfileError
from llm_sandbox_mcp.server.access import read_token

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


MISTAKES = {
    b"": "is empty",
    b" \n": "is empty",
    b"fifteen-letters\n": "must have at least 16 characters, not 15",
    b"two words that are long enough": "must contain one word",
    b"a line\nand another one": "must contain one word",
    b"0123456789abcdef\x00": "must contain one word",
    "0123456789abcdef\N{EURO SIGN}".encode(): "must contain one word",
    b"\xff" * 32: "must contain one word",
}


@pytest.mark.parametrize(("content", "reason"), MISTAKES.items())
async def test_a_file_without_a_usable_token_is_reported(content: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ProfileError) as raised:
        await read_token(str(file))
    message = str(raised.value)
    assert message.startswith("http.token_file: ")
    assert str(file) in message
    assert reason in message
    assert message.endswith("; create one, for example with `openssl rand -hex 32`")
    assert not content.strip() or content.strip().decode("latin-1") not in message


@pytest.mark.parametrize(("name", "reason"), [("missing", "No such file"), ("", "Is a directory")])
async def test_a_file_that_cannot_be_read_is_reported(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=f"http.token_file: .* cannot be read: {reason}.*; create one"):
        await read_token(str(tmp_path / name))


async def test_the_line_end_is_not_part_of_the_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"0123456789abcdef\r\n")
    assert await read_token(str(tmp_path / "token")) == "0123456789abcdef"
