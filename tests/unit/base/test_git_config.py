"""The part of a repository's config that code sees: what git needs, and no secrets."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llm_sandbox_mcp.base.git_config import MOST, clean, has_secrets
from tests.effort import tries

TOKEN = b"x0TOKEN0x"

CLONED = b"""[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	logallrefupdates = true
[remote "origin"]
	url = https://github.com/someone/project.git
	fetch = +refs/heads/*:refs/remotes/origin/*
[branch "fix-token-refresh"]
	remote = origin
	merge = refs/heads/fix-token-refresh
[submodule "lib"]
	active = true
	url = ssh://git@host.example:22/lib
"""


def test_what_git_writes_for_a_clone_is_shown_as_it_is() -> None:
    assert clean(CLONED) == CLONED
    assert not has_secrets(CLONED)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:pw@host.example/x.git", "https://host.example/x.git"),
        ("https://pw@host.example:8443/x", "https://host.example:8443/x"),
        ("HTTPS://a@b:pw@[::1]:8443/x", "HTTPS://[::1]:8443/x"),
        ("https://host.example/x?private_token=pw", "https://host.example/x"),
        ("https://host.example/x#pw", "https://host.example/x"),
        ("ssh://git:pw@host.example/x", "ssh://git@host.example/x"),
        ("ssh://git%3Apw@host.example/x", "ssh://host.example/x"),
        ("git@host.example:x?pw", "git@host.example:x"),
        ("https://user:p/w@host.example/x", None),
        ("https://user:pw%40host.example/x", None),
        ("https://host.example/https://user:pw@other.example", None),
        ("user:pw@host.example:x", None),
        ("ext::sh -c pw", None),
        ("x::https://user:pw@host.example/x", None),
        ("pw@host.example/x", None),
        ("https://host.example/x\\npw", None),
    ],
)
def test_an_address_loses_what_may_be_a_secret(url: str, shown: str | None) -> None:
    for section, key in (("remote", "url"), ("remote", "pushurl"), ("branch", "remote"), ("submodule", "url")):
        config = f'[{section} "x"]\n\t{key} = "{url}"\n'.encode()
        assert clean(config).decode() == ("" if shown is None else f'[{section} "x"]\n\t{key} = {shown}\n')
        assert has_secrets(config)


@pytest.mark.parametrize(
    "url",
    [
        *("https://host.example/x.git", "https://host.example:8443/~me/x", "ssh://git@host.example/x", "file:///srv/x"),
        *("git@host.example:some/x.git", "host.example:x", "git@[::1]:x", "/srv/x@y", "../x", "origin", "."),
    ],
)
def test_an_address_without_a_secret_stays(url: str) -> None:
    config = f'[remote "x"]\n\turl = {url}\n'.encode()
    assert clean(config) == config
    assert not has_secrets(config)


@pytest.mark.parametrize(
    "config",
    [
        '[credential "https://user:pw@host.example"]\nhelper = store',
        "[credential]\nusername = pw",
        "[credential]\nhelper = !f() { echo password=pw; }; f",
        "[http]\nextraHeader = AUTHORIZATION: basic pw",
        '[http "https://host.example/"]\nextraheader = pw',
        "[http]\nproxy = http://user:pw@proxy.example:8080",
        "[http]\nproxy = user:pw@proxy.example:8080",
        "[sendemail]\nsmtpPass = pw",
        "[hub]\noauthtoken = pw",
        "[azure]\npat = pw",
        "[azure]\ndevopsPat = pw",
        "[x]\napiKey = pw",
        '[x "secret"]\nvalue = pw',
        '[url "https://user:pw@host.example/"]\ninsteadOf = https://host.example/',
        '[remote "https://user:pw@host.example/"]\nfetch = x',
        '[remote "origin"]\nproxy = user:pw@proxy.example',
        '[branch "x"]\ndescription = the token is pw',
        "[lfs]\nurl = https://host.example/x?key=pw",
        "[alias]\nx = !curl -H 'Private-Token: pw' https://host.example/",
        '[core]\nsshCommand = "sshpass -p pw ssh"',
        "[core]\nbare = false\n# url = https://user:pw@host.example/x",
        "[core]\nbare = false ; password: pw",
        "[user]\nname = see https://user:pw@host.example/",
    ],
)
def test_a_config_with_a_secret_is_known_and_loses_it(config: str) -> None:
    assert has_secrets(config.encode())
    assert b"pw" not in clean(config.encode())


@pytest.mark.parametrize(
    "config",
    [
        "[credential]\nhelper = store",
        '[credential "https://host.example"]\nhelper =\nhelper = !gh auth git-credential\nuseHttpPath = true',
        "[http]\ncookieFile = ~/.cookies\nproxy = http://proxy.example:8080\npostBuffer = 500",
        "[include]\npath = ../shared",
        '[url "ssh://git@host.example/"]\ninsteadOf = https://host.example/',
        '[url "git@host.example:"]\ninsteadOf = https://host.example/',
        '[filter "lfs"]\nclean = git-lfs clean -- %f\nrequired',
        '[lfs "https://host.example/x.git/info/lfs"]\naccess = basic',
        "[core]\nhooksPath = /home/me/tokenizers/.husky\nsshCommand = ssh -i ~/.ssh/id_work\nfsmonitor",
        "[gc]\nauto = 0 ; it is slow",
        '[branch "fix-token"]\nvscode-merge-base = origin/main',
    ],
)
def test_settings_that_are_not_shown_are_not_always_secrets(config: str) -> None:
    assert not has_secrets(config.encode())
    assert clean(config.encode()) == b""


def test_commands_are_not_shown() -> None:
    config = (
        b'[submodule "x"]\nupdate = !echo\nupdate = rebase\n[core]\nfsmonitor = echo\npager = echo\neditor = echo\n'
    )
    assert clean(config) == b'[submodule "x"]\n\tupdate = rebase\n'


def test_a_config_that_is_too_large_cannot_be_judged_and_gives_nothing() -> None:
    config = CLONED + b"#" * (MOST - len(CLONED))
    assert (clean(config), has_secrets(config)) == (CLONED, False)
    assert (clean(config + b"#"), has_secrets(config + b"#")) == (b"", True)


@pytest.mark.parametrize(
    "rest",
    [
        *(b"[core", b"[core]]", b"[ core]", b'[core "x" ]', b'[core "x', b'[core "x\ny"]', b"[core_x]", b"[]", b'[""]'),
        *(
            b"bare = \\q",
            b'bare = "x',
            b"bare = x\0",
            b"bare # x",
            b"bare ; x",
            b"1bare = x",
            b"= x",
            b"b_re = x",
            b"\0",
        ),
    ],
)
def test_of_a_malformed_config_what_is_before_the_mistake_counts(rest: bytes) -> None:
    config = CLONED + rest + b"\n[core]\nbare = true\n"
    assert (clean(config), has_secrets(config)) == (CLONED, True)


BEGINNINGS = (b"", b"# ", b"[core]\nabbrev = ", b'[core]\nabbrev = "', b"[x]\ny = ", b'[remote "x"]\nurl = ')
"""What is before the repeated part: each part has one or, in `make test-all`, all of them."""


@pytest.mark.parametrize(
    "part",
    [
        *(
            b"[",
            b"[a",
            b'[a "',
            b'[a "\\',
            b'[a "b"]',
            b"a",
            b"a=",
            b"[core]\nbare=",
            b'[core]\nbare="',
            b"[core]\nbare=\\",
        ),
        *(b" ", b"\r", b"\n", b"\\", b'"', b"#", b"://", b"a:", b"@", b"a:b@", b"ssh://a@", b"ssh://a"),
        *(b"[core]bare\n", b'[remote "a"]url=a://', b" token", b"tok", b'"a" ', b"\\\n", b"a ", b"A"),
    ],
)
def test_a_config_that_attacks_the_parser_is_read_in_linear_time(part: bytes) -> None:
    # Quadratic time would exceed the time limit of a test.
    size = min(MOST, tries(MOST))
    for beginning in random.Random(part).sample(BEGINNINGS, min(len(BEGINNINGS), tries(1))):
        config = beginning + part * ((size - len(beginning)) // len(part))
        clean(config)
        has_secrets(config)


SYNTAX = st.sampled_from(
    [
        *(
            b"[core]",
            b"[Core]",
            b"[user]\n",
            b'[remote "x"]\n',
            b'[remote "a\\"\\\\\\c"]',
            b"[remote.X]\n",
            b'[remote "#;]"]',
        ),
        *(b"abbrev", b"eol", b"bare = ", b"\nWORKTREE =", b"\nname=", b"\nfetch = ", b"\nprune\n", b"\ntagopt=x"),
        *(
            b"\n",
            b"\n",
            b"\r\n",
            b"\r",
            b" ",
            b"\t",
            b"\\\n",
            b"\\\r\n",
            b"\\",
            b'"',
            b"#",
            b";",
            b"=",
            b"]",
            b"\xef\xbb\xbf",
        ),
        *(b"\\n", b"\\t", b"\\b", b'\\"', b"\\\\", b"a", b"b c", b"\xff", b"\x0b", b"-", b".", b"\xc3\xa4", b'"x y"'),
    ]
)


@given(st.lists(SYNTAX | st.binary(max_size=3), max_size=40).map(b"".join) | st.binary())
def test_no_bytes_are_an_error_and_what_is_shown_is_shown_again_and_is_safe(config: bytes) -> None:
    has_secrets(config)
    shown = clean(config)
    assert clean(shown) == shown
    assert not has_secrets(shown)


def read(config: bytes, folder: Path) -> list[bytes] | None:
    """The settings as git reads them; None if it refuses the file."""
    (folder / "config").write_bytes(config)
    done = subprocess.run(
        ["git", "config", "--file", "config", "--list", "-z"], cwd=folder, capture_output=True, check=False
    )
    # Git turned other space within a value into spaces until 2.45.
    listed = done.stdout.replace(b"\t", b" ").replace(b"\r", b" ").split(b"\0")[:-1]
    return None if done.returncode else listed


NEEDS_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
PLAIN = {b"core": {b"abbrev", b"eol", b"bare", b"worktree"}, b"user": {b"name"}}


def is_shown(setting: bytes) -> bool:
    """Whether this one of the keys in `SYNTAX` is shown in its section."""
    section, _, rest = setting.partition(b"\n")[0].partition(b".")
    _, named, key = rest.rpartition(b".")
    return section == b"remote" and key in {b"fetch", b"prune", b"tagopt"} if named else key in PLAIN.get(section, ())


@NEEDS_GIT
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SYNTAX, max_size=30).map(b"".join))
@example(b"[core]abbrev = x \\\n y \\\r\n  # z \\\neol")
@example(b'[core]abbrev = "" x "" ; y')
@example(b'[remote "a\\\nb"]fetch')
@example(b"[core]abbrev = x\\")
def test_git_reads_the_same_from_what_is_shown(tmp_path: Path, config: bytes) -> None:
    theirs = read(config, tmp_path)
    if theirs is None:
        assert has_secrets(config)
    else:
        assert read(clean(config), tmp_path) == [*filter(is_shown, theirs)]


NAMES = st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), max_size=10)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@NEEDS_GIT
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES.filter(lambda name: "@" not in name), VALUES.filter(lambda value: "@" not in value and "?" not in value))
def test_any_name_and_value_that_git_writes_is_shown_as_git_reads_it(tmp_path: Path, name: str, value: str) -> None:
    file = tmp_path / "written"
    file.unlink(missing_ok=True)
    for key in ("core.worktree", f"remote.{name}.tagopt"):
        done = subprocess.run(["git", "config", "--file", file, key, value], capture_output=True, check=False)
        if done.returncode:  # names that git does not write, such as those with a carriage return
            return
    assert read(clean(file.read_bytes()), tmp_path) == read(file.read_bytes(), tmp_path)
    assert (read(file.read_bytes(), tmp_path) or [])[0].startswith(b"core.worktree\n")


PLACES = st.sampled_from(
    [
        *(
            b'[remote "x"]url = https://%s@host/x',
            b'[remote "x"]\npushurl = "https://u:%s@host/x"',
            b"[http]\nextraheader = %s",
        ),
        *(b'[url "https://u:%s@host/"]\ninsteadof = x', b'[remote "https://%s@host"]url = x', b"[x]\ny = %s", b"# %s"),
        *(
            b'[remote "x"]url = https://host/?t=%s',
            b'[branch "x"]remote = https://:%s@host/x',
            b"[sendemail]smtppass = %s",
        ),
        *(b'[credential "https://%s@host"]\nhelper = x', b"[core]\nsshcommand = %s", b"[core]bare = false # %s"),
        *(b"[include]path = %s", b"[core]\nabbrev = ssh://u:%s@host", b'[submodule "u:%s@host:x"]active', b"[core]%s"),
        *(
            b'[remote "x"]url = u:%s@host:x',
            b'[remote "x"]url = https://\\\nu:"%s"@host',
            b'[remote "x"]url = u://a/%s@b',
        ),
    ]
)


@given(st.lists((PLACES.map(lambda place: place % TOKEN) | SYNTAX).map(lambda line: line + b"\n")).map(b"".join))
def test_no_planted_token_is_shown(config: bytes) -> None:
    assert TOKEN.lower() not in clean(config).lower()
