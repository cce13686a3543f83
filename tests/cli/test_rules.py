"""The commands report languages whose code the rules cannot judge, before any code is run."""

import re
import shutil
from pathlib import Path

import pytest

from llm_sandbox_mcp.host.folders import HANDLERS

from .command import called, ran, refused


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile with rules and three own languages: no installed grammar, a mistake in the query, no `[grammar]`."""
    for name in ("ruby", "bash"):
        shutil.copytree(HANDLERS / name, tmp_path / "languages" / name)
    absent = tmp_path / "languages/ruby/handler.toml"
    absent.write_text(absent.read_text().replace('"tree_sitter_ruby"', '"tree_sitter_absent"'))
    with (tmp_path / "languages/bash/names.scm").open("a") as query:
        query.write("(no_such_node) @call\n")
    (tmp_path / "languages/bare").mkdir()
    (tmp_path / "languages/bare/handler.toml").write_text(
        'name = "bare"\ntitle = "Bare"\nextension = ".x"\nversion_command = ["sh", "-c", "echo 1"]\nstateful = true\n'
        '[runner]\nargv = ["sh"]\n'
    )
    path = tmp_path / "profile.toml"
    path.write_text(f"[handlers]\nfolders = ['{tmp_path}/languages']\n[rules]\npreset = 'minimal'\n")
    return path


@pytest.mark.usefixtures("embedded")
def test_doctor_names_languages_that_rules_refuse_completely_and_the_fix(profile: Path) -> None:
    done = ran("doctor", "--profile", str(profile))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(
        r"\nruby rules +missing +ruby is refused: rules apply to it, but its grammar is not installed\n", done.stdout
    )
    assert "\n  ruby rules: pip install tree-sitter-ruby\n" in done.stdout
    assert re.search(r"\nbash rules +missing +bash is refused: .*names\.scm \(.*no_such_node", done.stdout)
    assert (
        f"\n  bash rules: fix that file as described in handlers/README.md: {profile.parent}/languages/bash/names.scm\n"
        in done.stdout
    )
    assert re.search(
        r"\nbare rules +missing +bare is refused: .* but its handler\.toml has no \[grammar\]\n", done.stdout
    )
    assert re.search(r"\nrules +ok +forks, secrets\n", done.stdout)
    assert "\npython rules" not in done.stdout


def test_rules_judge_the_code_inside_of_a_fence(profile: Path) -> None:
    said = refused("run", "--profile", str(profile), "-c", "```python\nimport os\nos.fork()\n```")
    assert "line 2" in said, said


@pytest.mark.usefixtures("embedded")
def test_doctor_has_no_row_for_rules_if_there_are_none() -> None:
    assert not re.search(r"^rules |rules +missing", ran("doctor").stdout, re.MULTILINE)


def test_profile_check_finds_a_mistake_in_names_scm(profile: Path) -> None:
    said = refused("profile", "check", str(profile))
    assert f"{profile.parent}/languages/bash/names.scm: rules apply to bash" in said
    assert "no_such_node" in said


def test_a_grammar_that_is_not_installed_is_not_a_mistake_in_the_profile(profile: Path) -> None:
    shutil.rmtree(profile.parent / "languages/bash")
    assert called("profile", "check", str(profile)).returncode == 0
