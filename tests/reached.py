"""For each limit of a run: Python code that reaches it, and the note that the caller gets, over every interface."""

from dataclasses import dataclass
from typing import get_args

from llm_sandbox_mcp.base.results import Status

PROFILE = """
[limits]
memory = "128MiB"
cpus = 1.0
pids = 32
disk = "8MiB"
files = 100
file_size = "3MiB"
timeout = "1m"
cpu_time = "500ms"
output = "1MiB"
"""
"""Low limits, which code reaches quickly."""


@dataclass(frozen=True)
class Reached:
    """Code that reaches a limit, and the note about it."""

    code: str
    note: str
    timeout: float = 30.0


LIMITS: dict[Status, Reached] = {
    "timeout": Reached(
        "import time\ntime.sleep(100)",
        "stopped after 500ms; give a larger timeout_seconds or do less per call",
        0.5,
    ),
    "cpu_limit": Reached(
        "while True: pass",
        "stopped after 500ms of processor time, counted over all processes; do less per call",
    ),
    "out_of_memory": Reached(
        "held = []\nwhile True: held.append(bytearray(1 << 20))",
        "the memory limit of 128MiB was reached; use less data at once",
    ),
    "process_limit": Reached(
        "import subprocess\nwhile True: subprocess.Popen(['sleep', '100'])",
        "the limit of 32 processes and threads was reached, so starting more was refused; "
        "start fewer, or end some first",
    ),
    "disk_limit": Reached(
        "import itertools\nfor number in itertools.count(): open(f'.{number}', 'wb').write(bytes(1 << 20))",
        "the disk limit of 8MiB was reached; delete files or write less",
    ),
    "inode_limit": Reached(
        "for number in range(200): open(f'.{number}', 'w').close()\n1 / 0",
        "the limit of 100 files and folders was reached; delete some or make fewer",
    ),
    "file_limit": Reached(
        "open('.large', 'wb').write(bytes(5 << 20))",
        "the limit of 3MiB for one file was reached; write less, or more than one file",
    ),
    "output_limit": Reached(
        "while True: print('x' * 1000)",
        "stopped after printing 1MiB; write to a file instead",
    ),
}

assert {*LIMITS} == {*get_args(Status)} - {"ok", "error", "cancelled"}
