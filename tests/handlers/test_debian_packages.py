"""C++'s `install.py` takes packages of the sandbox's own system, which must be in the Debian family."""

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from llm_sandbox_mcp.host.folders import HANDLERS

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_CODENAME=bookworm\n'
UBUNTU = "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\nUBUNTU_CODENAME=noble\n"
MINT = 'ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n'
FEDORA = 'PRETTY_NAME="Fedora Linux 42"\nID=fedora\nVERSION_CODENAME=""\n'


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with a file of the test as the system's `/etc/os-release`."""
    if shutil.which("dpkg") is None:
        pytest.skip("needs dpkg")
    monkeypatch.setenv("SANDBOX_LIBRARIES", str(tmp_path))
    spec = importlib.util.spec_from_file_location("install", HANDLERS / "cpp/install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SYSTEM", tmp_path / "os-release")
    return module


@pytest.mark.parametrize(
    ("system", "places"),
    [
        (DEBIAN, ["dists/bookworm/main"]),
        (UBUNTU, ["dists/noble/main", "dists/noble/universe"]),
        (MINT, ["dists/noble/main", "dists/noble/universe"]),
    ],
)
def test_packages_are_looked_up_in_the_lists_of_the_system(install: ModuleType, system: str, places: list[str]) -> None:
    install.SYSTEM.write_text(system)
    assert [path.partition("/binary-")[0] for path in install._lists()] == places


def test_a_system_of_another_family_is_refused_and_named(install: ModuleType) -> None:
    install.SYSTEM.write_text(FEDORA)
    with pytest.raises(install.Failure, match="Fedora Linux 42 is not of Debian's family"):
        install._lists()
