"""Which libraries a profile allows and denies, by names and versions as each ecosystem compares them."""

from pathlib import Path

import pytest

from llm_sandbox_mcp.base.errors import InvalidArgument, PolicyDenied, ProfileError
from llm_sandbox_mcp.base.results import Library
from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.libraries.installed.ruling import LibraryRules, library_rules
from llm_sandbox_mcp.libraries.installing import Installer
from llm_sandbox_mcp.profile.profile import load_profile

LANGUAGES = load_languages()


def rules(
    language: str, *, allow: tuple[str, ...] = (), deny: tuple[str, ...] = (), opened: tuple[str, ...] = ()
) -> LibraryRules:
    known = LANGUAGES[language].handler.libraries
    assert known is not None
    return LibraryRules(known, allow, deny, opened)


ALLOWED = [
    ("python", "Foo_Bar", "foo-bar"),
    ("python", "foo.bar", "FOO__bar==2"),
    ("python", "numpy>=2,<3", "numpy==2.1"),
    ("python", "numpy >=2", "numpy"),
    ("python", "uvicorn", "uvicorn[standard]>=0.3"),
    ("javascript", "@types/node", "@types/node@20.1.0"),
    ("javascript", "lodash 4.*", "lodash@4.17.21"),
    ("java", "org.json:json", "org.json:json:1"),
    ("java", "org.json:json 2024*", "org.json:json:20240303"),
    ("cpp", "libfmt-dev", "libfmt-dev=9.1.0"),
    ("go", "rsc.io/quote v1.*", "rsc.io/quote@v1.5.2"),
    ("r", "data.table 1.15.4", "data.table==1.15.4"),
    ("ruby", "rake 13.*", "rake:13.1.0"),
    ("ruby", "rake 13.*", "rake:~>13.0"),
]
NOT_ALLOWED = [
    ("python", "foo-bar", "foobar"),
    ("python", "numpy>=2,<3", "numpy==1.26"),
    ("python", "numpy", "numpy-evil"),
    ("javascript", "node", "@types/node"),
    ("javascript", "@types/node", "node"),
    ("javascript", "lodash 4.*", "lodash@3.0.0"),
    ("javascript", "lodash", "Lodash".lower() + ".js"),
    ("java", "org.json:json", "org.json:evil:1"),
    ("java", "org.json:json 2024*", "org.json:json:2023"),
    ("go", "rsc.io/quote", "rsc.io/quote/v3"),
    ("r", "data.table", "Data.table"),
    ("ruby", "rake 13.*", "rake:12.0"),
]


@pytest.mark.parametrize(("language", "entry", "requested"), ALLOWED)
def test_a_library_on_the_list_is_allowed(language: str, entry: str, requested: str) -> None:
    rules(language, allow=(entry,)).check([requested])


@pytest.mark.parametrize(("language", "entry", "requested"), NOT_ALLOWED)
def test_with_a_list_everything_else_is_refused(language: str, entry: str, requested: str) -> None:
    with pytest.raises(PolicyDenied, match="not among those that the profile allows"):
        rules(language, allow=(entry,)).check([requested])


@pytest.mark.parametrize(
    ("language", "entry", "requested"),
    [
        ("python", "Foo_Bar", "foo.bar==1"),
        ("python", "numpy<2", "numpy==1.26"),
        ("javascript", "event-stream 3.3.6", "event-stream@3.3.6"),
        ("java", "org.apache.logging.log4j:log4j-core 2.14*", "org.apache.logging.log4j:log4j-core:2.14.1"),
        ("ruby", "rest-client", "rest-client"),
    ],
)
def test_a_denied_library_is_refused(language: str, entry: str, requested: str) -> None:
    with pytest.raises(PolicyDenied, match="is denied by the profile"):
        rules(language, deny=(entry,)).check([requested])


def test_rules_are_empty_if_neither_list_has_an_entry() -> None:
    assert rules("python", opened=("./x.whl",)).empty
    assert not rules("python", allow=("numpy",)).empty
    assert not rules("python", deny=("numpy",)).empty


def test_a_version_that_is_not_denied_can_be_requested() -> None:
    rules("javascript", deny=("event-stream 3.3.6",)).check(["event-stream@3.3.5", "event-stream"])


def test_installed_libraries_are_checked_against_both_lists() -> None:
    lists = rules("python", allow=("foo>=2",), deny=("bar<3",))
    assert lists.refusal(["Foo"], [Library("foo", "2.1"), Library("bar", "3.0"), Library("other", "1")]) is None
    assert "the profile allows foo>=2" in str(lists.refusal(["foo"], [Library("foo", "1.9")]))
    assert "which the profile denies (bar<3)" in str(
        lists.refusal(["foo"], [Library("foo", "2.1"), Library("BAR", "2.9")])
    )


def test_a_version_before_a_release_is_allowed_and_denied_like_others() -> None:
    rules("python", allow=("numpy>=2",)).check(["numpy==2.1rc1"])
    with pytest.raises(PolicyDenied, match="is denied by the profile"):
        rules("python", deny=("numpy<2",)).check(["numpy==1.26rc1"])
    assert "denies" in str(rules("python", deny=("numpy<2",)).refusal([], [Library("numpy", "1.26.dev3")]))
    assert rules("python", allow=("numpy>=2",)).refusal(["numpy"], [Library("numpy", "2.1b1")]) is None


@pytest.mark.parametrize("requested", ["rsc.io/quote", "rsc.io/quote/v3", "rsc.io/quote/v3@v3.1.0", "rsc.io/quote.v3"])
def test_a_denied_library_is_denied_in_every_major_version(requested: str) -> None:
    with pytest.raises(PolicyDenied, match="denied by the profile"):
        rules("go", deny=("rsc.io/quote",)).check([requested])
    rules("go", deny=("rsc.io/quote",)).check(["rsc.io/quote/v3x", "rsc.io/quotev3"])
    assert "denies" in str(rules("go", deny=("rsc.io/quote",)).refusal([], [Library("rsc.io/quote/v3", "v3.1.0")]))


def test_a_verbatim_argument_is_accepted_only_if_the_profile_opens_exactly_that(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text("[languages.python]\nopened = ['./tool-1.0-py3-none-any.whl']\nallow = ['numpy']\n")
    profile = load_profile(str(path))
    installer = Installer(profile, tmp_path, library_rules(profile, LANGUAGES))
    installer.check(LANGUAGES["python"], ["./tool-1.0-py3-none-any.whl", "numpy"])
    for other in ("tool-1.0-py3-none-any.whl", "./tool-1.1-py3-none-any.whl", "./tool-1.0-py3-none-any.whl "):
        with pytest.raises(InvalidArgument):
            installer.check(LANGUAGES["python"], [other])
    with pytest.raises(InvalidArgument):
        installer.check(LANGUAGES["ruby"], ["./tool-1.0-py3-none-any.whl"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[languages.python]\nallow = ['numpy >> 2']", "languages.python"),
        ("[languages.python]\ndeny = ['']", "languages.python"),
        ("[languages.javascript]\nallow = ['lodash >=4']", "the version must be exact here, or end with '[*]'"),
        ("[languages.javascript]\nallow = ['lodash 4.*.1']", "the version must be exact here"),
        ("[languages.python]\nopened = ['--pre']", "'--pre' is an option"),
        ("[languages.bash]\nallow = ['x']", "bash has no package manager"),
    ],
)
def test_a_mistake_in_a_list_stops_the_start(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(text)
    with pytest.raises(ProfileError, match=reason):
        library_rules(load_profile(str(path)), LANGUAGES)
