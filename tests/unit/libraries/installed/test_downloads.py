"""Which files of an index each language keeps for later installations: those that never change under their names."""

import re

import pytest

from llm_sandbox_mcp.languages.languages import load_languages

LANGUAGES = load_languages()
KEPT = {
    "python": ["tiny/tiny-1.0-py3-none-any.whl", "+f/a1/tiny-1.0-py3-none-any.whl.metadata", "tiny-1.0.tar.gz"],
    "javascript": ["tiny/-/tiny-1.0.0.tgz", "@scope/tiny/-/tiny-1.0.0.tgz"],
    "ruby": ["gems/tiny-1.0.gem", "quick/Marshal.4.8/tiny-1.0.gemspec.rz"],
    "r": ["src/contrib/tiny_1.0-2.tar.gz", "src/contrib/Archive/tiny/tiny_0.9.tar.gz"],
    "java": ["org/tiny/tiny/1.0/tiny-1.0.jar", "org/tiny/tiny/1.0/tiny-1.0.pom", "org/tiny/tiny/1.0/tiny-1.0.jar.sha1"],
    "go": ["example.com/tiny/@v/v1.0.0.mod", "example.com/!tiny/v2/@v/v2.0.1-0.20240101000000-abcdef012345.zip"],
    "cpp": ["pool/main/t/tiny/libtiny-dev_1.0-1+b1_amd64.deb"],
}
REQUESTED_AGAIN = {
    "python": ["tiny/", "simple/tiny/", "tiny/json"],
    "javascript": ["tiny", "@scope%2ftiny", "-/v1/search"],
    "ruby": ["specs.4.8.gz", "latest_specs.4.8.gz", "versions", "info/tiny", "names"],
    "r": ["src/contrib/PACKAGES", "src/contrib/PACKAGES.gz", "src/contrib/PACKAGES.rds", "src/contrib/Archive/tiny/"],
    "java": ["org/tiny/tiny/maven-metadata.xml", "org/tiny/tiny/1.0-SNAPSHOT/tiny-1.0-SNAPSHOT.jar"],
    "go": ["example.com/tiny/@v/list", "example.com/tiny/@latest", "tiny/@v/main.info", "tiny/@v/v1.info"],
    "cpp": ["dists/bookworm/main/binary-amd64/Packages.xz", "dists/bookworm/InRelease"],
}


def kept(language: str, path: str) -> bool:
    """Whether a path is kept; matched as the gateway does, after the prefix that belongs to the index."""
    manager = LANGUAGES[language].handler.libraries
    assert manager is not None
    return re.compile(manager.files_pattern).fullmatch(f"/mirror/{path}", len("/mirror/")) is not None


def test_every_package_manager_is_covered() -> None:
    managers = {name for name, language in LANGUAGES.items() if language.handler.libraries}
    assert KEPT.keys() == REQUESTED_AGAIN.keys() == managers


@pytest.mark.parametrize("language", KEPT)
def test_files_of_a_version_are_kept_and_lists_are_requested_again(language: str) -> None:
    assert [path for path in KEPT[language] if not kept(language, path)] == []
    assert [path for path in REQUESTED_AGAIN[language] if kept(language, path)] == []


@pytest.mark.parametrize("language", KEPT)
def test_a_path_that_attacks_the_pattern_is_matched_in_linear_time(language: str) -> None:
    # Far longer than the gateway lets through: quadratic time would exceed the time limit of a test.
    for path in KEPT[language]:
        for part in {path, *re.findall(r"[^/]+/|\W\w*|.", path)}:
            long = part * (1_000_000 // len(part)) + "?"
            assert not kept(language, long)
            assert not kept(language, f"{path.rpartition('/')[0]}/{long}")
