"""How a profile names a backend from another package, and the errors when something is wrong with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llm_sandbox_mcp.base.errors import MissingPackage, ProfileError
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.testing.profiles import surroundings
from llm_sandbox_mcp.wiring import open_backend

from .installed import install


def test_its_own_settings_are_read_and_checked(tmp_path: Path) -> None:
    profile = load_profile(over={"backend": {"name": "plain"}, "plain": {"umask": 0o077}})
    assert [*profile.engines] == ["plain"]
    assert open_backend(profile, surroundings(tmp_path)).name == "plain"
    file = tmp_path / "own.toml"
    for text, message in (
        ("mask = 1", r"plain\.mask: unknown key"),
        ('umask = "x"', r"plain\.umask: must be a whole number without quotes"),
    ):
        file.write_text(f'[backend]\nname = "plain"\n[plain]\n{text}\n')
        with pytest.raises(ProfileError, match=rf"own\.toml: {message}"):
            load_profile(str(file))


def test_an_unknown_name_is_refused_with_the_list_of_backends() -> None:
    with pytest.raises(
        ProfileError, match=r"backend\.name: .*'plane'; available: auto, embedded, .*, plain; did you mean 'plain'"
    ):
        load_profile(over={"backend": {"name": "plane"}})


def test_a_table_that_belongs_to_no_backend_is_refused() -> None:
    with pytest.raises(ProfileError, match="plane: unknown key"):
        load_profile(over={"backend": {"name": "plain"}, "plane": {}})


def test_a_backend_cannot_use_a_table_that_is_not_about_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "greedy", "greedy_backend")
    module = tmp_path / "greedy_backend.py"
    module.write_text(module.read_text().replace("plain: Plain", "limits: Plain"))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ProfileError, match=r"backend\.name: greedy defines the table \[limits\], which is reserved"):
        load_profile(over={"backend": {"name": "greedy"}})


def test_a_backend_whose_package_is_missing_is_refused_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "other-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[llm_sandbox_mcp.backends]\nother = other_backend\n")
    (tmp_path / "other_backend.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingPackage, match="other needs the package nowhere_to_be_found; run: pip install"):
        load_profile(over={"backend": {"name": "other"}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "raise RuntimeError('no\\nluck')",
            r"odd_backend cannot be imported: RuntimeError: no\\nluck; update its package",
        ),
        ("def (", r"odd_backend cannot be imported: SyntaxError: .*; update its package"),
        ("def create(): ...", "odd_backend has no valid Settings or create; update its package"),
        ("Settings = int\ndef create(): ...", "odd_backend has no valid Settings or create; update its package"),
    ],
)
def test_a_module_that_is_not_a_backend_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    install(tmp_path, "odd", "odd_backend")
    (tmp_path / "odd_backend.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd_backend", raising=False)
    with pytest.raises(ProfileError, match=f"backend.name: {message}") as raised:
        load_profile(over={"backend": {"name": "odd"}})
    assert "\n" not in str(raised.value)


def test_the_command_line_runs_code_on_it(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    install(packages)
    profile = tmp_path / "profile.toml"
    profile.write_text(
        f'[backend]\nname = "plain"\n[server]\nruntime = "{tmp_path}/runtime"\ncache = "{tmp_path}/cache"\n'
        "[languages.python]\nlibraries = []\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), *sys.path])}
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "llm_sandbox_mcp",
            "run",
            "--profile",
            str(profile),
            "--language",
            "bash",
            "-c",
            "echo $((6 * 7))",
        ],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.stdout, ran.returncode) == ("42\n", 0), ran
