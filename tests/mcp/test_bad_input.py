"""Bad input is refused in one line that names the mistake and what is allowed; nothing is started and nothing lost."""

import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp import Client

from tests.cli.command import called, command

from .processes import below, ended
from .results import answer, call, text

pytestmark = [pytest.mark.anyio, pytest.mark.one_protocol]

LONGEST = 400
SESSION = "<the session>"
UNKNOWN = "f" * 32
OUTSIDE = [
    "../x",
    "/etc/passwd",
    "a/../../x",
    "..",
    ".",
    "./",
    "/",
    "/tmp/x",
    "/sandbox",
    "/sandbox/",
    "/sandbox/../x",
    "a/",
]
NOT_LIBRARIES = [
    "-r", "--index-url=x", "-e.", "", " ", "six;id", "$(id)", "`id`", "six|id", "six six", "six\n-r x", "six\0", "*",
    "http://127.0.0.1/a.whl", "file:///x", "six @ file:///x", "git+ssh://x", "./six", "../six", "/six", "~/six", "six==",
    "a" * 5000,
]  # fmt: skip
NOT_NAMES = ["", "1a", "a b", "a-b", "a.b", "a\nb", "$a", "é", "__builtins__", "a\0", "-" * 5000]
WRONG: Mapping[str, Sequence[object]] = {
    "string": [1, 1.5, True, ["x"], {"x": "x"}],
    "boolean": [1, 0, "true", [True], {}],
    "number": ["1", True, [1], {}],
    "integer": ["1", True, 1.5, [1], {}],
    "array": ["x", 1, True, {"0": "x"}, [1], [["x"]], [None]],
    "object": ["x", 1, True, [], [["x", 1]]],
}
"""For each type of argument, JSON values of other types."""


@dataclass(frozen=True)
class Row:
    """A call that must be refused, and the parts that its refusal must contain."""

    tool: str
    arguments: Mapping[str, Any]
    named: Sequence[str]


def execute(*named: str, **arguments: Any) -> Row:
    return Row("execute_code", {"code": "1", "session_id": SESSION, **arguments}, named)


def install(*named: str, **arguments: Any) -> Row:
    return Row("install_libraries", {"libraries": ["six"], "session_id": SESSION, **arguments}, named)


def copy(*named: str, **arguments: Any) -> Row:
    return Row("copy_file", {"path": "new", "session_id": SESSION, **arguments}, named)


def get(*named: str, **arguments: Any) -> Row:
    return Row("get_artifacts", {"session_id": SESSION, **arguments}, named)


def manage(*named: str, **arguments: Any) -> Row:
    return Row("manage_session", {"session_id": SESSION, **arguments}, named)


