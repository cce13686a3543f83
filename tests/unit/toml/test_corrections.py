"""What an error in a profile says to write instead."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends import BACKENDS, engine
from llm_sandbox_mcp.base.errors import ProfileError
from llm_sandbox_mcp.host.folders import CONFIGS
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.profile.profile import load_profile

DEFAULT = tomllib.loads((CONFIGS / "default.toml").read_text(encoding="utf-8"))
DEFAULT["languages"] = {"python": DEFAULT["languages"]["python"]}
ENGINE_OF = {table: name for name in BACKENDS for table in engine(name).Settings.model_fields}


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name


KEYS = sorted(flat(DEFAULT))


def refusal(text: str, folder: Path) -> str:
    """The error for a file, without its name."""
    file = folder / "own.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError) as raised:
        load_profile(str(file)).check_languages(load_languages().prepared, load_languages().preloading)
    message = str(raised.value)
    assert message.startswith(f"{file}: ") and "\n" not in message
    return message.removeprefix(f"{file}: ")


OTHER_TYPES = [
    ('[languages.python]\nlibraries = "numpy"', "languages.python.libraries: must be a list"),
    (
        "[pool]\nlanguages = { python = 1 }",
        "pool.languages: must be a list; a list of tables is written [[pool.languages]]",
    ),
    ("[pool]\nlanguages = [1]", "pool.languages.0: must be text in quotes"),
    ('[pool]\nlibraries = ["numpy"]', "pool.libraries: must be a table, such as { NAME = value }"),
    ('[sessions]\nmax = "32"', "sessions.max: must be a whole number without quotes"),
    ("[sessions]\nmax = 31.6", "sessions.max: must be a whole number"),
    ('[limits]\ncpus = "2"', "limits.cpus: must be a number without quotes"),
    ('[http]\nexecute_code = "true"', "http.execute_code: must be true or false without quotes"),
    ("[http]\nexecute_code = 1", "http.execute_code: must be true or false"),
    ("[embedded]\nbwrap = 1", "embedded.bwrap: must be text in quotes"),
    ('[embedded]\nbwrap = ["bwrap"]', "embedded.bwrap: must be text in quotes"),
    ('network = "none"', "network: must be a table: write [network], and below it its keys"),
    ("http = 5", "http: must be a table: write [http], and below it its keys"),
    ('languages = ["python"]', "languages: must be a table, such as { NAME = value }"),
    (
        '[languages]\npython = ["numpy"]',
        "languages.python: must be a table: write [languages.python], and below it its keys",
    ),
    (
        '[rules.custom]\nname = "a"\nmodules = ["os"]',
        "rules.custom: must be a list; a list of tables is written [[rules.custom]]",
    ),
    ('[[network]]\nmode = "none"', "network: must be one table: write [network] instead of [[network]]"),
    (
        '[network]\nmode = "allow"\nsecrets = ["api.example"]',
        "network.secrets.0: must be a table",
    ),
    ('[network]\nmode = "opne"', "network.mode: must be 'none', 'allow' or 'open'; did you mean 'open' or 'none'?"),
    ('[rules]\nblock = "HIGH"', "rules.block: must be 'low', 'medium', 'high' or ''; did you mean 'high'?"),
    ("[embedded]\nbwrap = 0x" + "f" * 5000, "embedded.bwrap: must be text in quotes"),
    ("[sessions]\nmax = " + "9" * 5000, "not valid TOML: "),
]


@pytest.mark.parametrize(("text", "message"), OTHER_TYPES)
def test_for_a_value_of_another_type_the_error_says_what_to_write(text: str, message: str, tmp_path: Path) -> None:
    found = refusal(text, tmp_path)
    assert found.startswith(message) if message.endswith(": ") else found == message


UNITS = [
    ("timeout = 300", '"300s"'),
    ("timeout = 0.5", '"0.5s"'),
    ('timeout = "90"', '"90s"'),
    ('timeout = "30 Minutes"', '"30m"'),
    ('timeout = "250msec"', '"250ms"'),
    ('timeout = "250 milliseconds"', '"250ms"'),
    ('timeout = "2 months"', '"30s"'),
    ("timeout = true", '"30s"'),
    ("memory = 2", '"2GiB"'),
    ("memory = 512", '"512MiB"'),
    ("memory = 1073741824", '"1073741824B"'),
    ('memory = "2GB"', '"2GiB"'),
    ('memory = "512m"', '"512MiB"'),
    ('memory = "1 gig"', '"1GiB"'),
    ('memory = "much"', '"512MiB"'),
]


@pytest.mark.parametrize(("line", "meant"), UNITS)
def test_for_a_quantity_without_a_unit_of_ours_the_error_has_one_that_was_meant(
    line: str, meant: str, tmp_path: Path
) -> None:
    assert refusal(f"[limits]\n{line}", tmp_path).endswith(f"), such as {meant}")


@pytest.mark.parametrize(
    ("line", "most"),
    [
        ('memory = "99999999999999999TiB"', 'limits.memory: is too large; give at most "8388607TiB"'),
        ('timeout = "99999999999999999d"', 'limits.timeout: is too long; give at most "36500d"'),
    ],
)
def test_a_quantity_that_no_kernel_can_hold_is_refused_and_the_largest_one_is_not(
    line: str, most: str, tmp_path: Path
) -> None:
    assert refusal(f"[limits]\n{line}", tmp_path) == most
    key, largest = line.partition(" ")[0], most.rpartition('"')[0].rpartition('"')[2]
    assert getattr(load_profile(over={"limits": {key: largest}}).limits, key) < 1 << 63


MEANT = [
    ('[limits]\nmemroy = "1GiB"', "limits.memroy: unknown key; did you mean memory?"),
    ('[limits]\nMemory = "1GiB"', "limits.Memory: unknown key; did you mean memory?"),
    ('memory = "1GiB"', "memory: unknown key; did you mean limits.memory?"),
    ('[sandbox]\nmemory = "1GiB"', "sandbox: unknown key; did you mean limits.memory?"),
    ('[limit]\nmemory = "1GiB"', "limit: unknown key; did you mean limits?"),
    ('netwrok = "none"', "netwrok: unknown key; did you mean network?"),
    (
        '[sessions]\ntimeout = "1h"',
        "sessions.timeout: unknown key; did you mean save_timeout, idle_timeout, limits.timeout or",
    ),
    (
        '[backend]\nname = "docker"\n[docker]\nmemory = "1GiB"',
        "docker.memory: unknown key; did you mean limits.memory?",
    ),
    ('[dokcer]\nhost = ""', "dokcer: unknown key; did you mean docker?"),
    ("[languages.ruby]\nalow = []", "languages.ruby.alow: unknown key; did you mean allow?"),
    (
        '[rules]\ncustom = [{ name = "a", module = ["os"] }]',
        "rules.custom.0.module: unknown key; did you mean modules?",
    ),
    ("[limits]\nxyzzy = 1", "limits.xyzzy: unknown key; see `llm-sandbox-mcp profile show default` for all keys"),
    *(
        (
            f'[backend]\nname = "{engine}"\n[{engine}]\nxyzzy = 1',
            f"{engine}.xyzzy: unknown key; see `llm-sandbox-mcp profile show {engine}` for all keys",
        )
        for engine in ("docker", "kubernetes", "podman")
    ),
    ("[languages.pyton]", "languages.pyton: unknown language 'pyton'; available: bash,"),
    ('[backend]\nname = "dokcer"', "backend.name: unknown backend 'dokcer'; available: auto,"),
    ('[rules]\npreset = "strit"', "rules.preset: unknown preset 'strit'; available: data_science,"),
    (
        '[rules]\npreset = "strict"\nseverity = { netwrok = "low" }',
        "rules.severity.netwrok: unknown rule 'netwrok'; available: processes,",
    ),
    ('[rules]\npreset = "strict"\nseverity = { network = "lwo" }', "rules.severity.network: must be 'low',"),
]


@pytest.mark.parametrize(("text", "message"), MEANT)
def test_for_an_unknown_name_the_error_says_which_was_meant(text: str, message: str, tmp_path: Path) -> None:
    found = refusal(text, tmp_path)
    assert found == message or (found.startswith(message) and re.search(r"did you mean .*\?$|timeout\?$", found))


def test_for_an_unknown_profile_the_error_says_which_was_meant() -> None:
    with pytest.raises(ProfileError, match=r"unknown profile 'strct'; available: .*; did you mean 'strict'\?"):
        load_profile("strct")


def test_secrets_are_not_repeated(tmp_path: Path) -> None:
    lines = (
        'index = ["https://me:hunter2@packages.example/simple"]',
        'env = ["TOKEN=hunter2"]',
        'env = "TOKEN=hunter2"',
        "env = { TOKEN = ['hunter2'] }",
    )
    for line in lines:
        assert "hunter2" not in refusal(f"[languages.python]\n{line}", tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_of_any_editor_is_read(encoding: str, end: str, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_bytes(f'# für alle{end}[limits]{end}memory = "1GiB"{end}'.encode(encoding))
    assert load_profile(str(file)).limits.memory == 1 << 30


@pytest.mark.parametrize(
    ("encoding", "comment"),
    [("utf-16", ""), ("utf-16-le", ""), ("utf-16-be", ""), ("utf-16-le", "# ü"), ("utf-32", ""), ("latin-1", "# ü")],
)
def test_for_a_file_in_another_encoding_the_error_says_how_to_save_it(
    encoding: str, comment: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    file.write_bytes(f'[limits]\nmemory = "1GiB"  {comment}\n'.encode(encoding))
    with pytest.raises(ProfileError, match=r"own\.toml: not valid TOML: it is not UTF-8; save it as UTF-8$"):
        load_profile(str(file))


def nested(key: str, value: object) -> dict[str, Any]:
    """A profile with one key, on the engine that reads it."""
    table, *rest = key.split(".")
    for name in reversed(rest):
        value = {name: value}
    backend = {"backend": {"name": ENGINE_OF[table]}} if table in ENGINE_OF else {}
    return {**backend, table: value}


LETTER = st.characters(codec="ascii", categories=("Ll", "Nd"), include_characters="_-")


@st.composite
def misspelt(draw: st.DrawFn) -> tuple[str, str]:
    """A key and the same with one letter more, less, in the place of another, or exchanged with the next."""
    # Of two letters, one that is wrong leaves too little.
    key = draw(st.sampled_from([key for key in KEYS if len(key.rpartition(".")[2]) > 2]))
    table, _, name = key.rpartition(".")
    place = draw(st.integers(0, len(name) - 1))
    before, here, after = name[:place], name[place], name[place + 1 :]
    letter = draw(LETTER)
    wrong = draw(
        st.sampled_from(
            (
                before + letter + here + after,
                before + after,
                before + letter + after,
                before + after[:1] + here + after[1:],
            )
        )
    )
    return key, f"{table}.{wrong}"


@given(misspelt())
def test_a_key_with_one_wrong_letter_is_found_again(pair: tuple[str, str]) -> None:
    key, wrong = pair
    assume(wrong not in KEYS)
    with pytest.raises(ProfileError) as raised:
        load_profile(over=nested(wrong, "x"))
    assert raised.value.key == wrong
    assert re.search(rf"did you mean .*\b{key.rpartition('.')[2]}\b.*\?", raised.value.reason)
