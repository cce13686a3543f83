"""The rules for a folder of handlers; a mistake stops the start, and the error names the file and the key."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from llm_sandbox_mcp.base.errors import ProfileError, UnknownLanguage
from llm_sandbox_mcp.host.folders import HANDLERS
from llm_sandbox_mcp.languages.languages import Handler, included_languages, load_languages
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.wiring import open_service

RUNNER = '[runner]\nargv = ["true"]\n'
BUILD = '[build]\ncompile = ["true"]\nrun = ["true"]\n'
LIBRARIES = """
[libraries]
manager = "luarocks"
name_pattern = '[a-z]+'
install = ["true"]
installed = ["true"]
installed_pattern = '(?P<name>.+) (?P<version>.+)'
"""


def write(root: Path, name: str = "lua", head: str = "", body: str = RUNNER, folder: str = "") -> Path:
    """Writes a handler that is valid except for the given parts."""
    path = root / (folder or name) / "handler.toml"
    path.parent.mkdir(parents=True)
    keys = {
        "name": f'"{name}"',
        "title": '"Lua"',
        "extension": '".lua"',
        "version_command": '["true"]',
        "stateful": "true",
    }
    lines = [f"{key} = {value}" for key, value in keys.items() if not head.startswith((f"{key} =", f"-{key}"))]
    path.write_text("\n".join([*lines, "" if head.startswith("-") else head, body]))
    return path


def refusal(*roots: Path) -> str:
    with pytest.raises(ProfileError) as caught:
        load_languages(map(str, roots))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_folder_adds_a_language_to_the_included_ones(tmp_path: Path) -> None:
    write(tmp_path, head='aliases = ["luajit", "l++"]', body=RUNNER + LIBRARIES)
    languages = load_languages([str(tmp_path)])
    assert {"lua", "python", "bash"} <= set(languages)
    assert languages["LuaJIT"] is languages["l++"] is languages["lua"]
    with pytest.raises(UnknownLanguage, match="lua"):
        languages["cobol"]
    for length, shown in ((40, f"'{'x' * 40}';"), (41, f"'{'x' * 40}...';")):
        with pytest.raises(UnknownLanguage) as raised:
            languages["x" * length]
        assert str(raised.value).startswith(f"unknown language {shown} available: ")


@pytest.mark.parametrize(
    ("head", "body", "key", "reason"),
    [
        ("-title", RUNNER, "title", "missing"),
        ("-version_command", RUNNER, "version_command", "missing"),
        ("exten = '.l'", RUNNER, "exten", "unknown key"),
        ("extension = 'lua'", RUNNER, "extension", "pattern"),
        ("name = 'L u a'", RUNNER, "name", "pattern"),
        ("aliases = ['LUA']", RUNNER, "aliases.0", "pattern"),
        ("stateful = 'perhaps'", RUNNER, "stateful", "true or false"),
        ("version_command = []", RUNNER, "version_command", "at least 1"),
        ("version_command = 'lua -v'", RUNNER, "version_command", "must be a list"),
        ("", RUNNER + BUILD, "runner", "either"),
        ("", "", "runner", "either"),
        ("", "[runner]\nargs = ['true']\n", "runner.argv", "missing"),
        ("", "[runner]\nargv = ['true']\nshell = true\n", "runner.shell", "unknown key"),
        ("", "[build]\ncompile = ['true']\n", "build.run", "missing"),
        ("", RUNNER + LIBRARIES.replace("'[a-z]+'", "'[a-z'"), "libraries.name_pattern", "regular expression"),
        ("", RUNNER + LIBRARIES.replace("(?P<version>", "("), "libraries.installed_pattern", "version"),
        ("", RUNNER + LIBRARIES + "default_index_pattern = 'x'", "libraries.default_index_pattern", "group"),
        ("", RUNNER + LIBRARIES.replace("manager", "manger"), "libraries.manager", "missing"),
        ("", RUNNER + "[[examples]]\ntitle = 'x'\n", "examples.0.code", "missing"),
    ],
)
def test_a_mistake_is_an_error_with_file_and_key(tmp_path: Path, head: str, body: str, key: str, reason: str) -> None:
    path = write(tmp_path, head=head, body=body)
    message = refusal(tmp_path)
    assert message.startswith(f"{path}: {key}: ")
    assert reason in message


@pytest.mark.parametrize("content", [b"name = ", b"\xff", b""])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path)
    path.write_bytes(content)
    assert refusal(tmp_path).startswith(f"{path}: ")


def test_a_language_that_can_do_the_work_of_another_says_so(tmp_path: Path) -> None:
    write(tmp_path, body=RUNNER + '[instead]\nnames = ["moonscript"]\nsays = "compile it to lua"\n')
    with pytest.raises(UnknownLanguage, match=r"^unknown language 'MoonScript'; compile it to lua$"):
        load_languages([str(tmp_path)])["MoonScript"]
    for name in ("typescript", "ts", "tsx"):
        with pytest.raises(UnknownLanguage, match="use javascript, without types"):
            included_languages()[name]


def test_a_folder_without_a_language_is_refused(tmp_path: Path) -> None:
    assert "handlers.folders" in refusal(tmp_path / "absent")
    path = write(tmp_path)
    # The folder of the language itself instead of its parent.
    assert refusal(path.parent).startswith(f"{path.parent}: contains no folder with a handler.toml")


def keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        for below in (field.annotation, *get_args(field.annotation)):
            if isinstance(below, type) and issubclass(below, BaseModel):
                yield from keys(below)


def test_the_page_explains_every_key() -> None:
    page = (HANDLERS / "README.md").read_text()
    table = page[page.index("## handler.toml, key by key") : page.index("Placeholders in commands")]
    missing = {key for key in keys(Handler) if f"`{key}`" not in table and f"[{key}]" not in table}
    assert missing == set()


def test_a_later_folder_replaces_a_language_and_its_aliases(tmp_path: Path) -> None:
    write(tmp_path / "mine", "python", head='aliases = ["snake"]')
    languages = load_languages([str(tmp_path / "mine")])
    assert languages["snake"].folder == tmp_path / "mine/python"
    with pytest.raises(UnknownLanguage):
        languages["py"]


def test_a_mapping_of_languages_handles_unknown_names() -> None:
    languages = included_languages()
    assert "cobol" not in languages
    assert "py" in languages
    assert languages.get("cobol") is None
    with pytest.raises(UnknownLanguage, match=r"^unknown language 'cobol'; available: .*python"):
        languages["cobol"]


def test_the_same_name_in_two_folders_is_a_mistake(tmp_path: Path) -> None:
    first = write(tmp_path, "lua", folder="a")
    second = write(tmp_path, "lua", folder="b")
    assert refusal(tmp_path) == f"{second}: name: 'lua' is also the name in {first}; change one of them"


@pytest.mark.parametrize(("alias", "key", "owner"), [("py", "aliases", "python"), ("bash", "name", "bash")])
def test_an_alias_of_another_language_is_a_mistake(tmp_path: Path, alias: str, key: str, owner: str) -> None:
    path = write(tmp_path, head=f'aliases = ["{alias}"]')
    other = HANDLERS / owner / "handler.toml"
    assert refusal(tmp_path) == f"{path}: aliases: {alias!r} is also in {key} of {other}; change one of them"


@pytest.mark.parametrize(
    ("companion", "problem"),
    [
        ("cobol", "'cobol' is not the name of a language; available: bash, "),
        ("bash", "'bash' has companions itself; name a language that has none"),
    ],
)
def test_a_companion_that_cannot_be_one_is_a_mistake(tmp_path: Path, companion: str, problem: str) -> None:
    path = write(tmp_path, head=f'companions = ["{companion}"]')
    assert refusal(tmp_path).startswith(f"{path}: companions: {problem}")


def test_a_name_that_is_an_alias_of_another_language_is_a_mistake(tmp_path: Path) -> None:
    write(tmp_path, "py")
    assert refusal(tmp_path).startswith(f"{HANDLERS / 'python' / 'handler.toml'}: aliases: 'py' is also in name of ")


@pytest.mark.anyio
async def test_a_mistake_stops_the_start_of_the_server(tmp_path: Path) -> None:
    path = write(tmp_path / "languages", head="exten = '.l'")
    (tmp_path / "profile.toml").write_text(f"[handlers]\nfolders = ['{tmp_path / 'languages'}']\n")
    with pytest.raises(ProfileError, match=f"{path}: exten: unknown key"):
        async with open_service(load_profile(str(tmp_path / "profile.toml"))):
            pass