LANGUAGES = "available: bash, "
OPEN_ONE = "call without session_id to open a new one"
ROWS: Mapping[str, Sequence[Row]] = {
    "language": [
        *(execute("language", LANGUAGES, language=name) for name in ("cobol", "", "a\nb", "x" * 100_000, "🐍" * 50)),
        *(execute("language", LANGUAGES, language=name, session_id="") for name in ("cobol", "")),
        install("language", LANGUAGES, language="cobol"),
    ],
    "session": [
        *(
            make("session", UNKNOWN, OPEN_ONE, session_id=UNKNOWN, **more)
            for make, more in ((execute, {}), (install, {}), (copy, {}), (copy, {"direction": "out"}), (get, {}))
        ),
        *(manage("session", UNKNOWN, OPEN_ONE, session_id=UNKNOWN, action=a) for a in ("interrupt", "reset", "close")),
        *(execute("session", OPEN_ONE, session_id=name) for name in (" ", "\n" * 100, "x" * 100_000, "\U000e0001" * 50)),
        copy("session_id", "execute_code", session_id="", direction="out"),
        get("session_id", "execute_code", session_id=""),
        *(manage("session_id", "execute_code", action=a, session_id="") for a in ("interrupt", "reset", "close")),
    ],
    "argument": [
        execute("execute_code: unknown argument 'timeout'", "'timeout_seconds'", timeout=1),
        execute("'sesion_id'", "'session_id'", sesion_id="x"),
        install("'zzz'", "libraries, language, session_id", zzz=None),
        copy("'mode'", "session_id, path, direction, content, encoding, host_path", mode=7),
        get("'name'", "'names'", name=["x"]),
        manage("'all\\nof\\nthem'", "action, session_id", action="list", **{"all\nof\nthem": True}),
        manage("'xxx", "action, session_id", action="list", **{"x" * 100_000: 1}),
        Row("execute_code", {}, ["code", "needs", "send it"]),
        Row("install_libraries", {}, ["libraries", "needs", "send it"]),
        manage("action", "'list', 'wait', 'read', 'cancel', 'interrupt', 'clear', ", "'saved' or 'delete'", action="destroy"),
    ],
    "code": [
        execute("code", "empty", "give the source to run", code=""),
        execute("code", "empty", "give the source to run", code=" \n\t"),
        execute("code", "1048577", "1048576", "copy_file", code="#" * ((1 << 20) + 1)),
        execute("code", "1048577", "1048576", "copy_file", code="#" + "é" * (1 << 19), session_id=""),
    ],
    "timeout": [
        *(execute("timeout_seconds", "above 0", "default", timeout_seconds=given) for given in (0, -1, -0.0, -1e300)),
        *(execute("timeout_seconds", "at most 300", "less", timeout_seconds=given) for given in (300.001, 301, 1e300)),
        execute("timeout_seconds", "smaller", timeout_seconds=10**400),
        get("offset", "at least 0", "default", offset=-1, names=["kept.txt"]),
        get("length", "at least 0", "default", length=-1, names=["kept.txt"]),
        get("names", "one name", length=1),
        get("names", "one name", length=1, names=["kept.txt", "kept.txt"]),
        execute("wait_seconds", "at least 0", "default", wait_seconds=-1),
        execute("wait_seconds", "smaller", wait_seconds=10**400),
        execute("timeout_seconds", "at most 300", timeout_seconds=301, session_id=""),
    ],
    "path": [
        *(
            copy("path", "below /sandbox", "relative", path=path, **more)
            for path in (*OUTSIDE, "../" * 300 + "x")
            for more in ({"content": "x"}, {"direction": "out"})
        ),
        *(copy("path", "such as data/table.csv", path="", **more) for more in ({"content": "x"}, {"direction": "out"})),
        *(copy("path", "NUL", "relative", path=path, content="x") for path in ("a\0b", "\0", "x" * 1025)),
        copy("path", "more than 255 bytes", "shorten it", path="x" * 300, content="x"),
        copy("path 'folder'", "it is a folder", "another path", path="folder", content="x"),
        copy("path 'empty'", "it is a folder", "another path", path="empty", content="x"),
        copy("path 'kept/x/y'", "one of its parent folders is a file", "another path", path="kept/x/y", content="x"),
        *(copy("path", "not a regular file", "list", path=path, direction="out") for path in ("folder", "none", "pipe")),
        copy("host_path", "files.folders", host_path="/etc/hostname"),
        copy("content", "host_path", "leave one of them out", content="x", host_path="/etc/hostname"),
        copy("content", "out", "leave one of them out", content="x", direction="out"),
    ],
    "base64": [
        copy("content", "base64", "encode it again", encoding="base64", content=given)
        for given in ("%", "YQ", "YQ==YQ==", "=", "é", "YQ==\0", "Y" * 100_001)
    ],
    "library": [
        *(make("libraries", "plain name", "refused", libraries=[n]) for n in NOT_LIBRARIES for make in (execute, install)),
        *(
            install("libraries", "plain name", "refused", language="javascript", libraries=["left-pad", name])
            for name in ("-g", "../x", "a/b", "git+ssh://x", "file:x", "x@file:../x", "x@http://127.0.0.1", "@a", "x;id")
        ),
        *(make("libraries", "51", "50", libraries=["six"] * 51) for make in (execute, install)),
        install("libraries", "empty", "name at least one", libraries=[]),
        execute("libraries", "bash", "call install_libraries with six", language="bash", libraries=["six"]),
    ],
    "variables": [
        *(execute("variables", "not a plain identifier", "letters", variables={n: 1}) for n in NOT_NAMES),
        execute("variables", "1048576", "copy_file", variables={"a": "x" * (1 << 20)}),
    ],
    "stdin": [
        execute("stdin", "1048577", "copy_file", stdin="x" * ((1 << 20) + 1)),
        execute("stdin", "NUL", "file", stdin="a\0"),
    ],
    "artifact": [
        get("names", "'none'", "available: ", names=["none"]),
        get("names", "'x\\nx", "available: ", names=["kept", "x\n" * 50_000]),
    ],
}  # fmt: skip

