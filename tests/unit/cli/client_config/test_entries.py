"""An entry is put into the text of a host's file, and everything else in it stays."""

import difflib
import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.cli.client_config.entries import json_text, with_entry

ENTRY = {"command": "/opt/llm-sandbox-mcp", "args": ["--profile", "strict"]}
OTHER = {"command": "npx", "args": ["-y", "other"]}

JSON = {
    "nothing": "",
    "only a comment": "// mine\n",
    "an empty object": "{}",
    "an empty table": '{\n  "servers": {}\n}\n',
    "an empty table with a comment": '{\n  "servers": { // none yet\n  }\n}\n',
    "one line": '{"theme": "dark", "servers": {"other": {"command": "npx"}}}',
    "another table": '{\n\t"theme": "dark" // black\n}\n',
    "comments and last commas": """\
// Settings
{
    "theme": "dark", // "servers": {}
    /* the servers,
       all of them */
    "servers": {
        "other": {"command": "npx", "args": ["//", "/*", ",}"],}, // keep, please
    },
    "last": [1, 2,],
}
""",
    "a comment below the last member": '{\n  "servers": {\n    "other": {}\n    // "old": {}\n  }\n}\n',
    "a comment over two lines behind the last member": '{\n  "servers": {\n    "other": {} /* a\n b */ }\n}\n',
    "lines that end as on Windows": '{\r\n  "servers": {\r\n    "other": {} // keep\r\n  }\r\n}\r\n',
}
TOML = {
    "nothing": "",
    "another table": '# mine\nmodel = "o" # which\n\n[tui]\ntheme = "dark"\n',
    "a table": '[mcp_servers.other]\ncommand = "npx" # keep\n\n# after\n[tui]\ntheme = "dark"\n',
    "a table in parts": '[mcp_servers.a]\ncommand = "a"\n\n[tui]\nx = 1\n\n[mcp_servers.b]\ncommand = "b"\n',
    "a table on one line": 'mcp_servers = { other = { command = "npx" } }\nmodel = "o"\n',
}
YAML = {
    "nothing": "",
    "only a comment": "# mine\n",
    "no last newline": "GOOSE_MODEL: x",
    "another table": "# mine\nGOOSE_MODEL: 'x'   # which\n\npaths:\n- a\n-   b\n",
    "a table": """\
GOOSE_MODEL: "x"
extensions:
    # the first
    developer:
        enabled:   true   # keep
        args: [-y,  'b']
        text: >-
            folded
            text

    # the last
    memory:
        enabled: true   # too

# after
slash_commands:
  - command: "run"
""",
    "a table at the end": "extensions:\n  developer:\n    enabled: true\n    args:\n    - -y\n",
    "no last newline in a table": "extensions:\n  developer:\n    enabled: true   # keep",
    "a long text at the end of a table": "extensions:\n  developer:\n    text: |\n      a\n      b\n\n# after\nx: 1\n",
    "an empty table": "extensions: {}\nGOOSE_MODEL: x\n",
    "a table on one line": "extensions: {developer: {enabled: true}}   # keep\nGOOSE_MODEL: x\n",
}
CASES = [
    *(("json", "servers", text) for text in JSON.values()),
    *(("toml", "mcp_servers", text) for text in TOML.values()),
    *(("yaml", "extensions", text) for text in YAML.values()),
]
IDS = [f"{form}: {name}" for form, texts in (("json", JSON), ("toml", TOML), ("yaml", YAML)) for name in texts]


def read(form: str, text: str) -> Any:
    match form:
        case "toml":
            return tomllib.loads(text)
        case "yaml":
            from llm_sandbox_mcp.cli.client_config.entries import yaml_text

            return yaml_text.read(text)
    return json_text.read(text)


@pytest.mark.parametrize(("form", "table", "text"), CASES, ids=IDS)
def test_nothing_but_the_entry_changes(form: str, table: str, text: str) -> None:
    before = read(form, text) or {}
    edited = with_entry(text, form, table, "llm-sandbox", ENTRY)
    assert read(form, edited) == {**before, table: {**before.get(table, {}), "llm-sandbox": ENTRY}}
    # Every character that was there before is still there, in the same order.
    left = iter(edited)
    assert all(character in left for character in text)


@pytest.mark.parametrize(("form", "table", "text"), CASES, ids=IDS)
def test_lines_are_added_and_at_most_two_are_split_or_get_a_comma(form: str, table: str, text: str) -> None:
    edited = with_entry(text, form, table, "llm-sandbox", ENTRY)
    removed = [line for line in difflib.ndiff(text.splitlines(), edited.splitlines()) if line.startswith("- ")]
    assert len(removed) <= 2


@pytest.mark.parametrize(("form", "table", "text"), CASES, ids=IDS)
def test_an_older_entry_is_replaced_where_it_is_and_keeps_what_a_person_added(form: str, table: str, text: str) -> None:
    older = with_entry(text, form, table, "llm-sandbox", {**ENTRY, "args": ["old"], "env": {"KEY": "value"}})
    assert with_entry(older, form, table, "llm-sandbox", {**ENTRY, "args": ["old"]}) == older
    edited = with_entry(older, form, table, "llm-sandbox", ENTRY)
    assert read(form, edited)[table]["llm-sandbox"] == {**ENTRY, "env": {"KEY": "value"}}
    before = read(form, text) or {}
    assert read(form, edited) == {
        **before,
        table: {**before.get(table, {}), "llm-sandbox": {**ENTRY, "env": {"KEY": "value"}}},
    }


@pytest.mark.parametrize(
    ("form", "text", "reason"),
    [
        ("json", '{"a": 1', "line 1 column 8"),
        ("json", "[]", "servers is not a table"),
        ("json", '{"servers": null}', "servers is not a table"),
        ("json", "{'a': 1}", "line 1 column 2"),
        ("toml", "a = \n", "line 1"),
        ("toml", "servers = 1\n", "servers is not a table"),
        ("yaml", "a: [\n", "line 2"),
        ("yaml", "servers:\n", "servers is not a table"),
        ("yaml", "a: 1\na: 2\n", "line 2"),
        ("yaml", "- a\n", "servers is not a table"),
        ("yaml", "a: 1\n---\nb: 1\n", "single document"),
    ],
)
def test_a_text_that_cannot_be_edited_is_refused_with_the_reason(form: str, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        with_entry(text, form, "servers", "llm-sandbox", ENTRY)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(
    content=st.dictionaries(st.text() | st.just("servers"), PLAIN, max_size=3),
    servers=st.dictionaries(st.text() | st.just("llm-sandbox"), st.dictionaries(st.text(), PLAIN, max_size=2)),
    indent=st.sampled_from([None, 0, 1, 4, "\t"]),
    escaped=st.booleans(),
)
def test_any_json_can_be_edited(content: Any, servers: Any, indent: Any, escaped: bool) -> None:
    content["servers"] = servers
    text = json.dumps(content, indent=indent, ensure_ascii=escaped)
    edited = json.loads(with_entry(text, "json", "servers", "llm-sandbox", ENTRY))
    whole = {**servers.get("llm-sandbox", {}), **ENTRY}
    assert edited == {**content, "servers": {**servers, "llm-sandbox": whole}}
