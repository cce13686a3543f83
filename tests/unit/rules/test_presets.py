"""Every preset loads, refuses or warns about risky code, and accepts ordinary programs."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.base.errors import ProfileError
from llm_sandbox_mcp.host.folders import CONFIGS
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.rules.presets import preset_names, rules_of
from llm_sandbox_mcp.rules.section import Rule
from tests.documents import DOCUMENTS

from .judges import LANGUAGES, judge

PRESETS = {"development", "production", "strict", "educational", "data_science", "web_scraping", "minimal"}

RISKY = {
    "processes": {
        "python": "import subprocess",
        "javascript": "require('child_process')",
        "java": 'class A { void f() throws Exception { Runtime.getRuntime().exec("ls"); } }',
        "cpp": '#include <cstdlib>\nint main() { std::system("ls"); }',
        "go": 'package main\nimport "os/exec"',
        "ruby": "`ls`",
        "r": "system('ls')",
    },
    "forks": {
        "python": "import os\nos.fork()",
        "bash": ":(){ :|:& };:",
        "cpp": "int main() { fork(); }",
        "ruby": "fork { }",
    },
    "network": {
        "python": "import requests",
        "javascript": "fetch('x')",
        "java": "import java.net.*; class A {}",
        "cpp": "#include <netinet/in.h>\n",
        "go": 'package main\nimport "net/http"',
        "ruby": "require 'net/http'",
        "r": "library(httr)",
        "bash": "curl x",
    },
    "servers": {
        "python": "import http.server",
        "javascript": "require('http').createServer()",
        "ruby": "require 'webrick'",
    },
    "evaluation": {
        "python": "eval(x)",
        "javascript": "new Function(x)",
        "ruby": "eval x",
        "r": "eval(parse(text = x))",
        "bash": "eval $x",
    },
    "native": {
        "python": "import ctypes",
        "cpp": 'int main() { asm("nop"); }',
        "go": 'package main\nimport "unsafe"',
        "ruby": "require 'fiddle'",
    },
    "deletion": {
        "python": "from shutil import rmtree",
        "javascript": "const { rmSync } = require('fs')",
        "cpp": 'namespace fs = std::filesystem; int main() { fs::remove_all("x"); }',
        "go": 'package main\nimport "os"\nfunc main() { os.RemoveAll("x") }',
        "ruby": "FileUtils.rm_rf('x')",
        "r": "unlink('x', recursive = TRUE)",
        "bash": "rm -f -r x",
    },
    "serialisation": {
        "python": "import pickle",
        "java": "import java.io.ObjectInputStream; class A {}",
        "ruby": "Marshal.load(x)",
    },
    "system": {"python": "open('/etc/passwd')", "bash": "cat /etc/shadow", "r": "readLines('/proc/self/environ')"},
    "secrets": {
        "python": 'key = "AKIAABCDEFGHIJKLMNOP"',
        "go": 'package main\nvar k = "-----BEGIN RSA PRIVATE KEY-----"',
    },
}


def rules(preset: str, tmp_path: Path) -> tuple[Rule, ...]:
    path = tmp_path / "profile.toml"
    path.write_text(f'[rules]\npreset = "{preset}"\n')
    return rules_of(load_profile(str(path)).rules)


def hits(language: str, code: str, chosen: tuple[Rule, ...]) -> set[tuple[str, str]]:
    applying = [rule for rule in chosen if not rule.languages or language in rule.languages]
    if not applying:
        return set()
    return {
        (applying[hit.rule].name, applying[hit.rule].severity)
        for hit in judge(language, *applying).judge(code.encode())
    }


def test_the_presets_are_the_documented_ones() -> None:
    assert set(preset_names()) == PRESETS


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_each_rule_of_a_preset_finds_the_code_that_it_is_for(preset: str, tmp_path: Path) -> None:
    chosen = rules(preset, tmp_path)
    names = {rule.name: rule.severity for rule in chosen}
    assert names
    for name, severity in names.items():
        for language, code in RISKY[name].items():
            assert (name, severity) in hits(language, code, chosen), (name, language)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_preset_finds_nothing_in_ordinary_programs(preset: str, tmp_path: Path) -> None:
    chosen = rules(preset, tmp_path)
    for language in LANGUAGES.values():
        for example in language.handler.examples:
            assert hits(language.name, example.code, chosen) == set(), (language.name, example.title)


@pytest.mark.parametrize("code", [":(){ :|:& };:", "bomb() { bomb | bomb & }; bomb", "a::b ()\n{\na::b|a::b&\n}"])
def test_a_function_that_starts_itself_twice_in_the_background_is_found(code: str, tmp_path: Path) -> None:
    assert ("forks", "high") in hits("bash", code, rules("strict", tmp_path))


@pytest.mark.parametrize("code", ["f() { g | f & }", "f() { f | f; }", "f() { echo; }; f | f &"])
def test_any_other_function_is_not_a_fork_bomb(code: str, tmp_path: Path) -> None:
    assert hits("bash", code, rules("strict", tmp_path)) == set()


def test_every_rule_is_in_a_preset_and_has_an_example(tmp_path: Path) -> None:
    assert {rule.name for preset in PRESETS for rule in rules(preset, tmp_path)} == set(RISKY)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("preset = 'harsh'", "rules.preset: unknown preset 'harsh'; available: data_science"),
        (
            "preset = 'strict'\nseverity = { networks = 'low' }",
            "rules.severity.networks: unknown rule 'networks'; available: processes",
        ),
        ("severity = { network = 'low' }", "rules.severity.network: unknown rule 'network'"),
        ("preset = 'strict'\nseverity = { network = 'bad' }", "rules.severity.network: "),
        ("block = 'never'", "rules.block: "),
        ("custom = [{ name = 'a' }]", "rules.custom.0: a rule needs modules, calls, strings, patterns or lines"),
        ("custom = [{ name = 'a', modules = ['os'], level = 3 }]", "rules.custom.0.level: unknown key"),
        ("custom = [{ name = 'a', patterns = ['('] }]", "rules.custom.0.patterns: '(' is not a regular expression"),
        (
            "custom = [{ name = 'a', strings = ['a', '[z'] }]",
            "rules.custom.0.strings: '[z' is not a regular expression",
        ),
        ("custom = [{ name = 'a', patterns = [''] }]", "rules.custom.0.patterns: '' matches any code"),
        ("custom = [{ name = 'a', lines = ['x*'] }]", "rules.custom.0.lines: 'x*' matches any code"),
        ("custom = [{ name = 'a', modules = ['os'], severity = 'bad' }]", "rules.custom.0.severity: "),
        ("custom = [{ modules = ['os'] }]", "rules.custom.0.name: "),
        ("custom = [{ name = 'A b', modules = ['os'] }]", "rules.custom.0.name: "),
        ("custom = [{ name = 'a', modules = [''] }]", "rules.custom.0.modules: a name is empty"),
        ("timeout = '0s'", "rules.timeout: must be above zero"),
    ],
)
def test_a_mistake_is_reported_with_file_and_key(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(f"[rules]\n{text}\n")
    with pytest.raises(ProfileError) as caught:
        load_profile(str(path))
    assert str(caught.value).startswith(f"{path}: {reason}")
    assert "\n" not in str(caught.value)


def test_a_rule_for_an_unknown_language_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text("[rules]\ncustom = [{ name = 'a', modules = ['os'], languages = ['cobol'] }]\n")
    with pytest.raises(ProfileError, match=f"{path}: rules.custom.0.languages: unknown language 'cobol'"):
        load_profile(str(path)).check_languages(LANGUAGES.prepared, LANGUAGES.preloading)


def test_the_profile_changes_severities_and_turns_rules_off(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(
        "[rules]\npreset = 'minimal'\nseverity = { forks = 'off', secrets = 'high', network = 'medium', mine = 'low' }\n"
        "custom = [{ name = 'mine', modules = ['os'] }]\n"
    )
    chosen = {rule.name: rule.severity for rule in rules_of(load_profile(str(path)).rules)}
    assert chosen == {"secrets": "high", "network": "medium", "mine": "low"}


def test_a_profile_without_rules_gives_none() -> None:
    assert rules_of(load_profile().rules) == ()


def test_every_preset_is_named_in_the_documentation_of_rules() -> None:
    page = DOCUMENTS["docs/pages/rules.md"]
    default = (CONFIGS / "default.toml").read_text()
    assert all(f"`{preset}`" in page and preset in default for preset in PRESETS)
