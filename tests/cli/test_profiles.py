"""`llm-sandbox-mcp profile`."""

import tomllib
from pathlib import Path

import pytest

from llm_sandbox_mcp.folders import CONFIGS
from llm_sandbox_mcp.profile import load_profile

from .command import command, refused


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.toml")))
def test_a_shown_profile_can_be_loaded_again_and_is_the_same(name: str, tmp_path: Path) -> None:
    shown = command("profile", "show", name)
    assert shown.returncode == 0, shown
    again = tmp_path / "again.toml"
    again.write_text(shown.stdout)
    assert load_profile(str(again)) == load_profile(name)


def test_sizes_and_times_are_shown_exactly_and_with_units(tmp_path: Path) -> None:
    profile = tmp_path / "odd.toml"
    profile.write_text(
        '[limits]\nmemory = "1500000KiB"\ndisk = "1000001B"\ntimeout = "90s"\ngrace = "1.1ms"\ninstall_timeout = "1500ms"\n'
    )
    shown = tomllib.loads(command("profile", "show", str(profile)).stdout)["limits"]
    assert [shown[key] for key in ("memory", "disk", "timeout", "grace", "install_timeout")] == [
        "1500000KiB",
        "1000001B",
        "90s",
        "0.0011s",
        "1.5s",
    ]


def test_tables_of_engines_that_are_not_used_are_named_and_not_checked(tmp_path: Path) -> None:
    profile = tmp_path / "others.toml"
    profile.write_text("[podman]\nhots = 1\n[kubernetes]\n[embedded]\n")
    checked = command("profile", "check", str(profile))
    assert checked.returncode == 0, checked
    assert "[podman], [kubernetes] was not checked, because backend.name is embedded" in checked.stdout
    assert "podman" not in command("profile", "show", str(profile)).stdout


def test_credentials_in_addresses_are_masked(tmp_path: Path) -> None:
    profile = tmp_path / "secret.toml"
    profile.write_text('[languages.python]\nindex = "https://me:hunter2@packages.example/simple"\n')
    shown = command("profile", "show", str(profile))
    assert "hunter2" not in shown.stdout + shown.stderr
    assert 'index = "https://***@packages.example/simple"' in shown.stdout


def test_names_with_quotes_and_other_characters_stay_unchanged(tmp_path: Path) -> None:
    profile = tmp_path / "odd.toml"
    profile.write_text("""[files]\nfolders = ['/a "b" \\ ü:rw']\n""")
    again = tmp_path / "again.toml"
    again.write_text(command("profile", "show", str(profile)).stdout)
    assert load_profile(str(again)).files.folders == ('/a "b" \\ ü:rw',)


def test_the_environment_names_a_profile_and_the_argument_takes_precedence() -> None:
    assert 'memory = "512MiB"' in command("profile", "show", LLM_SANDBOX_PROFILE="strict").stdout
    assert 'memory = "2GiB"' in command("profile", "show", "default", LLM_SANDBOX_PROFILE="strict").stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[limits]\nmemroy = '1GiB'\n", "limits.memroy: unknown key"),
        ("[limits]\nmemory = 5\n", "limits.memory: must be a string with a unit"),
        ("[limits]\ntimeout = '0s'\n", "limits.timeout: must be above zero"),
        ("[languages.pyton]\n", "languages.pyton: unknown language"),
        (
            '[backend]\nname = "kubernetes"\n[kubernetes.images]\npyton = "x"\n',
            "kubernetes.images.pyton: unknown language",
        ),
        ('[languages.ruby]\nlibraries = ["rake"]\n', "languages.ruby.libraries: libraries cannot be prepared for ruby"),
        ("[files]\nfolders = ['data']\n", "files.folders.0: must be absolute"),
        ("[files]\nfolders = ['']\n", "files.folders.0: must be absolute"),
        ("[files]\nfolders = ['/data:wr']\n", "files.folders.0: must end with :rw if it is open for writing"),
        ("[limits\n", "not valid TOML"),
    ],
)
def test_a_mistake_is_one_line_with_file_key_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    profile = tmp_path / "wrong.toml"
    profile.write_text(text)
    for arguments in (("profile", "check", str(profile)), ("serve", "--profile", str(profile))):
        line = refused(*arguments)
        assert reason in line
        assert str(profile) in line or "language" in reason


def test_for_an_unknown_name_the_known_names_are_listed() -> None:
    assert "available: default" in refused("profile", "check", "nope")


def test_a_valid_profile_is_reported_as_valid() -> None:
    done = command("profile", "check", "strict")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("strict: valid")
