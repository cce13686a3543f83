"""Ctrl-C in the middle of a stage: one line says how far the tests were, and nothing is left."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import ROOT

from .test_stage import PASSES, environment, prepare, stage_of

pytestmark = pytest.mark.only_in_all

BEGUN = """
import os
def begun():
    with open({fifo!r}, "w") as fifo: print(os.getpid(), file=fifo)
"""
WAITS = """
import signal
def test_waits():
    begun()
    signal.pause()
"""
RUNS = f"""
import pytest
from llm_sandbox_mcp import Sandboxes, load_profile
from pathlib import Path

@pytest.mark.anyio
async def test_waits():
    async with Sandboxes(load_profile({str(ROOT / "configs/default.toml")!r})) as sandboxes, sandboxes.session() as session:
        async for _ in session.stream("print(1, flush=True)\\nwhile True: pass"):
            begun()
"""


@pytest.mark.usefixtures("embedded")
@pytest.mark.parametrize("text", [WAITS, RUNS], ids=["test", "sandbox"])
def test_an_interrupted_stage_ends_with_one_line_and_its_tests(tmp_path: Path, text: str) -> None:
    fifo = tmp_path / "begun"
    os.mkfifo(fifo)
    prepare(tmp_path, PASSES, BEGUN.format(fifo=str(fifo)) + text)
    with subprocess.Popen(
        stage_of("--workers", "1"),
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    ) as stage:
        pid = int(fifo.read_text())
        os.killpg(stage.pid, signal.SIGINT)  # what a terminal does
        output, _ = stage.communicate(timeout=100)
    assert stage.returncode == 130, output
    assert not Path(f"/proc/{pid}").exists()
    *_, last = lines = [line for line in output.splitlines() if line.startswith("=== ")]
    assert lines == [last] and output.endswith(f"{last}\n")
    assert last.startswith("=== sandbox: interrupted after ")
    assert last.endswith(" s; 1 tests passed or were skipped, running: test_1.py::test_waits")
    assert "Error" not in output and "Warning" not in output and "Interrupt" not in output, output
    assert not [*tmp_path.glob("t-*")]
