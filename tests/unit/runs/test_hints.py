"""Hints about errors: which library to install, that there is no network, what notebooks have and a sandbox has not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.destinations import Destination
from llm_sandbox_mcp.errors import InvalidArgument, PolicyDenied
from llm_sandbox_mcp.languages import Language, included_languages
from llm_sandbox_mcp.messages import Note, worded
from llm_sandbox_mcp.policy import Network
from llm_sandbox_mcp.runs.hints import hint_of
from llm_sandbox_mcp.runs.requests import without_notebook_lines
from llm_sandbox_mcp.server.words import TOOLS

LANGUAGES = included_languages()
PYTHON = LANGUAGES["python"]
NOTHING = Network()
UNREACHABLE = "socket.gaierror: [Errno -3] Temporary failure in name resolution\n"


def allow(language: Language, library: str) -> None:
    """Every library is allowed."""


def hint(text: str, language: Language = PYTHON, network: Network = NOTHING) -> Note | None:
    return hint_of([language], text.encode(), network, allow)


@pytest.mark.parametrize(
    ("language", "error", "library"),
    [
        ("python", "ModuleNotFoundError: No module named 'requests'\n", "requests"),
        ("python", "ModuleNotFoundError: No module named 'cv2'\n", "opencv-python-headless"),
        ("python", "    !pip install -q --upgrade pandas==2.2\n    ^\nSyntaxError: invalid syntax\n", "pandas"),
        ("python", "    %pip install polars\n    ^\nSyntaxError: invalid syntax\n", "polars"),
        ("javascript", "Error: Cannot find module 'lodash'\nRequire stack:\n", "lodash"),
        ("javascript", "Cannot find package '@scope/name' imported from /sandbox/[code]\n", "@scope/name"),
        ("javascript", "Error: Cannot find module 'lodash/fp'\n", "lodash"),
        ("ruby", "in `require': cannot load such file -- active_support/all (LoadError)\n", "activesupport"),
        ("ruby", "in `require': cannot load such file -- nokogiri (LoadError)\n", "nokogiri"),
        ("r", "  there is no package called \u2018ggplot2\u2019\n", "ggplot2"),
        ("go", "main.go:2:8: cannot find module providing package github.com/a/b: lookup off\n", "github.com/a/b"),
        ("java", "error: package com.google.gson does not exist\n", "the library that contains com.google.gson"),
        ("cpp", "main.cpp:1:10: fatal error: boost/any.hpp: No such file or directory\n", "libboost-dev"),
        ("cpp", "main.cpp:1:10: fatal error: png.h: No such file or directory\n", "the library that contains png.h"),
    ],
)
def test_a_missing_library_is_named_as_it_is_installed(language: str, error: str, library: str) -> None:
    found = hint(error, LANGUAGES[language])
    assert found is not None
    assert (found.code, found.facts) == ("missing_library", {"library": library, "language": language})
    assert worded(found, TOOLS).endswith(
        f"; call install_libraries with {library}, language {language} and this session_id"
    )


@pytest.mark.parametrize(
    ("language", "error"),
    [
        ("python", "ModuleNotFoundError: No module named 'sklearn.nothing'\n"),
        ("javascript", "Error: Cannot find module './helper'\n"),
        ("ruby", "in `require_relative': cannot load such file -- /sandbox/helper (LoadError)\n"),
        ("bash", "ModuleNotFoundError: No module named 'cv2'\n"),
        ("python", "ZeroDivisionError: division by zero\n"),
        ("python", ""),
    ],
)
def test_other_errors_get_no_hint(language: str, error: str) -> None:
    assert hint(error, LANGUAGES[language]) is None


@pytest.mark.parametrize(
    "error",
    [
        "PermissionError: [Errno 13] Permission denied: '/data/own/a.csv'\n",
        "cat: /data/own/a.csv: Permission denied\n",
        "Error: EACCES: permission denied, open '/data/own/a.csv'\n",
        "a.rb:1:in `initialize': Permission denied @ rb_sysopen - /data/own/a.csv (Errno::EACCES)\n",
        "cannot open file '/data/own/a.csv': Permission denied\n",
        "open /data/own/a.csv: permission denied\n",
        "java.nio.file.AccessDeniedException: /data/own/a.csv\n",
    ],
)
def test_a_private_file_of_the_users_can_be_copied_in(error: str) -> None:
    found = hint(error)
    assert found is not None
    assert found.code == "private_file"
    assert worded(found, TOOLS) == (
        "below /data, code can read only what every user of this machine can read; "
        "copy_file copies single files, by host_path"
    )


@pytest.mark.parametrize(
    "error",
    [
        "cat: /etc/shadow: Permission denied\n",
        "/data/own\nPermission denied\n",
        "cat: /sandbox/data/a.csv: Permission denied\n",
        "PermissionError: [Errno 13] Permission denied: '/sandbox/data/a.csv'\n",
    ],
)
def test_other_files_that_cannot_be_read_get_no_hint(error: str) -> None:
    assert hint(error) is None


def test_a_library_that_the_profile_denies_is_not_offered() -> None:
    def deny(language: Language, library: str) -> None:
        raise PolicyDenied(f"{library} is denied by the profile; do without it")

    found = hint_of([PYTHON], b"ModuleNotFoundError: No module named 'yaml'\n", Network(), deny)
    assert found == "'yaml' is not installed; pyyaml is denied by the profile; do without it"


def test_a_name_that_cannot_be_a_library_gets_no_hint() -> None:
    def refuse(language: Language, library: str) -> None:
        raise InvalidArgument("not a plain name")

    assert hint_of([PYTHON], b"ModuleNotFoundError: No module named '_x'\n", Network(), refuse) is None


@pytest.mark.parametrize(
    ("language", "error"),
    [
        ("python", UNREACHABLE),
        ("python", "OSError: [Errno 101] Network is unreachable\n"),
        ("python", "OSError: Tunnel connection failed: 403 Forbidden\n"),
        ("javascript", "    code: 'ENOTFOUND',\n"),
        ("ruby", "getaddrinfo: Name or service not known (SocketError)\n"),
        ("r", "  URL 'http://a/': status was 'Couldn't resolve host name'\n"),
        ("bash", "curl: (6) Could not resolve host: example.com\n"),
        ("go", 'Get "http://a": dial tcp: lookup a: Temporary failure in name resolution\n'),
        ("java", 'Exception in thread "main" java.net.UnknownHostException: example.com\n\tat java.base/a\n'),
        ("cpp", "a: Temporary failure in name resolution\n"),
    ],
)
def test_code_that_looks_for_a_network_is_told_that_there_is_none(language: str, error: str) -> None:
    found = hint(error, LANGUAGES[language])
    assert found is not None
    assert (found.code, found.cause) == ("no_network", "code here has no network")


def test_code_that_may_reach_some_hosts_is_told_which() -> None:
    hosts = tuple(Destination(f"{name}.example", 443) for name in "abcdefg")
    found = hint(UNREACHABLE, network=Network("allow", hosts[:2]))
    assert found is not None and found.cause == "code here reaches only a.example, b.example"
    found = hint(UNREACHABLE, network=Network("allow", hosts))
    assert found is not None and found.cause.endswith("e.example and 2 more")
    assert hint(UNREACHABLE, network=Network("open")) is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("!ls -la", "run commands in language bash"),
        ("files = !ls", "run commands in language bash"),
        ("%timeit f()", "write Python instead"),
        ("df?", "call help()"),
        ("df.head??", "call help()"),
    ],
)
def test_commands_of_notebooks_are_answered_with_what_to_do(line: str, told: str) -> None:
    found = hint(f'  File "<cell 1>", line 1\n    {line}\n    ^\nSyntaxError: invalid syntax\n')
    assert found is not None and told in found


def test_the_last_error_decides() -> None:
    missing = "ModuleNotFoundError: No module named 'cv2'\n"
    for text, code in ((missing + UNREACHABLE, "no_network"), (UNREACHABLE + missing, "missing_library")):
        found = hint(text)
        assert found is not None and found.code == code
    assert hint(missing + "x" * 5000) is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_output_that_attacks_a_pattern_is_searched_in_linear_time(language: str) -> None:
    # Far longer than what is searched: quadratic time would exceed the time limit of a test.
    for one in LANGUAGES[language].handler.hints:
        for part in {" ", "a", "a ", "a, ", "-a ", *re.findall(r"\w[\w,: -]+", one.stderr)}:
            for beginning in ("", "  !", "  a"):
                re.findall(one.stderr, beginning + part * (100_000 // len(part)), re.MULTILINE)


@given(st.sampled_from(list(LANGUAGES.values())), st.lists(st.sampled_from(["!", "%", "?", "\n", " ", "a'", "\x1b"])))
def test_no_output_breaks_the_note_out_of_its_line(language: Language, parts: list[str]) -> None:
    text = "".join(parts)
    for error in (text, f"No module named '{text}'\n", f"Cannot find module '{text}'", f"!pip install {text}"):
        found = hint(error, language)
        assert found is None or found.isprintable()


@pytest.mark.parametrize(
    ("code", "rest"),
    [
        ("%matplotlib inline\nx = 1", "\nx = 1"),
        ("%%time\nx", "\nx"),
        ("  %load_ext autoreload\n%autoreload 2", "\n"),
        ("%matplotlib inline", ""),
        ("%timeit x", None),
        ("x = 5\nx %config", None),
        ("x = 1", None),
    ],
)
def test_lines_that_only_set_up_a_notebook_become_empty(code: str, rest: str | None) -> None:
    assert without_notebook_lines(code, PYTHON) == rest
    assert without_notebook_lines(code, LANGUAGES["bash"]) is None
