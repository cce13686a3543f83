"""How many sandboxes and clients fit on a machine, by its limits."""

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.room import Room, connections, memory, open_files, processes


@pytest.fixture
def limit() -> Iterator[Callable[[int, int], None]]:
    """Lowers a soft limit of this process until the end of the test."""
    before: dict[int, tuple[int, int]] = {}

    def lower(what: int, value: int) -> None:
        before.setdefault(what, resource.getrlimit(what))
        resource.setrlimit(what, (value, before[what][1]))

    yield lower
    for what, values in before.items():
        resource.setrlimit(what, values)


@pytest.mark.parametrize(
    ("files", "clients", "sandboxes"),
    # A server without sandboxes has 32 open files; each client takes one, each sandbox 16.
    [(128, 32, 4), (79 + 64, 32, 4), (80 + 64, 32, 5), (263, 32, 12), (264, 33, 12), (1024, 128, 54)],
)
def test_open_files_are_enough_for_the_server_its_clients_and_its_sandboxes(
    limit: Callable[[int, int], None], files: int, clients: int, sandboxes: int
) -> None:
    limit(resource.RLIMIT_NOFILE, files)
    assert connections() == clients
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert open_files() == Room("open files", sandboxes, f"ulimit -n {hard}")
    assert open_files(1).sandboxes == files - 32 - clients
    assert open_files(files).sandboxes == 0


@pytest.mark.parametrize(("pids", "threads", "sandboxes"), [(32768, 1600, 100), (1599, 99999, 99), (15, 15, 0)])
def test_each_sandbox_takes_sixteen_of_the_kernels_processes(
    tmp_path: Path, pids: int, threads: int, sandboxes: int
) -> None:
    if os.geteuid() != 0:
        pytest.skip("the limit of this user may be lower than these")
    kernel = tmp_path / "sys" / "kernel"
    kernel.mkdir(parents=True)
    (kernel / "pid_max").write_text(f"{pids}\n")
    (kernel / "threads-max").write_text(f"{threads}\n")
    room = processes(tmp_path)
    assert (room.of, room.sandboxes) == ("processes", sandboxes)
    assert "kernel.pid_max" in room.step


def test_each_sandbox_takes_some_memory(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemFree: 5 kB\nMemTotal:      1048576 kB\n")
    assert memory(tmp_path).sandboxes == 32
