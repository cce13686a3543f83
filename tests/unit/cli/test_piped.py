"""What is read of standard input without waiting for it: a file or a pipe that is complete, and it stays there."""

import fcntl
import os
import pty
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_sandbox_mcp.base.errors import InvalidArgument
from llm_sandbox_mcp.cli.piped import piped

Use = Callable[[int], int]


@pytest.fixture
def use() -> Iterator[Use]:
    """Makes a descriptor the standard input of this process until the test ends."""
    own = os.dup(0)
    yield lambda descriptor: os.dup2(descriptor, 0)
    os.dup2(own, 0)
    os.close(own)


def test_the_rest_of_a_file_is_read_and_stays(tmp_path: Path, use: Use) -> None:
    (tmp_path / "a").write_bytes(b"first\nrest\n")
    with (tmp_path / "a").open("rb", buffering=0) as file:
        use(file.fileno())
        assert os.read(0, 6) == b"first\n"
        assert piped() == piped() == b"rest\n"
        assert os.read(0, 100) == b"rest\n"


@pytest.mark.parametrize("size", [0, 1, 1 << 16, 1 << 17])
def test_a_pipe_whose_writer_has_ended_is_read_and_stays(use: Use, size: int) -> None:
    ours, theirs = os.pipe()
    if size > 1 << 16:
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, size)
    text = bytes(index % 251 for index in range(size))
    assert os.write(theirs, text) == size
    os.close(theirs)
    use(ours)
    os.close(ours)
    assert piped() == piped() == text
    assert os.read(0, size + 1) == text


def test_a_pipe_that_may_get_more_is_not_waited_for(use: Use) -> None:
    ours, theirs = os.pipe()
    use(ours)
    os.close(ours)
    assert piped() == b""
    os.write(theirs, b"1")
    with pytest.raises(InvalidArgument, match="its end is not here yet; give --stdin - to wait for it"):
        piped()
    os.close(theirs)
    assert piped() == b"1"


def test_a_file_that_is_open_only_for_writing_is_no_input(tmp_path: Path, use: Use) -> None:
    with (tmp_path / "a").open("wb") as file:
        use(file.fileno())
        assert piped() == b""


def test_other_inputs_are_not_read(use: Use) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"typed\n")
    use(theirs)
    assert piped() == b""
    os.close(0)
    assert piped() == b""
    use(ours)
    os.close(ours)
    os.close(theirs)
