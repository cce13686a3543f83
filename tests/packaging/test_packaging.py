"""Wheel, sdist and editable install: each, built from this checkout and installed alone, runs code."""

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).parents[2]
LIMIT = 120.0
pytestmark = pytest.mark.timeout(600)


def run(*argv: str | Path, cwd: Path, **environment: str) -> str:
    # Without PYTHONPATH, and in a separate folder: the checkout must not be found by accident.
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(cwd)} | environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.iterdir()
    return built


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of a new environment that has the libraries of this one, but not this package."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
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


@pytest.mark.usefixtures("embedded")
def test_the_sdist_runs_code(sdist: Path, python: Path, tmp_path: Path) -> None:
    install(python, sdist)
    check_it_runs(python, tmp_path, home=python.parents[1])


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


def test_the_sdist_has_what_tests_need(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "tests/data/penguins.csv",
        "handlers/README.md",
        "configs/default.toml",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE",
    } <= names