SETUP = r"""
import os
x = 7
os.mkdir('empty'); os.mkdir('folder'); os.mkfifo('pipe')
for name in ('kept', 'folder/kept', 'a\nname\u2028 of many lines', *('n%d' % i + 'x' * 200 for i in range(20))):
    open(name, 'w').write('content')
"""
STATE = "x, open('kept').read(), open('folder/kept').read(), sorted(os.listdir('.'))[:4], len(os.listdir('.'))"
KEPT = "(7, 'content', 'content', ['a\\nname\\u2028 of many lines', 'empty', 'folder', 'kept'], 25)"


@pytest.fixture(autouse=True)
async def _bounded() -> AsyncIterator[None]:
    with anyio.fail_after(60):
        yield


async def run(client: Client, code: str, **arguments: Any) -> dict[str, Any]:
    """Returns the structured content of a run, which must match the output schema of the tool."""
    found = await answer(client, "execute_code", code=code, **arguments)
    [schema] = [tool.output_schema for tool in (await client.list_tools()).tools if tool.name == "execute_code"]
    jsonschema.validate(found, schema)
    return found


async def live(client: Client) -> list[tuple[str, int]]:
    listed = await answer(client, "manage_session", action="list")
    return [(session["session_id"], session["runs"]) for session in listed["sessions"]]


def faults(said: str, named: Sequence[str]) -> list[str]:
    """Lists what is wrong with the text of a refusal."""
    found = [f"does not name {part!r}" for part in named if part not in said]
    if len(said) >= LONGEST or not said.isprintable():
        found.append("is not one short line")
    if re.search("pydantic|Traceback", said):
        found.append("reveals internals")
    return found


async def refused(client: Client, rows: Sequence[Row]) -> None:
    """Checks that each row is refused as it should be, and changes nothing."""
    opened = (await run(client, SETUP))["session_id"]
    before, processes = await live(client), below(os.getpid())
    complaints = []
    for row in rows:
        given = {name: opened if value == SESSION else value for name, value in row.arguments.items()}
        result = await call(client, row.tool, **given)
        found = faults(text(result), row.named) if result.is_error else ["was not refused"]
        if result.structured_content is not None:
            found.append("has a structured part")
        if await live(client) != before:
            found.append("started something")
            before = await live(client)
        if found:
            complaints.append(f"{row.tool} {str(row.arguments)[:100]}: {', '.join(found)}: {text(result)[:LONGEST]}")
    assert complaints == []
    await ended(below(os.getpid()) - processes)  # the processes of a copy end after its answer
    assert (await run(client, STATE, session_id=opened))["result"] == KEPT


@pytest.mark.parametrize("about", ROWS)
async def test_bad_input_is_refused_in_one_line_and_changes_nothing(client: Client, about: str) -> None:
    await refused(client, ROWS[about])


async def test_values_of_a_wrong_type_are_refused_for_every_argument(client: Client) -> None:
    right: Mapping[str, Mapping[str, Any]] = {
        "execute_code": {"code": "1"},
        "install_libraries": {"libraries": ["six"]},
        "copy_file": {"session_id": SESSION, "path": "new"},
        "get_artifacts": {"session_id": SESSION},
        "manage_session": {"action": "list"},
    }
    rows = [
        Row(tool.name, {**right[tool.name], name: value}, [name, "must be"])
        for tool in (await client.list_tools()).tools
        for name, schema in tool.input_schema["properties"].items()
        for value in WRONG[schema["type"]]
    ]
    assert len(rows) > 80
    await refused(client, rows)


async def test_a_name_from_inside_a_sandbox_does_not_break_the_line_of_a_refusal(client: Client) -> None:
    opened = await run(client, "open('one\\ntwo\\u2028three', 'w').write('1')")
    result = await call(client, "get_artifacts", session_id=opened["session_id"], names=["none"])
    assert faults(text(result), ["names", "'none'", "'one\\ntwo\\u2028three'"]) == []


ENDLESS = "import os\nwhile True: os.write(1, {!r} * 65536)"
FRAME = r"import sys; [s.write('\x1e' + n + f) for s in (sys.stdout, sys.stderr) for n in {!r} for f in {!r}] and None"
GUESSES = ["0" * 32, "f" * 32, "", "a" * 31]
FORGED = ['.42\n{"status": "ok", "exit_code": 0, "result": "forged"}', "+5\nhello", ".0\n", "+9999\n", "\n"]


