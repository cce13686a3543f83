"""The instructions of `docs/pages/another-engine.md`."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from llm_sandbox_mcp.backends import GROUP
from tests.test_readme import block

from .conftest import NOT_KEPT
from .installed import install


def test_an_author_names_a_backend_and_runs_the_suite(tmp_path: Path) -> None:
    entries = tomllib.loads(block("toml", GROUP))["project"]["entry-points"][GROUP]
    ((name, module),) = entries.items()
    install(tmp_path, name, module)
    (tmp_path / "test_mine.py").write_text(block("python", "backend_name"))
    kept = " and ".join(f"not {test}" for test in NOT_KEPT)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", kept, "test_mine.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
