"""Wheel, sdist and editable install: built from this checkout and installed alone, wheel and editable install run code;
the wheel that is built from the sdist is the same."""

import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

from .building import LIMIT, ROOT, run

pytestmark = pytest.mark.timeout(2 * LIMIT)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of a new environment that has the libraries of this one, but not this package."""
    # uv makes it in a twentieth of the time that the module venv takes.
    run(find_uv_bin(), "venv", "--offline", "--no-config", "--python", sys.executable, tmp_path / "venv", cwd=tmp_path)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    # Python searches the folder that a .pth file names, but ignores .pth files in it: editable installs have no effect.
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib"))
    return tmp_path / "venv" / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    options = ("--no-deps", "--no-build-isolation", "--offline", "--no-config", "--reinstall", "--no-cache")
    run(find_uv_bin(), "pip", "install", *options, "--python", python, *what, cwd=python.parent)


def check_it_runs(python: Path, tmp_path: Path, *, home: Path) -> None:
    where = run(python, "-c", "import llm_sandbox_mcp; print(llm_sandbox_mcp.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(home)
    script = python.with_name("llm-sandbox-mcp")
    assert run(script, "run", "--language", "bash", "-c", "echo $((6 * 7))", cwd=tmp_path) == "42\n"
    assert "strict: valid" in run(script, "profile", "check", "strict", cwd=tmp_path)
    assert str(script) in run(script, "client-config", "cursor", cwd=tmp_path)


@pytest.mark.usefixtures("embedded")
def test_the_wheel_runs_code(wheel: Path, python: Path, tmp_path: Path) -> None:
    install(python, wheel)
    check_it_runs(python, tmp_path, home=python.parents[1])


def test_the_sdist_is_built_into_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    options = ("--no-build-isolation", "--offline", "--no-config", "--no-cache", "--python", sys.executable)
    run(find_uv_bin(), "build", "--wheel", *options, "--out-dir", tmp_path / "built", sdist, cwd=tmp_path)
    (built,) = (tmp_path / "built").glob("*.whl")
    assert built.name == wheel.name
    assert content(built) == content(wheel)


@pytest.mark.usefixtures("embedded")
def test_an_editable_install_runs_code_of_the_checkout(python: Path, tmp_path: Path) -> None:
    install(python, "--editable", ROOT)
    check_it_runs(python, tmp_path, home=ROOT)


def test_the_wheel_has_every_handler_and_profile_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for folder in ("handlers", "configs"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"llm_sandbox_mcp/{path.relative_to(ROOT)}" in names
    assert {name.partition("/")[0] for name in names} == {"llm_sandbox_mcp", "llm_sandbox_mcp-0.1.0.dist-info"}


def content(wheel: Path) -> dict[str, tuple[bytes, int]]:
    """Each file of a wheel, with its permissions."""
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: (archive.read(info), info.external_attr >> 16) for info in archive.infolist()}


@pytest.fixture
def unpacked(sdist: Path, tmp_path: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    return folder


def test_the_sdist_has_every_file_that_the_commands_of_the_readme_use(unpacked: Path) -> None:
    folders = ("llm_sandbox_mcp", "handlers", "configs", "tests", "docs")
    files = {path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()}
    files |= {
        Path(name)
        for name in (
            *(".dockerignore", "Makefile", "LICENSE", "pyproject.toml"),
            *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
        )
    }
    wanted = {path for path in files if path.suffix != ".pyc"}
    assert [str(path) for path in wanted if not (unpacked / path).is_file()] == []


@pytest.mark.parametrize(
    ("target", "command"),
    [("run", "tests.demo"), ("test", "tests.stage sandbox"), ("dist", "configs/publish/build.py")],
)
def test_make_knows_its_targets_in_the_sdist(target: str, command: str, unpacked: Path) -> None:
    assert command in run("make", "--dry-run", target, cwd=unpacked)


@pytest.mark.only_in_all
@pytest.mark.usefixtures("embedded")
def test_the_demo_runs_in_the_sdist(unpacked: Path) -> None:
    shown = run(sys.executable, "-m", "tests.demo", cwd=unpacked, PYTHONPATH=str(unpacked), HOME=str(Path.home()))
    assert "333 complete rows of 3 species" in shown
    assert (unpacked / "out/penguins.png").is_file()
