"""The backend as a package that is installed next to ours."""

import shutil
from pathlib import Path

from llm_sandbox_mcp.backends import GROUP

_METADATA = "Metadata-Version: 2.1\nName: {name}-backend\nVersion: 1.0\n"


def install(folder: Path, name: str = "plain", module: str = "plain_backend") -> None:
    """Installs it into a folder as pip would, under a name; the folder must be where Python looks for packages."""
    file = folder / f"{module.replace('.', '/')}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("plain_backend.py"), file)
    information = folder / f"{name}_backend-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(_METADATA.format(name=name))
    (information / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {module}\n")