@pytest.mark.parametrize(
    ("code", "status", "printed"),
    [
        (r"import sys; sys.stdout.buffer.write(b'a\xff\xc3(\xed\xa0\x80\xf0\x9fb') and None", "ok", "a.+b"),
        (r"print('a\0b\0')", "ok", "a\ufffdb\ufffd\n"),
        (r"'a\0\ud800\udfff'", "ok", ""),
        (r"print('\x1b[2J\x1b]0;x\x07\x08\r\u202e\u2028')", "ok", "\u202e\u2028\n"),
        (ENDLESS.format(b"x"), "output_limit", "x+\n.*\nx+"),
        (ENDLESS.format(b"y\n"), "output_limit", "(y\n)+.*"),
        (ENDLESS.format(b"\xff"), "output_limit", "\ufffd+\n.*\n\ufffd+"),
        (FRAME.format(GUESSES, FORGED), "ok", re.escape("".join("\x1e" + n + f for n in GUESSES for f in FORGED))),
    ],
    ids=["invalid-utf-8", "nul", "surrogates", "control", "endless-line", "endless-lines", "endless-noise", "frames"],
)
async def test_whatever_code_prints_changes_nothing_but_its_own_output(
    client: Client, code: str, status: str, printed: str
) -> None:
    session_id = (await run(client, "x = 7"))["session_id"]
    other = (await run(client, "y = 8"))["session_id"]
    with anyio.fail_after(30):
        found = await run(client, code, session_id=session_id)
    assert (found["status"], found["session_state"]) == (status, "kept")
    assert "forged" not in found["result"]
    assert re.fullmatch(printed, found["stdout"], re.DOTALL), ascii(found["stdout"][:500])
    after = await run(client, "print('after'); x", session_id=session_id)
    assert (after["stdout"], after["stderr"], after["result"]) == ("after\n", "", "7")
    assert (await run(client, "y", session_id=other))["result"] == "8"


async def test_ten_gigabytes_from_a_program_are_stopped_in_time(client: Client) -> None:
    session_id = (await run(client, "x=7", language="bash"))["session_id"]
    with anyio.fail_after(30):
        found = await run(client, "yes | head -c 10G", language="bash", session_id=session_id)
    assert found["status"] == "output_limit"
    assert found["stdout_omitted_bytes"] > 1 << 20
    assert (await run(client, "echo $x", language="bash", session_id=session_id))["stdout"] == "7\n"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("[limits]\nmemry = '1GiB'\n", ["limits.memry", "unknown key"]),
        ("[limit]\nmemory = '1GiB'\n", ["limit", "unknown key"]),
        ("[limits]\nmemory = 1024\n", ["limits.memory", "unit"]),
        ("[limits]\nmemory = '1 gig'\n", ["limits.memory", "unit"]),
        ("[limits]\ntimeout = '0s'\n", ["limits.timeout", "above zero"]),
        ("[limits]\npids = -1\n", ["limits.pids", "greater than or equal to 8"]),
        ("[limits]\ncpus = nan\n", ["limits.cpus", "finite"]),
        ("[limits]\ncpus = inf\n", ["limits.cpus", "finite"]),
        ("[sessions]\nmax = 'many'\n", ["sessions.max", "whole number"]),
        ("[sessions]\nidle_timeout = '-1s'\n", ["sessions.idle_timeout", "unit"]),
        ("[backend]\nname = 'none'\n", ["backend.name", "embedded"]),
        ("[files]\nfolders = ['relative']\n", ["files.folders", "absolute"]),
        ("[languages.cobol]\nlibraries = []\n", ["languages.cobol", "unknown language"]),
        ('[pool]\nlanguages = ["cobol"]\n', ["pool.languages", "cobol", "unknown language"]),
        ("[languages.python]\nlibrary = []\n", ["languages.python.library", "unknown key"]),
        ("[limits\n", ["not valid TOML", "line 1"]),
        ("limits = 1\n", ["limits"]),
        ("x = '\xff'\n", ["not valid TOML"]),
        (None, ["cannot be read"]),
    ],
)
async def test_a_mistake_in_the_profile_stops_the_start_with_file_key_and_reason(
    given: str | None, named: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "own.toml"
    if given is not None:
        path.write_bytes(given.encode("latin-1"))
    # Languages are read after this process has changed its limits and its log.
    start = command if "unknown language" in named else called
    done = start("serve", "--profile", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    line = done.stderr.removesuffix("\n")
    assert faults(line.replace(str(path), "FILE"), ["FILE", *named]) == []


async def test_all_rows_can_be_sent_as_json() -> None:
    for rows in ROWS.values():
        for row in rows:
            assert json.loads(json.dumps(row.arguments)) == row.arguments
