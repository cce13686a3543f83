"""The files that are copied to a folder which every sandbox sees."""

import marshal
from importlib.util import cache_from_source
from pathlib import Path

from llm_sandbox_mcp.backends.embedded.staging import write_stage
from llm_sandbox_mcp.host.folders import HANDLERS

UNCHECKED = 1
"""The flag of a compiled file that is not compared with its source."""


def test_modules_are_compiled_with_their_path_in_a_sandbox(tmp_path: Path) -> None:
    stage = write_stage(tmp_path / "stage", {"python": HANDLERS / "python"})
    modules = sorted(stage.handlers.rglob("lib/*.py"))
    assert modules
    for module in modules:
        compiled = Path(cache_from_source(str(module))).read_bytes()
        assert int.from_bytes(compiled[4:8], "little") == UNCHECKED
        assert marshal.loads(compiled[16:]).co_filename == f"/opt/handlers/{module.relative_to(stage.handlers)}"


def test_a_file_that_is_not_valid_python_is_copied_unchanged(tmp_path: Path) -> None:
    handler = tmp_path / "handler"
    handler.mkdir()
    handler.joinpath("old.py").write_text("print 'of another version'\n")
    handler.joinpath("odd.py").write_bytes(b"\xff\0\xff")
    stage = write_stage(tmp_path / "stage", {"old": handler})
    assert sorted(path.name for path in stage.handlers.rglob("*.py")) == ["odd.py", "old.py"]
    assert list(stage.handlers.rglob("*.pyc")) == []
