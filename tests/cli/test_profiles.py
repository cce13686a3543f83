"""`llm-sandbox-mcp profile`."""

import tomllib
from pathlib import Path

import pytest

from llm_sandbox_mcp.host.folders import CONFIGS
from llm_sandbox_mcp.profile.profile import load_profile
from tests.local_index import local_index

from .command import called, refused


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.toml")))
def test_a_shown_profile_can_be_loaded_again_and_is_the_same(name: str, tmp_path: Path) -> None:
    shown = called("profile", "show", name)
    assert shown.returncode == 0, shown
    again = tmp_path / "again.toml"
    again.write_text(shown.stdout)
    assert load_profile(str(again)) == load_profile(name)


def test_sizes_and_times_are_shown_exactly_and_with_units(tmp_path: Path) -> None:
    profile = tmp_path / "odd.toml"
    profile.write_text(
        '[limits]\nmemory = "1500000KiB"\ndisk = "1000001B"\ntimeout = "90s"\ngrace = "1.1ms"\ninstall_timeout = "1500ms"\n'
    )
    shown = tomllib.loads(called("profile", "show", str(profile)).stdout)["limits"]
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
    checked = called("profile", "check", str(profile))
    assert checked.returncode == 0, checked
    assert "[podman], [kubernetes] was not checked, because backend.name is embedded" in checked.stdout
    assert "podman" not in called("profile", "show", str(profile)).stdout


def test_credentials_in_addresses_are_masked(tmp_path: Path) -> None:
    profile = tmp_path / "secret.toml"
    profile.write_text('[languages.python]\nindex = "https://me:hunter2@packages.example/simple"\n')
    shown = called("profile", "show", str(profile))
    assert "hunter2" not in shown.stdout + shown.stderr
    assert 'index = "https://***@packages.example/simple"' in shown.stdout


def test_names_with_quotes_and_other_characters_stay_unchanged(tmp_path: Path) -> None:
    profile = tmp_path / "odd.toml"
    profile.write_text("""[files]\nfolders = ['/a "b" \\ ü:rw']\n""")
    again = tmp_path / "again.toml"
    again.write_text(called("profile", "show", str(profile)).stdout)
    assert load_profile(str(again)).files.folders == ('/a "b" \\ ü:rw',)


def test_the_environment_names_a_profile_and_the_argument_takes_precedence() -> None:
    assert 'memory = "512MiB"' in called("profile", "show", LLM_SANDBOX_PROFILE="strict").stdout
    assert 'memory = "2GiB"' in called("profile", "show", "default", LLM_SANDBOX_PROFILE="strict").stdout


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
        ("[files]\nfolders = ['/data:wr']\n", "files.folders.0: must end with :ro or nothing if it is open for"),
        ("[languages.python]\nstart = '../geo'\n", "languages.python.start: '../geo' cannot be the name of"),
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
    assert "available: auto, default" in refused("profile", "check", "nope")


def test_a_valid_profile_is_reported_as_valid() -> None:
    done = called("profile", "check", "strict")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("strict: valid")


def test_limits_that_the_machine_cannot_give_are_refused_by_a_check_and_at_the_start(tmp_path: Path) -> None:
    profile = tmp_path / "wide.toml"
    profile.write_text('[limits]\nmemory = "999TiB"\n')
    for arguments in (("profile", "check", str(profile)), ("serve", "--profile", str(profile))):
        line = refused(*arguments)
        assert f"{profile}: limits.memory: 999TiB is more memory than this machine has; give at most" in line


def mistakes(profile: Path) -> dict[str, str]:
    """What a check finds: the reasons by their keys."""
    done = called("profile", "check", str(profile))
    assert (done.returncode, done.stdout) == (2, ""), done
    found = [line.removeprefix(f"llm-sandbox-mcp: {profile}: ") for line in done.stderr.splitlines()]
    return {key: reason for key, _, reason in (line.partition(": ") for line in found)}


def test_a_check_lists_every_folder_file_and_library_that_cannot_be_used(tmp_path: Path) -> None:
    gone, file = tmp_path / "gone", tmp_path / "file"
    file.write_text("x")
    profile = tmp_path / "own.toml"
    profile.write_text(
        f"""
[server]
cache = "{file}/cache"
runtime = "{file}"
[sessions]
store = "{file}/sessions"
[files]
folders = ["{gone}", "{file}:rw", "{tmp_path}:rw"]
[http]
token_file = "{gone}"
[audit]
file = "{gone}/audit.log"
[network]
mode = "allow"
secrets = [
    {{ domain = "a.example", header = "X-A", value_env = "SET_ONLY_FOR_THE_SERVER" }},
    {{ domain = "b.example", header = "X-B", value_file = "{gone}" }},
]
[languages.python]
libraries = ["numpy", "https://me:hunter2@a.example/tool.whl", "lxml >=5"]
allow = ["pandas"]
deny = ["lxml"]
[languages.pyton]
[pool]
libraries = {{ python = ["requests", "pandas"] }}
"""
    )
    assert mistakes(profile) == {
        "server.cache": f"{file}/cache cannot be written; correct the path, or make it writable",
        "server.runtime": f"{file} cannot be written; correct the path, or make it writable",
        "sessions.store": f"{file}/sessions cannot be written; correct the path, or make it writable",
        "files.folders.0": f"{gone} is not a folder; make it, or correct the path",
        "files.folders.1": f"{file} is not a folder; make it, or correct the path",
        "http.token_file": f"{gone} cannot be read: No such file or directory; "
        "create one, for example with `openssl rand -hex 32`",
        "audit.file": f"{gone}/audit.log cannot be written; correct the path, or make its folder writable",
        "network.secrets.1.value_file": f"{gone} cannot be read: No such file or directory; make it readable",
        "languages.pyton": "unknown language 'pyton'; available: bash, cpp, go, java, javascript, python, r, ruby; "
        "did you mean 'python'?",
        "languages.python.libraries": "'lxml >=5' is denied by the profile (lxml); do without it",
        "pool.libraries.python": "'requests' is not among those that the profile allows; use one of pandas",
    }
    assert "'https://***@a.example/tool.whl' is not a plain name" in called("profile", "check", str(profile)).stderr


def test_a_check_finds_certificates_that_are_missing(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text(f'[backend]\nname = "docker"\n[docker]\nca = "{tmp_path}/ca.pem"\nkey = "{profile}"\n')
    assert mistakes(profile) == {"docker.ca": f"there is no file {tmp_path}/ca.pem; correct the path"}


def test_a_check_asks_each_index(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    with local_index() as index:
        profile.write_text(
            f'[languages.python]\nindex = "{index.url}/simple"\n[languages.ruby]\nindex = "{index.url}"\n'
        )
        checked = called("profile", "check", str(profile))
        assert (checked.returncode, checked.stderr) == (0, "")
        assert sorted(path for path, _ in index.requests) == ["/", "/simple"]
    assert mistakes(profile) == dict.fromkeys(
        ("languages.python.index", "languages.ruby.index"),
        "127.0.0.1 cannot be reached: Connection refused; correct the address, or start it",
    )


def test_a_check_of_a_handler_folder_that_is_missing_names_it_next_to_other_mistakes(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text(f'[handlers]\nfolders = ["{tmp_path}/gone"]\n[files]\nfolders = ["{tmp_path}/gone"]\n')
    first, second = called("profile", "check", str(profile)).stderr.splitlines()
    assert "files.folders.0: " in first and f"{tmp_path}/gone: is not a folder; correct handlers.folders" in second
