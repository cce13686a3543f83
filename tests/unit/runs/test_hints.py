"""Hints about errors: which library to install, that there is no network, why a file of a folder was refused, what
notebooks have and a sandbox has not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.base.destinations import Destination
from llm_sandbox_mcp.base.errors import InvalidArgument, PolicyDenied
from llm_sandbox_mcp.base.messages import Note, worded
from llm_sandbox_mcp.base.open_folders import OpenFolder, View
from llm_sandbox_mcp.base.policy import Network
from llm_sandbox_mcp.languages.languages import Language, included_languages
from llm_sandbox_mcp.runs.hints import Printed, hint_of
from llm_sandbox_mcp.runs.requests import without_notebook_lines
from llm_sandbox_mcp.server.words import TOOLS

LANGUAGES = included_languages()
PYTHON = LANGUAGES["python"]
NOTHING = Network()
VIEWS = {
    View("/data/shown", OpenFolder("/home/me/shown")): True,
    View("/data/own", OpenFolder("/home/me/own")): False,
    View("/data/out", OpenFolder("/home/me/out", writable=True)): False,
}
"""Folders as code sees them: mounted, and two copies."""
UNREACHABLE = "socket.gaierror: [Errno -3] Temporary failure in name resolution\n"


def allow(language: Language, library: str) -> None:
    """Every library is allowed."""


def hint(text: str, language: Language = PYTHON, network: Network = NOTHING) -> Note | None:
    return hint_of(Printed(text.encode(), [language], network, VIEWS), allow)


def missing_header(header: str) -> str:
    """What g++ prints about a header, written as in the code."""
    return f"fatal error: {header[1:-1]}: No such file or directory\n    1 | #include {header}\n      |          ^~~\n"


@pytest.mark.parametrize(
    ("language", "error", "library"),
    [
        ("python", "ModuleNotFoundError: No module named 'requests'\n", "requests"),
        ("python", "ModuleNotFoundError: No module named 'cv2'\n", "opencv-python-headless"),
        (
            "python",
            "ImportError: Unable to find a usable engine; tried using: 'pyarrow', 'fastparquet'.\n"
            " - `Import fastparquet` failed. Use pip, conda, or another tool to install the fastparquet package.\n",
            "pyarrow",
        ),
        ("python", "ImportError: Missing optional dependency 'lxml'.  Use pip or conda to install lxml.\n", "lxml"),
        ("python", "ImportError: `Import bs4` failed.  Use pip or conda to install it.\n", "beautifulsoup4"),
        ("python", "ValueError: \nThis needs Kaleido:\n\n    $ pip install --upgrade kaleido\n", "kaleido"),
        ("python", "    !pip install -q --upgrade pandas==2.2\n    ^\nSyntaxError: invalid syntax\n", "pandas"),
        ("python", "    %pip install polars\n    ^\nSyntaxError: invalid syntax\n", "polars"),
        ("python", "    pip install -U numpy==2; x = 1\n        ^^^^^^^\nSyntaxError: invalid syntax\n", "numpy"),
        ("python", "    conda install numpy\n          ^^^^^^^\nSyntaxError: invalid syntax\n", "numpy"),
        ("python", "/opt/e/bin/python3: No module named pytest\n", "pytest"),
        ("python", "/bin/sh: 1: black: not found\n", "black"),
        ("python", "FileNotFoundError: [Errno 2] No such file or directory: 'ruff'\n", "ruff"),
        ("javascript", "npm i -D lodash@4\n    ^\n\nSyntaxError: Unexpected identifier 'i'\n", "lodash"),
        ("javascript", "yarn add @scope/name\n     ^^^\n\nSyntaxError: Unexpected identifier 'add'\n", "@scope/name"),
        ("javascript", "/bin/sh: 1: eslint: not found\n", "eslint"),
        ("javascript", "Error: Cannot find module 'lodash'\nRequire stack:\n", "lodash"),
        ("javascript", "Cannot find package '@scope/name' imported from /sandbox/[code]\n", "@scope/name"),
        ("javascript", "Error: Cannot find module 'lodash/fp'\n", "lodash"),
        ("ruby", "in `require': cannot load such file -- active_support/all (LoadError)\n", "activesupport"),
        ("ruby", "in `require': cannot load such file -- nokogiri (LoadError)\n", "nokogiri"),
        ("r", "  there is no package called \u2018ggplot2\u2019\n", "ggplot2"),
        ("go", "main.go:2:8: cannot find module providing package github.com/a/b: lookup off\n", "github.com/a/b"),
        ("go", "go: module github.com/a/b: module lookup disabled by GOPROXY=off\n", "github.com/a/b"),
        ("javascript", "npm error request to http://x/tsc failed: cache mode is 'only-if-cached' but\n", "typescript"),
        ("go", "go: github.com/a/b@latest: module lookup disabled by GOPROXY=off\n", "github.com/a/b"),
        (
            "javascript",
            "npm error request to http://x:4873/lodash failed: cache mode is 'only-if-cached' but no cached\n",
            "lodash",
        ),
        ("ruby", "ERROR:  Could not find a valid gem 'colorize' (>= 0) in any repository\n", "colorize"),
        ("java", "error: package com.google.gson does not exist\n", "the library that contains com.google.gson"),
        ("cpp", "main.cpp:1:10: fatal error: boost/any.hpp: No such file or directory\n", "libboost-dev"),
        ("cpp", "main.cpp:1:10: fatal error: png.h: No such file or directory\n", "the library that contains png.h"),
        ("cpp", f"a.cpp:1:10: {missing_header('<png.h>')}", "the library that contains png.h"),
        ("cpp", f"a.cpp:1:10: {missing_header('<nlohmann/json.hpp>')}", "nlohmann-json3-dev"),
        ("cpp", "a.cpp:1:10: " + missing_header('"nlohmann/json.hpp"'), "nlohmann-json3-dev"),
    ],
)
def test_a_missing_library_is_named_as_it_is_installed(language: str, error: str, library: str) -> None:
    found = hint(error, LANGUAGES[language])
    assert found is not None
    assert (found.code, found.facts) == ("missing_library", {"library": library, "language": language})
    assert found.startswith("code asked for '")
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
        ("python", "FileNotFoundError: [Errno 2] No such file or directory: 'ruff.csv'\n"),
        ("python", "the file black was not found\n"),
        ("python", "ZeroDivisionError: division by zero\n"),
        ("python", ""),
    ],
)
def test_other_errors_get_no_hint(language: str, error: str) -> None:
    assert hint(error, LANGUAGES[language]) is None


@pytest.mark.parametrize(
    ("program", "library", "language"),
    [
        ("pytest", "pytest", "python"),
        ("tsc", "typescript", "javascript"),
        ("prettier", "prettier", "javascript"),
        ("rubocop", "rubocop", "ruby"),
    ],
)
def test_a_program_that_a_library_brings_is_named_with_its_language(program: str, library: str, language: str) -> None:
    bash = LANGUAGES["bash"]
    among = [bash, *(LANGUAGES[name] for name in bash.handler.companions)]
    found = hint_of(
        Printed(f"./script.sh: line 1: {program}: command not found\n".encode(), among, NOTHING, VIEWS), allow
    )
    assert found is not None
    assert worded(found, TOOLS) == (
        f"code asked for '{program}', which is not installed; "
        f"call install_libraries with {library}, language {language} and this session_id"
    )


def test_advice_that_code_prints_is_not_a_call_of_a_package_manager() -> None:
    advice = b"UserWarning: it is slow; for more speed:\n    pip install numexpr\n"
    assert hint_of(Printed(advice, [PYTHON], NOTHING, VIEWS, failed=False), allow) is None


@pytest.mark.parametrize(
    ("header", "beginning"),
    [
        ("<format>", "this compiler has no <format>"),
        ("<print>", "this compiler has no <format> and no <print>"),
        ("<mdspan>", "this compiler does not have this header of a newer C++ standard; "),
        ("<conio.h>", "this header belongs to Windows, "),
        ("<Windows.h>", "this header belongs to Windows, "),
        ('"windows.h"', "this header belongs to Windows, "),
        ('"util.h"', "the code includes a file, in quotes, that is not beside it; "),
        ('"sub/my util.hpp"', "the code includes a file, in quotes, that is not beside it; "),
    ],
)
def test_a_header_that_no_library_contains_has_its_own_hint(header: str, beginning: str) -> None:
    found = hint(f"main.cpp:1:10: {missing_header(header)}compilation terminated.\n", LANGUAGES["cpp"])
    assert found is not None and found.startswith(beginning)


IN_JAVA = 'Exception in thread "main" java.'
EMPTY_INPUT = [
    ("python", "EOFError: EOF when reading a line\n"),
    ("java", f"{IN_JAVA}util.NoSuchElementException: No line found\n\tat java.base/java.util.Scanner.nextLine\n"),
    ("java", f"{IN_JAVA}util.NoSuchElementException\n\tat java.base/java.util.Scanner.throwFor(Scanner.java:937)\n"),
    (
        "java",
        f"{IN_JAVA}lang.NumberFormatException: Cannot parse null string: null\n\tat java.base/java.lang.Integer\n",
    ),
    ("java", f"{IN_JAVA}lang.NumberFormatException: null\n\tat java.base/java.lang.Integer.parseInt\n"),
    (
        "java",
        f'{IN_JAVA}lang.NullPointerException: Cannot invoke "String.trim()" because the return value of '
        '"java.io.BufferedReader.readLine()" is null\n\tat Main.main(Main.java:1)\n',
    ),
    ("java", f"{IN_JAVA}lang.NullPointerException\n\tat java.base/java.util.StringTokenizer.<init>(S.java:1)\n"),
    ("go", "2026/11/29 23:00:00 EOF\n"),
    ("go", "panic: unexpected newline\n\ngoroutine 1 [running]:\n"),
    ("go", "cannot read the number: EOF\nexit status 1\n"),
]


@pytest.mark.parametrize(("language", "error"), EMPTY_INPUT)
def test_code_that_finds_its_input_empty_is_told_how_to_give_it(language: str, error: str) -> None:
    found = hint(error, LANGUAGES[language])
    assert found is not None
    assert worded(found, TOOLS) == "standard input is empty; give the text that the code reads in stdin"
    assert hint_of(Printed(error.encode(), [LANGUAGES[language]], NOTHING, VIEWS, given=True), allow) is None


@pytest.mark.parametrize(
    ("language", "error"),
    [
        ("go", "runtime.main_main\u00b7f: function main is undeclared in the main package\n"),
        ("cpp", "(.text+0x17): undefined reference to `main'\ncollect2: error: ld returned 1 exit status\n"),
    ],
)
def test_a_program_without_a_beginning_is_told_what_that_is(language: str, error: str) -> None:
    found = hint(error, LANGUAGES[language])
    assert found is not None and found.startswith("a program begins with ")


def test_a_package_of_a_newer_go_is_neither_a_library_nor_the_callers() -> None:
    found = hint("main.go:2:8: package slices is not in GOROOT (/usr/lib/go-1.19/src/slices)\n", LANGUAGES["go"])
    assert found is not None and found.startswith("this version of Go does not have this package; ")


@pytest.mark.parametrize(
    "error",
    [
        "main.go:2:8: package main/util is not in GOROOT (/usr/lib/go-1.19/src/main/util)\n",
        "main.go:2:8: package util is not in std (/usr/local/go/src/util)\n",
        'main.go:2:8: local import "./util" in non-local package\n',
    ],
)
def test_a_package_of_the_caller_is_not_a_library(error: str) -> None:
    found = hint(error, LANGUAGES["go"])
    assert found is not None and found.startswith("a package of your own is imported by the name of its module; ")


@pytest.mark.parametrize(
    ("language", "error"),
    [
        ("java", f"{IN_JAVA}util.NoSuchElementException\n\tat java.base/java.util.ArrayList$Itr.next(A.java:1)\n"),
        ("java", f'{IN_JAVA}lang.NumberFormatException: For input string: ""\n'),
        ("java", f'{IN_JAVA}lang.NullPointerException: Cannot invoke "String.trim()" because "<local1>" is null\n'),
        ("go", "open EOF: no such file or directory\n"),
        ("go", 'panic: Get "http://example.com": EOF\n'),
    ],
)
def test_other_errors_do_not_speak_of_input(language: str, error: str) -> None:
    assert hint(error, LANGUAGES[language]) is None


REFUSALS = [
    "PermissionError: [Errno 13] Permission denied: '{}/a.csv'\n",
    "PermissionError: [Errno 13] Permission denied: '{}/a.csv' -> '/sandbox/b.csv'\n",
    "PermissionError: [Errno 13] Permission denied: 'a.csv' -> '{}/b.csv'\n",
    "cat: {}/a.csv: Permission denied\n",
    "/dev/fd/249: line 2: {}/a.csv: Permission denied\n",
    "mkdir: cannot create directory \u2018{}/m\u2019: Permission denied\n",
    "rm: cannot remove '{}': Permission denied\n",
    "tar: {}/a.tar: Cannot open: Permission denied\n",
    "Error: EACCES: permission denied, open '{}/a.csv'\n",
    "a.rb:1:in `initialize': Permission denied @ rb_sysopen - {}/a.csv (Errno::EACCES)\n",
    "Permission denied @ rb_file_s_rename - ({}/a.csv, {}/b.csv) (Errno::EACCES)\n",
    "cannot open file '{}/a.csv': Permission denied\n",
    "cannot remove file '{}/a.csv', reason 'Permission denied'\n",
    "open {}/a.csv: permission denied\n",
    "java.nio.file.AccessDeniedException: {}/a.csv\n",
    "java.io.FileNotFoundException: {}/a.csv (Permission denied)\n",
    "  what():  filesystem error: cannot remove: Permission denied [{}/a.csv]\n",
]
"""What languages print about a file in a folder that code may not read or write; also about a read-only file system."""


def read_only(error: str) -> str:
    for letter in "Pp":
        error = error.replace(f"{letter}ermission denied", f"{chr(ord(letter) + 2)}ead-only file system")
    return error.replace("EACCES", "EROFS").replace(
        "AccessDeniedException: {}/a.csv", "FileSystemException: {}/a.csv: Read-only file system"
    )


WRITES = "write to the working directory, or ask the operator to open the folder for writing, with :rw"
COMMITS = "commit in a copy in the working directory (cp -r, then chmod -R u+w), or outside of the sandbox"


@pytest.mark.parametrize("error", REFUSALS)
def test_a_file_of_a_mount_may_be_private_and_can_be_copied_in(error: str) -> None:
    """Whether it was to be read or to be extended is unknown."""
    found = hint(error.replace("{}", "/data/shown"))
    assert found is not None
    assert (found.code, found.facts) == ("private_file", {"place": "/data/shown"})
    assert worded(found, TOOLS) == (
        "in /data/shown, code can read only what every user of this machine can read, and write nothing; "
        "copy_file copies single files, by host_path"
    )


@pytest.mark.parametrize(
    "error", [*((text, "own") for text in REFUSALS), *((read_only(text), "shown") for text in REFUSALS)]
)
def test_code_that_writes_is_told_that_a_folder_is_open_for_reading_only(error: tuple[str, str]) -> None:
    text, name = error
    found = hint(text.replace("{}", f"/data/{name}"))
    assert found is not None
    assert (found.code, found.facts) == ("read_only_folder", {"place": f"/data/{name}"})
    assert found == f"/data/{name} is open for reading only; {WRITES}"


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("fatal: Unable to create '/data/out/.git/index.lock': Permission denied\n", "out"),
        (
            "fatal: cannot lock ref 'refs/heads/z': Unable to create '/data/out/a/.git/z.lock': Permission denied\n",
            "out",
        ),
        ("fatal: Unable to create '/data/own/deep/er/.git/index.lock': Permission denied\n", "own"),
        ("fatal: Unable to create '/data/shown/.git/index.lock': Read-only file system\n", "shown"),
        ("rm: cannot remove '/data/out/.git': Permission denied\n", "out"),
        ("mv: cannot move '/data/out/a' to '/data/out/.git/a': Permission denied\n", "out"),
    ],
)
def test_code_that_commits_is_told_that_a_repository_is_read_only(error: str, name: str) -> None:
    found = hint(error)
    assert found is not None
    assert (found.code, found.facts) == ("read_only_repository", {"place": f"/data/{name}"})
    assert found == f"code can read repositories in /data/{name}, and write nothing in their .git; {COMMITS}"


def test_a_private_file_of_a_mounted_repository_was_to_be_read() -> None:
    found = hint("error: open('/data/shown/.git/config'): Permission denied\n")
    assert found is not None and found.code == "private_file"


def test_of_two_paths_the_one_that_can_be_the_reason_decides() -> None:
    found = hint("PermissionError: [Errno 13] Permission denied: '/data/out/a' -> '/data/own/a'\n")
    assert found is not None and found.facts == {"place": "/data/own"}


@pytest.mark.parametrize(
    "error",
    [
        "cat: /etc/shadow: Permission denied\n",
        "/data/own\nPermission denied\n",
        "cat: /sandbox/data/own/a.csv: Permission denied\n",
        "PermissionError: [Errno 13] Permission denied: '/sandbox/data/own/a.csv'\n",
        "cat: /data/other/a.csv: Permission denied\n",
        "cat: /data/own-2/a.csv: Permission denied\n",
        "cat: /data/out/a.csv: Permission denied\n",
        "cat: /data/out/.gitignore: Permission denied\n",
        "cat: /data/out/.git-x/a: Permission denied\n",
        "cat: /data/out/x.git/a: Permission denied\n",
    ],
)
def test_other_files_that_are_refused_get_no_hint(error: str) -> None:
    """Such as those that code has closed itself, in a folder that is open for writing."""
    assert hint(error) is None


def test_where_code_writes_is_said_if_it_wrote_elsewhere() -> None:
    found = hint("touch: cannot touch '/usr/x': Read-only file system\n")
    assert found == "code writes in its working directory, /sandbox, and in /tmp; use relative paths"
    for folder in ("/content", "/workspace/a"):
        found = hint(f"OSError: Cannot save file into a non-existent directory: '{folder}'\n")
        assert found == "this folder is not here; code works in the folder of its files, so use relative paths"
    assert hint("OSError: Cannot save file into a non-existent directory: '/tmp/a'\n") is None


@pytest.mark.parametrize(
    ("language", "error", "step"),
    [
        ("python", "    ```python\n    ^\nSyntaxError: invalid syntax\n", "give the code alone"),
        ("python", "pytesseract.pytesseract.TesseractNotFoundError: tesseract is not installed\n", "only the operator"),
        ("python", "    Kaleido requires Google Chrome to be installed.\n", "kaleido==0.2.1 with plotly<7"),
        ("bash", "./script.sh: line 2: pdflatex: command not found\n", "ask the operator to install it"),
    ],
)
def test_what_is_not_here_has_a_step(language: str, error: str, step: str) -> None:
    found = hint(error, LANGUAGES[language])
    assert found is not None and step in found


@pytest.mark.parametrize(
    "part", ["/data/own/", "/data/own:", "Permission denied", "Permission denied: '/data/own/a", "'/data/own/.git/"]
)
def test_paths_that_attack_the_pattern_are_searched_in_time(part: str) -> None:
    """Only the end of what was printed is searched, and of that only so much for each path."""
    for end in ("", "Read-only file system", "/.git", "/.gitx: Permission denied"):
        for _ in range(20):
            hint(part * (100_000 // len(part)) + end)


def test_a_library_that_the_profile_denies_is_not_offered() -> None:
    def deny(language: Language, library: str) -> None:
        raise PolicyDenied(f"{library} is denied by the profile; do without it")

    found = hint_of(Printed(b"ModuleNotFoundError: No module named 'yaml'\n", [PYTHON], Network(), {}), deny)
    assert found == "code asked for 'yaml', which is not installed; pyyaml is denied by the profile; do without it"


@pytest.mark.parametrize(
    ("error", "note"),
    [
        ("ModuleNotFoundError: No module named 'evil_pkg'\n", "code asked for 'evil_pkg', which is not installed"),
        (
            "pip: there is no network, so code cannot install: evil-pkg\n",
            "code asked for 'evil-pkg', and cannot install libraries itself",
        ),
    ],
)
def test_a_library_that_code_names_is_named_as_the_wish_of_code(error: str, note: str) -> None:
    found = hint(error)
    assert found is not None and found.cause == note


@pytest.mark.parametrize(
    "error", ["ModuleNotFoundError: No module named 'NAME'", "pip: there is no network, so code cannot install: NAME"]
)
def test_a_name_that_is_too_long_for_one_gets_no_hint(error: str) -> None:
    assert hint(error.replace("NAME", "x" * 3000) + "\n") is None


def test_an_attempt_to_install_without_a_name_says_that_code_cannot() -> None:
    found = hint("error: externally-managed-environment\n")
    assert found == "code cannot install libraries itself; call install() with their names, language python"


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (
            "ModuleNotFoundError: No module named 'tkinter'\n",
            "'tkinter', which cannot be installed; there is no screen",
        ),
        ("ModuleNotFoundError: No module named '_tkinter'\n", "'_tkinter', which cannot be installed; there is no"),
        ("ModuleNotFoundError: No module named 'winreg'\n", "'winreg', which cannot be installed; it belongs to Win"),
        ("ModuleNotFoundError: No module named 'google'\n", "'google', which cannot be installed; google.colab exist"),
        ("ModuleNotFoundError: No module named 'google.colab'\n", "'google.colab', which cannot be installed; google"),
        ("ModuleNotFoundError: No module named '_curses'\n", "'_curses', which is a part of Python; do without it"),
        (
            "pip: there is no network, so code cannot install: json\n",
            "'json', which is a part of Python; do without it",
        ),
        ("    !pip install -U pip\n    ^\nSyntaxError: invalid syntax\n", "'pip', which cannot be installed; name"),
    ],
)
def test_a_module_that_no_library_brings_is_not_offered(error: str, note: str) -> None:
    found = hint(error)
    assert found is not None and found.startswith(f"code asked for {note}")


@pytest.mark.parametrize("end", ["", "(from <cell 1>#1) : \n"])
@pytest.mark.parametrize(
    ("call", "library"),
    [
        ('install.packages("praise")', "praise"),
        ('install.packages(c("data.table", "zoo"), repos = "http://cran.example")', "data.table"),
        ("install.packages(wanted)", "their names"),
    ],
)
def test_the_note_about_an_installation_in_r_names_the_library(call: str, library: str, end: str) -> None:
    printed = (
        f"Installing package into \u2018/usr/local/lib/R/site-library\u2019\nError in {call} {end or ': '}"
        f"  unable to install packages\nWarning message:\nIn {call} :\n"
        "  'lib = \"/usr/local/lib/R/site-library\"' is not writable\n"
    )
    found = hint(printed, LANGUAGES["r"])
    assert found is not None and found.facts == {"library": library, "language": "r"}


def test_a_name_that_cannot_be_a_library_gets_no_hint() -> None:
    def refuse(language: Language, library: str) -> None:
        raise InvalidArgument("not a plain name")

    assert hint_of(Printed(b"ModuleNotFoundError: No module named '_x'\n", [PYTHON], Network(), {}), refuse) is None


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
    private = "cat: /data/shown/a: Permission denied\n"
    for text, code in (
        (missing + UNREACHABLE, "no_network"),
        (private + UNREACHABLE + missing, "missing_library"),
        (missing + private, "private_file"),
        (private + read_only(private), "read_only_folder"),
    ):
        found = hint(text)
        assert found is not None and found.code == code
    # Only the last bytes are searched.
    assert hint(missing + "x" * (4096 - len(missing))) is not None
    assert hint(missing + "x" * (4097 - len(missing))) is None


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


@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize(
    ("error", "facts"),
    [
        ("npm error request to http://x/cowsay failed: cache mode is 'only-if-cached' but\n", ("cowsay", "javascript")),
        ("ERROR:  Could not find a valid gem 'rspec' (>= 0) in any repository\n", ("rspec", "ruby")),
        ("Cannot find module 'lodash'\n", None),
    ],
)
def test_package_managers_of_all_languages_are_known_to_code_of_each(
    error: str, facts: tuple[str, str] | None, *, failed: bool
) -> None:
    others = LANGUAGES.values()
    found = hint_of(Printed(error.encode(), [PYTHON], NOTHING, VIEWS, others=others, failed=failed), allow)
    assert (found and tuple(found.facts.values())) == facts


@pytest.mark.parametrize(
    ("languages", "error", "note"),
    [
        ("python", "pip: there is no network, so code cannot install: humanize\n", "missing_library"),
        ("python", "ModuleNotFoundError: No module named 'humanize'\n", ""),
        ("python", UNREACHABLE, ""),
        ("python", "cat: /data/shown/a: Read-only file system\n", ""),
        ("bash python", "ModuleNotFoundError: No module named 'humanize'\n", "missing_library"),
        ("bash python", UNREACHABLE, "no_network"),
        ("bash python", "cat: /data/shown/a: Read-only file system\n", "read_only_folder"),
    ],
)
def test_after_code_that_did_not_fail_only_what_it_cannot_have_handled_is_explained(
    languages: str, error: str, note: str
) -> None:
    among = [LANGUAGES[name] for name in languages.split()]
    found = hint_of(Printed(error.encode(), among, NOTHING, VIEWS, failed=False), allow)
    assert (found.code if found else "") == note
