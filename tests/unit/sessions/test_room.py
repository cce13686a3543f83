"""How many sandboxes a machine has room for."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.room import memory, open_files, processes


@pytest.fixture
def soft() -> Iterator[int]:
    """The limit of open files, which is restored after the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_lower_limit_of_open_files_gives_room_for_fewer_sandboxes(soft: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    few = open_files()
    assert (few.of, few.sandboxes, few.step) == ("open files", 12, f"ulimit -n {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, hard))
    assert open_files().sandboxes == 0


def test_the_room_for_processes_and_memory_is_that_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/pid_max").write_text("32768\n")
    (tmp_path / "sys/kernel/threads-max").write_text("1600\n")
    (tmp_path / "meminfo").write_text("MemTotal:        1048576 kB\nMemFree: 1 kB\n")
    assert processes(tmp_path).sandboxes == 100
    assert memory(tmp_path).sandboxes == 32
