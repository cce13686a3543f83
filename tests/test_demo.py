"""The demo of `make run`."""

import subprocess
import sys
from pathlib import Path

import pytest

from .cli.command import LIMIT, environment


@pytest.mark.usefixtures("embedded")
def test_the_demo_analyses_the_table_in_three_languages_and_writes_the_figure(tmp_path: Path) -> None:
    demo = [sys.executable, "-m", "tests.demo"]
    done = subprocess.run(
        demo, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done
    for found in ("333 complete rows of 3 species", "Biscoe 6300 g", "Adelie 152, Chinstrap 68, Gentoo 124"):
        assert found in done.stdout
    assert (tmp_path / "out" / "penguins.png").read_bytes().startswith(b"\x89PNG")
