"""What a file has to hold to be a token, and that an error never shows it."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.errors import ProfileError
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
async def test_a_file_without_a_token_that_can_be_used_is_told(content: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ProfileError) as raised:
        await read_token(str(file))
    told = str(raised.value)
    assert told.startswith("http.token_file: ")
    assert str(file) in told
    assert reason in told
    assert told.endswith("; create one, for example with `openssl rand -hex 32`")
    assert not content.strip() or content.strip().decode("latin-1") not in told


@pytest.mark.parametrize(("name", "reason"), [("missing", "No such file"), ("", "Is a directory")])
async def test_a_file_that_cannot_be_read_is_told(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=f"http.token_file: .* cannot be read: {reason}.*; create one"):
        await read_token(str(tmp_path / name))


async def test_the_end_of_the_line_is_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"0123456789abcdef\r\n")
    assert await read_token(str(tmp_path / "token")) == "0123456789abcdef"
