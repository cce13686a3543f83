"""Every mistake in a profile is reported with file and key; the default profile contains every key."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from llm_sandbox_mcp.backends import BACKENDS, engine
from llm_sandbox_mcp.base.errors import ProfileError
from llm_sandbox_mcp.host.folders import CONFIGS
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.profile.profile import Profile, load_profile
from llm_sandbox_mcp.profile.sections import LanguageSection

DEFAULT = tomllib.loads((CONFIGS / "default.toml").read_text())


def keys(model: type[BaseModel], prefix: str = "") -> set[str]:
    found = set()
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= keys(kind, f"{prefix}{name}.")
        elif prefix + name != "languages":
            found.add(prefix + name)
    return found


def flat(table: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for name, value in table.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found.add(prefix + name)
    return found


def test_the_default_contains_every_key() -> None:
    written = flat({name: value for name, value in DEFAULT.items() if name != "languages"})
    engines = [keys(engine(name).Settings) for name in BACKENDS]
    assert written == (keys(Profile) - {"engines"}).union(*engines)
    assert set(DEFAULT["languages"]) == set(load_languages())
    for section in DEFAULT["languages"].values():
        assert set(section) == set(LanguageSection.model_fields)


def test_every_key_of_the_default_is_explained() -> None:
    section = ""
    for line in (CONFIGS / "default.toml").read_text().splitlines():
        if line.startswith("["):
            section = line
        # The keys of a language are explained only at the first language.
        elif re.match(r"\w+ = ", line) and ("languages" not in section or section == "[languages.python]"):
            assert "#" in line, line


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_included_profile_is_valid(path: Path) -> None:
    assert load_profile(path.stem) == load_profile(str(path))


MISTAKES = {
    "limits.memory": ['"2"', "2", '"2GB"', '"-1MiB"', '"0B"', "true", "[]", f'"{"9" * 400}MiB"', '"٣MiB"'],
    "limits.cpus": ["0", "-1", '"2"', "nan"],
    "limits.pids": ["0", "-5", "1.5", '"x"'],
    "limits.timeout": ['"0s"', "30", '"30"', '"30 minutes"', f'"{"9" * 400}s"', f'"{"9" * 308}d"', '"infs"', '"nans"'],
    "limits.grace": ['"0s"', "2", '"61s"'],
    "limits.cpu_time": ['"0s"', "5"],
    "limits.output": ['"0B"'],
    "limits.shown": ['"0B"'],
    "limits.code": ['"0B"'],
    "limits.files": ["0", "1.5"],
    "limits.file_size": ['"0B"'],
    "limits.install_timeout": ['"0s"'],
    "sessions.starts_per_second": ["0", "-1", "inf", "nan"],
    "limits.disk": ['"0B"'],
    "sessions.max": ["0", '"many"'],
    "sessions.idle_timeout": ['"0s"', "600"],
    "pool.languages": ['"python"', "[1]"],
    "pool.libraries": ['"numpy"', "{ python = 'numpy' }", "{ python = [''] }"],
    "pool.min": ["-1", "1.5", "33"],
    "pool.max": ["0", '"many"'],
    "pool.idle_timeout": ['"0s"', "600"],
    "pool.lifetime": ['"0s"', '"1 year"'],
    "pool.health_interval": ['"0s"'],
    "pool.exhaustion": ['"panic"', "1"],
    "pool.acquire_timeout": ['"0s"', "30"],
    "artifacts.files": ["0"],
    "artifacts.file_size": ["1"],
    "files.folders": ['"/tmp"', '["relative"]', "[1]"],
    "http.hosts": ['"sandbox.example"', '["http://sandbox.example"]', '["sandbox.example:8000"]', '["*"]', "[1]"],
    "http.token_file": ['"token"', "1"],
    "handlers.folders": ['"x"', "[1]"],
    "backend.name": ['"bogus"', "1"],
    "embedded.bwrap": ["1"],
    "languages.python.libraries": ['"numpy"', "[1]"],
    "languages.python.start": ["1", '["geo"]', '" "', '".geo"', '"geo."', '"../geo"', '"a/b"', '"é"', f'"{"x" * 101}"'],
    "limits.bogus": ["1"],
    "bogus.key": ["1"],
    "languages.python.bogus": ["1"],
    "languages.python.preload": [
        '"numpy"',
        '[""]',
        '["a..b"]',
        '["a b"]',
        '["../x"]',
        f'["{"x" * 201}"]',
        str(["x"] * 51),
    ],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in MISTAKES.items() for value in values])
def test_a_mistake_is_reported_with_file_and_key(tmp_path: Path, key: str, value: str) -> None:
    section, name = key.rsplit(".", 1)
    file = tmp_path / "own.toml"
    file.write_text(f"[{section}]\n{name} = {value}\n")
    with pytest.raises(ProfileError) as raised:
        load_profile(str(file))
    message = str(raised.value)
    assert str(file) in message
    assert key in message or (key.startswith("bogus") and "bogus" in message)
    assert "\n" not in message and "pydantic" not in message


def test_the_name_of_no_saved_session_is_a_mistake_that_says_what_a_name_is(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[languages.python]\nstart = '../x'\n")
    with pytest.raises(ProfileError, match=r"python\.start: '\.\./x' cannot be .*: use 1 to 100 ASCII letters"):
        load_profile(str(tmp_path / "own.toml"))


@pytest.mark.parametrize("text", ["[limits", "x = ", "\ufeff[[", "a = 1\na = 2"])
def test_text_that_is_not_toml_is_reported_with_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(ProfileError, match=r"own\.toml.*not valid TOML"):
        load_profile(str(file))


def test_a_missing_file_and_an_unknown_name_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"missing\.toml: cannot be read: No such file"):
        load_profile(str(tmp_path / "missing.toml"))
    with pytest.raises(ProfileError, match=r"unknown profile 'bogus'; available: .*default"):
        load_profile("bogus")


def test_the_saved_sessions_that_others_start_from_are_those_that_the_profile_names(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("[languages.python]\nstart = 'run 12'\n[languages.bash]\nstart = ''\n[languages.ruby]\n")
    assert (load_profile(str(file)).starts, load_profile().starts) == ({"python": "run 12"}, {})


def test_a_profile_needs_only_the_keys_that_differ(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('[limits]\nmemory = "1.5GiB"\n')
    profile, default = load_profile(str(file)), load_profile()
    assert profile.limits.memory == 3 << 29
    assert profile.limits.model_copy(update={"memory": default.limits.memory}) == default.limits


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ('[languages.cobol]\nlibraries = ["x"]\n', ["languages.cobol: unknown language 'cobol'"]),
        ('[languages.ruby]\nlibraries = ["x"]\n', ["languages.ruby.libraries: libraries cannot be prepared for ruby"]),
        ('[languages.python]\nlibraries = ["x"]\n', []),
        ('[languages.ruby]\nallow = ["x"]\n', []),
        ('[languages.ruby]\nstart = "geo"\n', []),
        ('[languages.cobol]\nstart = "geo"\n', ["languages.cobol: unknown language 'cobol'"]),
        (
            '[backend]\nname = "kubernetes"\n[kubernetes.images]\ncobol = "x"\n',
            ["kubernetes.images.cobol: unknown language 'cobol'"],
        ),
        ('[pool]\nlanguages = ["cobol"]\n', ["pool.languages: unknown language 'cobol'"]),
        (
            '[pool.libraries]\nruby = ["x"]\ncobol = ["x"]\n[pool]\nlanguages = ["python"]\n',
            [
                "pool.libraries.cobol: unknown language 'cobol'",
                "pool.libraries.ruby: no sandbox is kept warm for ruby",
                "pool.libraries.cobol: no sandbox is kept warm for cobol",
            ],
        ),
        (
            "[[rules.custom]]\nname = 'a'\ncalls = ['f']\n"
            "[[rules.custom]]\nname = 'b'\ncalls = ['f']\nlanguages = ['cobol']\n",
            ["rules.custom.1.languages: unknown language 'cobol'"],
        ),
        (
            "[languages.python]\npreload = ['json']\n[languages.ruby]\npreload = ['set']\n",
            ["languages.ruby.preload: interpreters of ruby cannot import modules before any code asks"],
        ),
    ],
)
def test_settings_of_languages_that_would_have_no_effect_are_mistakes(
    text: str, mistakes: list[str], tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(text)
    languages = load_languages()
    found = load_profile(str(tmp_path / "own.toml")).language_mistakes(languages.prepared, languages.preloading)
    assert [str(one).removeprefix(f"{tmp_path}/own.toml: ").partition(";")[0] for one in found] == mistakes


def test_profiles_with_the_same_settings_are_equal_whatever_their_files_say_of_them(tmp_path: Path) -> None:
    default = load_profile()
    for number, text in enumerate(
        (
            "",
            f"[limits]\npids = {default.limits.pids}",
            f"[languages.python]\nlibraries = {json.dumps(default.language('python').libraries)}",
            "[kubernetes]\nnamespace = 'unread'",
        )
    ):
        (tmp_path / f"{number}.toml").write_text(f"[backend]\nname = 'docker'\n{text}\n")
    docker, *others = (load_profile(str(tmp_path / f"{number}.toml")) for number in range(4))
    assert (others[0].own_limits, others[2].unread) == (("pids",), ("kubernetes",))
    assert [other == docker for other in others] == [True] * 3
    assert docker != default


def test_the_default_list_of_modules_is_no_mistake_where_another_handler_cannot_import_ahead() -> None:
    assert list(load_profile().language_mistakes(load_languages().prepared, ())) == []
