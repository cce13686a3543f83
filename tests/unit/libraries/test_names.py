"""A library is a plain name with an optional version, and never text that means something else to a package manager."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.base.errors import InvalidArgument
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.libraries.installed.ruling import library_rules
from llm_sandbox_mcp.libraries.installing import Installer
from llm_sandbox_mcp.profile.profile import load_profile

LANGUAGES = load_languages()
MANAGED = sorted(name for name, language in LANGUAGES.items() if language.handler.libraries is not None)

NAMES = {
    "python": ["numpy", "Foo_Bar", "numpy==2.1", "pandas >=2, <3", "uvicorn[standard]>=0.30"],
    "javascript": ["lodash", "@types/node", "lodash@4.17.21", "left-pad@^1.0.0"],
    "java": ["org.json:json:20240303"],
    "cpp": ["libfmt-dev", "libfmt-dev=9.1.0+ds1-2", "libstdc++-12-dev"],
    "go": [
        "golang.org/x/text",
        "golang.org/x/text@v0.14.0",
        "rsc.io/quote",
        "go4.org",
        "github.com/nats-io/nats.go",
        "gopkg.in/yaml.v3",
    ],
    "r": ["jsonlite", "R6", "data.table==1.15.4"],
    "ruby": ["rake", "rake:13.1.0", "rake:~>13.0"],
}

ATTACKS = [
    "",
    " ",
    "-",
    "--index-url=x",
    "--index-url=http://evil.example",
    "-r x",
    "-e .",
    "-rx",
    "git+https://evil.example/x",
    "git://evil.example/x.git",
    "https://evil.example/x.tgz",
    "http://evil.example/x",
    "//evil.example/x",
    "@file",
    "@",
    "@../x",
    "; rm -rf /",
    "x; rm -rf /",
    "$(id)",
    "`id`",
    "x|id",
    "x&id",
    "x'); system('id'); ('",
    'x"); system("id"); ("',
    "../x",
    "./x",
    "/x",
    "~/x",
    ".",
    "..",
    "x/../y",
    "..\\x",
    "file:///x",
    "file:x",
    "name @ https://x",
    "name@https://x",
    "name@file:../x",
    "name@git+ssh://x",
    "name@npm:other",
    "name==1.0 --pre",
    "name --pre",
    "x y",
    "x\n",
    "x==1\n",
    "x:1\n",
    "a:b:1\n",
    "\nx",
    "x\n--pre",
    "x\r",
    "x\0",
    "\0",
    "x\0y",
    "x\t",
    "x%2e%2e",
    "x ; python_version < '3'",
    "x#egg=y",
    "x" * 201,
    "\u0445",
    "x\u202e",
    "\uff0d\uff0dpre",
]

ATTACKS_BY_LANGUAGE = {
    "javascript": [
        "x.tgz",
        "x.TGZ",
        "x.tar.gz",
        "x.tar",
        "lodash@x.tgz",
        "lodash@1.tar.gz",
        "lodash@>",
        "node_modules",
    ],
    "java": ["-g:a:1", "g:-a:1", "g:a:-1"],
    "go": ["all", "std", "cmd", "tool", "go@1.22.0", "toolchain@go1.22.0", "main.go", "main.go@v1.0.0", "x/y"],
}
"""Names that only one package manager understands as a file, a pattern or itself."""


PROFILE = load_profile()
RULES = library_rules(PROFILE, LANGUAGES)


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    return Installer(PROFILE, tmp_path, RULES)


def test_every_language_with_a_package_manager_is_covered() -> None:
    assert sorted(NAMES) == MANAGED


@pytest.mark.parametrize("language", MANAGED)
def test_a_plain_name_is_accepted(language: str, installer: Installer) -> None:
    for name in NAMES[language]:
        installer.check(LANGUAGES[language], [name])


@pytest.mark.parametrize("language", MANAGED)
def test_anything_else_is_refused(language: str, installer: Installer) -> None:
    attacks = [*ATTACKS, *ATTACKS_BY_LANGUAGE.get(language, ())]
    assert [attack for attack in attacks if accepts(installer, language, attack)] == []


def accepts(installer: Installer, language: str, name: str) -> bool:
    try:
        installer.check(LANGUAGES[language], [name])
    except InvalidArgument:
        return False
    return True


@pytest.mark.parametrize("language", MANAGED)
def test_one_attack_among_plain_names_is_refused(language: str, installer: Installer) -> None:
    with pytest.raises(InvalidArgument):
        installer.check(LANGUAGES[language], [*NAMES[language], "--pre"])
