"""Names of modules, where those of libraries belong: what they mean, and which of them no library brings."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llm_sandbox_mcp.base.errors import InvalidArgument, PolicyDenied
from llm_sandbox_mcp.languages.languages import included_languages
from llm_sandbox_mcp.languages.modules import as_libraries, without_library
from llm_sandbox_mcp.libraries.installed.ruling import library_rules
from llm_sandbox_mcp.libraries.installing import Installer
from llm_sandbox_mcp.profile.profile import load_profile

LANGUAGES = included_languages()
PYTHON = LANGUAGES["python"]

OWN = sorted(
    {name for name in sys.stdlib_module_names if not name.startswith("_")}
    - {"distutils", "ensurepip", "idlelib", "msvcrt", "nt", "tkinter", "turtle", "turtledemo", "winreg", "winsound"}
)
"""Python's modules, without what is refused, and without what a library has today."""
RENAMED = [
    ("python", "PIL", "pillow"),
    ("python", "PIL==10.0", "pillow==10.0"),
    ("python", "pil >=9, <11", "pillow >=9, <11"),
    ("python", "cv2>=4", "opencv-python-headless>=4"),
    ("python", "bs4[lxml]", "beautifulsoup4[lxml]"),
    ("python", "yaml", "pyyaml"),
    ("python", "sklearn", "scikit-learn"),
    ("python", "pkg_resources", "setuptools<81"),
    ("python", "pkg_resources==75.0", "setuptools==75.0"),
    ("javascript", "tsc@5", "typescript@5"),
    ("ruby", "active_record:7.0", "activerecord:7.0"),
    ("cpp", "Eigen", "libeigen3-dev"),
    ("cpp", "zlib.h", "zlib1g-dev"),
]


@pytest.mark.parametrize(("language", "asked", "library"), RENAMED)
def test_the_name_of_a_module_means_its_library_with_what_follows_it(language: str, asked: str, library: str) -> None:
    libraries, [note] = as_libraries(LANGUAGES[language], [asked])
    assert libraries == (library,)
    assert note.code == "library_renamed"
    assert note.startswith("libraries: ") and " is installed as " in note


def test_one_note_names_all_that_are_meant() -> None:
    libraries, notes = as_libraries(PYTHON, ["numpy", "PIL==10", "json", "yaml", "os.path"])
    assert libraries == ("numpy", "pillow==10", "pyyaml")
    assert notes == [
        "libraries: PIL is installed as pillow, yaml is installed as pyyaml",
        "libraries: json, os.path: part of Python, so nothing is installed for it",
    ]


@pytest.mark.parametrize(
    ("language", "asked"),
    [
        ("python", "pillow"),
        ("python", "IPython"),
        ("python", "SpeechRecognition==3"),
        ("python", "importlib-metadata"),
        ("python", "typing_extensions"),
        ("python", "_x"),
        ("python", "x" * 201),
        ("javascript", "lodash@4"),
        ("javascript", "sqlite"),
        ("go", "golang.org/x/text"),
        ("java", "org.json:json:1"),
    ],
)
def test_all_other_names_mean_what_they_say(language: str, asked: str) -> None:
    assert as_libraries(LANGUAGES[language], [asked]) == ((asked,), [])


def test_a_pattern_need_not_say_what_the_name_is() -> None:
    libraries = PYTHON.handler.libraries
    assert libraries is not None
    handler = PYTHON.handler.model_copy(update={"libraries": libraries.model_copy(update={"name_pattern": r"\w+"})})
    assert as_libraries(replace(PYTHON, handler=handler), ["PIL", "thing"])[0] == ("pillow", "thing")


def test_a_name_that_the_profile_opens_means_what_it_says() -> None:
    assert as_libraries(PYTHON, ["PIL", "json", "tkinter"], ["PIL", "json", "tkinter"])[1] == []


@pytest.mark.parametrize(
    ("language", "name"),
    [
        ("javascript", "fs"),
        ("javascript", "node:test"),
        ("javascript", "fs/promises"),
        ("r", "stats"),
        ("go", "net/http"),
        *(("python", name) for name in OWN),
    ],
)
def test_nothing_is_installed_for_a_module_of_the_language(language: str, name: str) -> None:
    libraries, [note] = as_libraries(LANGUAGES[language], [name])
    assert (libraries, note.code) == ((), "library_included")


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("tkinter", "there is no screen here; "),
        ("Tkinter==1", "there is no screen here; "),
        ("turtle", "there is no screen here; "),
        ("pip", "name the libraries that code needs, "),
        ("ensurepip", "name the libraries that code needs, "),
        ("winreg", "it belongs to Windows, "),
        ("msvcrt", "it belongs to Windows, "),
        ("js", "it exists only in browsers, "),
        ("pyodide", "it exists only in browsers, "),
        ("google.colab", "google.colab exists only in Colab, "),
    ],
)
def test_a_module_that_no_library_brings_is_refused_with_the_next_step(name: str, step: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^libraries: '\S+' cannot be installed; ") as refused:
        as_libraries(PYTHON, ["numpy", name])
    assert refused.value.step.startswith(step)
    missing = without_library(PYTHON, name.partition("=")[0])
    assert missing is not None and missing.step == refused.value.step


def installer_of(folder: Path, **over: Mapping[str, Any]) -> Installer:
    profile = load_profile(over=over)
    return Installer(profile, folder, library_rules(profile, LANGUAGES))


def test_the_rules_of_the_profile_judge_what_is_meant(tmp_path: Path) -> None:
    installer = installer_of(tmp_path, languages={"python": {"deny": ["pillow<10"], "allow": ["pillow"]}})
    assert installer.check(PYTHON, ["PIL==10.1"])[0] == ("pillow==10.1",)
    with pytest.raises(PolicyDenied, match=r"'pillow==9\.0' is denied"):
        installer.check(PYTHON, ["PIL==9.0"])
    with pytest.raises(PolicyDenied, match="'pyyaml' is not among those"):
        installer.check(PYTHON, ["yaml"])
    assert installer.check(PYTHON, ["json"])[0] == ()


def test_a_server_that_works_offline_still_answers_for_modules_of_the_language(tmp_path: Path) -> None:
    offline = installer_of(tmp_path, server={"offline": True})
    assert offline.check(PYTHON, ["json"])[0] == ()
    with pytest.raises(PolicyDenied, match="works offline"):
        offline.check(PYTHON, ["json", "six"])


@pytest.mark.parametrize(
    ("libraries", "languages"),
    [
        (["pytest"], "python or javascript or ruby"),
        (["pandas>=2", "six"], "python"),
        (["@types/node"], "javascript"),
        (["org.json:json:20240303"], "java"),
        (["golang.org/x/text"], "go"),
    ],
)
def test_bash_names_the_languages_that_libraries_can_be_of(
    tmp_path: Path, libraries: list[str], languages: str
) -> None:
    with pytest.raises(PolicyDenied) as refused:
        installer_of(tmp_path).check(LANGUAGES["bash"], libraries)
    assert refused.value.facts == {"library": ", ".join(libraries), "language": languages}
    assert str(refused.value) == (
        "bash has no package manager here, and finds what libraries of other languages bring; "
        f"call install() with {', '.join(libraries)}, language {languages}"
    )


def test_bash_refuses_what_no_language_could_install(tmp_path: Path) -> None:
    with pytest.raises(PolicyDenied, match=r"^bash has no package manager here; use python or another language"):
        installer_of(tmp_path).check(LANGUAGES["bash"], ["--index-url=x"])
