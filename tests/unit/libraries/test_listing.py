"""The list of installed libraries is read within bounds, whatever code in the sandbox did to it."""

import pytest

from llm_sandbox_mcp.base.results import Library
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.libraries.listing import read_list

KNOWN = {language.name: language.handler.libraries for language in load_languages().values()}
PATTERNS = {name: known.installed_pattern for name, known in KNOWN.items() if known is not None}
LISTED = {
    "cpp": "libzip 1.2",
    "go": "\tlibzip v1.2 // indirect",
    "java": "libzip 1.2",
    "javascript": "libzip==1.2",
    "python": "libzip==1.2",
    "r": "libzip==1.2",
    "ruby": "libzip==1.2",
}
UNBOUNDED = r"^(a|a)+$"
"""A pattern whose time doubles with each letter of a line that does not match in the end."""
SECONDS = 2.0


@pytest.mark.parametrize("language", PATTERNS)
def test_the_line_of_a_library_is_read(language: str) -> None:
    listing = f"some more words\n{LISTED[language]}\n\n".encode()
    assert read_list(listing, PATTERNS[language], SECONDS) == (
        Library("libzip", "v1.2" if language == "go" else "1.2"),
    )


@pytest.mark.parametrize("language", PATTERNS)
def test_a_list_of_the_longest_lines_is_read_in_linear_time(language: str) -> None:
    for beginning in ("", "require a", "/node_modules/a:b@"):
        for filler in ("=", " ", "a", "a ", "/", "/node_modules/", "@", ":", "@a:"):
            for end in ("", "\t ="):
                line = (beginning + filler * 1000)[: 1000 - len(end)] + end + "\n"
                # For this many lines, linear time is hundredths of a second and quadratic time is seconds.
                read_list(line.encode() * 500, PATTERNS[language], SECONDS)


def test_a_line_that_is_too_long_is_skipped() -> None:
    name = "a" * 990
    assert read_list(f"{name}a==1.234567\n{name}==1.23456\n".encode(), PATTERNS["python"], SECONDS) == (
        Library(name, "1.23456"),
    )


@pytest.mark.parametrize("pattern", [UNBOUNDED, "^a"])
def test_reading_ends_in_time(pattern: str) -> None:
    with pytest.raises(TimeoutError):
        read_list(b"a" * 64 + b"!\n" + 8_000_000 * b"a\n", pattern, 0.05)
