"""Which servers are treated as gone."""

import subprocess
import sys
from pathlib import Path

from llm_sandbox_mcp.host.server_folder import is_alive, open_runtime, sweep


def test_a_server_is_alive_as_long_as_its_scope(tmp_path: Path) -> None:
    with open_runtime(tmp_path) as runtime:
        assert is_alive(tmp_path, runtime.server_id)
        assert sweep(tmp_path) == 0
        assert runtime.path.is_dir()
    assert not is_alive(tmp_path, runtime.server_id)
    assert list(tmp_path.iterdir()) == []


def test_a_server_with_another_root_is_never_treated_as_gone(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    with open_runtime(here), open_runtime(there) as other:
        assert is_alive(here, other.server_id)
        assert is_alive(there, other.server_id)


def test_a_server_that_was_killed_is_gone_and_swept(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib\nfrom llm_sandbox_mcp.host.server_folder import open_runtime\n"
        "with open_runtime(pathlib.Path(sys.argv[1])) as runtime:\n    print(runtime.server_id, flush=True)\n    os._exit(9)"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 9
    server = done.stdout.strip()
    assert (tmp_path / server).is_dir()
    assert not is_alive(tmp_path, server)
    assert sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_just_starting_is_left_alone(tmp_path: Path) -> None:
    with open_runtime(tmp_path) as runtime:
        starting = tmp_path / f".{runtime.server_id}"
        starting.mkdir()
        assert sweep(tmp_path) == 0
        assert starting.is_dir()
