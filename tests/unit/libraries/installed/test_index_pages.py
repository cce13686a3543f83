"""Pages of package indexes are rewritten while they arrive: their links change, and nothing else does."""

import json
from html import escape
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.libraries.installed.index_pages import LINK, PAGES

HTML = "text/html"
SIMPLE = "application/vnd.pypi.simple.v1+json"
NPM = "application/vnd.npm.install-v1+json"
BRACKETS = ["{", "}", "[", "]", ":", ",", '"', "\\", "1"]
MARKS = {
    HTML: [
        *[
            "<",
            "a",
            "A",
            "href",
            "HREF",
            "=",
            '"',
            "'",
            "/",
            ">",
            "!",
            "-",
            "--",
            "<!--",
            "-->",
            "<a",
            "b",
            "</a>",
            "é",
            "&amp;",
            "&#39;",
        ],
        *(" ", "\n", "\0", "<a href=", '<a href="x">', "&#" + "9" * 5000),
    ],
    SIMPLE: [
        *BRACKETS,
        *(
            " ",
            "u0",
            "é",
            '"url"',
            '"files"',
            '"url":"x"',
            '{"files":[{"url":"x"}',
            '"\\u0075rl"',
            "{}",
            "[]",
            "\\ud800",
        ),
    ],
    NPM: [*BRACKETS, " ", "null", '"versions"', '"1":', '{"dist":{', '"dist":{"tarball":"x"}', '"tarball":"x"'],
}


def rewritten(kind: str, page: bytes, *cuts: int, locate: Any = str.upper) -> bytes:
    page_of_kind = PAGES[kind](locate)
    places = [0, *sorted(cuts), len(page)]
    pieces = [page_of_kind.feed(page[start:end]) for start, end in pairwise(places)]
    return b"".join([*pieces, page_of_kind.end()])


@pytest.mark.parametrize("kind", MARKS)
@given(data=st.data())
def test_where_a_page_is_cut_changes_nothing(kind: str, data: st.DataObject) -> None:
    marks = st.lists(st.sampled_from(MARKS[kind])).map("".join).map(str.encode)
    page = data.draw(st.one_of(marks, st.lists(st.one_of(marks, st.binary(max_size=3))).map(b"".join)))
    whole = rewritten(kind, page)
    assert rewritten(kind, page, *range(len(page))) == whole
    assert rewritten(kind, page, *data.draw(st.lists(st.integers(0, len(page))))) == whole


@pytest.mark.parametrize("kind", PAGES)
@given(page=st.binary())
def test_a_page_of_any_bytes_without_links_passes_unchanged(kind: str, page: bytes) -> None:
    assert rewritten(kind, page, locate=lambda link: link) == page or b"href" in page


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_rewriting_a_page_changes_its_links_and_nothing_else(text: str) -> None:
    text = text.replace("<", "").replace("&", "")
    page = f'{text}<!-- {text.replace("-", "")} --><a class="x" href="one">{text}</a>\n<b href="one">{text}'
    assert rewritten(HTML, page.encode()).decode() == page.replace('"x" href="one"', '"x" href="ONE"')


class Seen(HTMLParser):
    """What a page consists of; with the links of its anchors changed."""

    def __init__(self, page: str, change: bool) -> None:
        super().__init__()
        self.seen: list[object] = []
        self._change = change
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        changed = self._change and tag == "a"
        self.seen.append(
            (tag, [(name, value.upper() if value and changed and name == "href" else value) for name, value in attrs])
        )

    def handle_endtag(self, tag: str) -> None:
        self.seen.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.seen.append(data)

    def handle_comment(self, data: str) -> None:
        self.seen.append(("comment", data))


TEXT = st.text(st.sampled_from("ab <>&\"'é="))
VALUE = st.one_of(
    TEXT.map(lambda text: f'"{escape(text)}"'),
    TEXT.map(lambda text: f"'{escape(text)}'"),
    st.text(st.sampled_from("ab./-"), min_size=1),
)
ATTRIBUTE = st.builds(
    lambda name, space, value: f" {name}{space}={space}{value}",
    st.sampled_from(["href", "HREF", "title", "data-a"]),
    st.sampled_from(["", " ", "\n"]),
    VALUE,
)
TAG = st.builds(
    lambda name, attributes, end: f"<{name}{''.join(attributes)}{end}",
    st.sampled_from("aAb"),
    st.lists(st.one_of(ATTRIBUTE, st.just(" x"))),
    st.sampled_from([">", " >", "\n>"]),
)
PART = st.one_of(
    TAG, TAG, TEXT.map(escape), st.just("</a>"), TEXT.map(lambda text: f"<!-- {text} -->"), st.just("<!DOCTYPE html>")
)


@given(st.lists(PART).map("".join))
def test_the_links_of_a_page_are_those_that_an_html_parser_finds(page: str) -> None:
    assert Seen(rewritten(HTML, page.encode()).decode(), change=False).seen == Seen(page, change=True).seen


KEYS = st.sampled_from(["files", "url", "dist", "tarball", "versions", "1.0", "", 'a"b', "é"])
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
)
STRINGS = st.one_of(st.text(max_size=3), ANYTHING)
FILES = st.dictionaries(KEYS, st.one_of(ANYTHING, st.lists(st.dictionaries(KEYS, STRINGS, max_size=3), max_size=3)))
RELEASE = st.dictionaries(KEYS, st.one_of(STRINGS, st.dictionaries(KEYS, STRINGS, max_size=3)), max_size=3)
PACKAGE = st.dictionaries(KEYS, st.one_of(STRINGS, RELEASE, st.dictionaries(KEYS, RELEASE, max_size=3)))


def relocate(entry: object, key: str) -> None:
    if isinstance(entry, dict) and isinstance(entry.get(key), str):
        entry[key] = entry[key].upper()


def change(kind: str, page: object) -> None:
    """Changes the links of a parsed page."""
    if not isinstance(page, dict):
        return
    if kind == SIMPLE:
        files = page.get("files")
        for file in files if isinstance(files, list) else ():
            relocate(file, "url")
        return
    versions = page.get("versions")
    for release in [page, *(versions.values() if isinstance(versions, dict) else ())]:
        if isinstance(release, dict):
            relocate(release.get("dist"), "tarball")


@pytest.mark.parametrize("kind", [SIMPLE, NPM])
@given(
    page=st.one_of(FILES, PACKAGE, ANYTHING),
    plain=st.booleans(),
    indent=st.sampled_from([None, 0, 1]),
    separators=st.sampled_from([(",", ":"), (" , ", " : "), (",\t", ":\r\n")]),
)
def test_the_links_of_a_json_page_are_at_their_places_only(
    kind: str, page: object, plain: bool, indent: int | None, separators: tuple[str, str]
) -> None:
    text = json.dumps(page, ensure_ascii=plain, indent=indent, separators=separators)
    found = json.loads(rewritten(kind, text.encode("utf-8", "replace")))
    wanted = json.loads(text.encode("utf-8", "replace"))
    change(kind, wanted)
    assert found == wanted


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        (SIMPLE, '{"url":"no","meta":{"a":{"url":"no"},"files":[{"url":"no"}]},"files":[{"url":"yes"}]}'),
        (SIMPLE, '{"files":[{"hashes":{"url":"no","x":[{}]},"url":"yes"},[{"url":"no"}],"url",{"url":["no"]}]}'),
        (
            SIMPLE,
            '{"files":[{"url":1},{"url":"yes"},{"url":{"url":"no"}},{"a":"url","b":"no","url" : "yes"}],"url":"no"}',
        ),
        (
            NPM,
            '{"dist":{"tarball":"yes","x":{"tarball":"no"}},"versions":{"1":{"tarball":"no","dist":{"tarball":"yes"}}}}',
        ),
        (
            NPM,
            '{"versions":{"dist":{"tarball":"no"},"2":{"d":{"dist":{"tarball":"no"}},"dist":{"a":[],"tarball":"yes"}}}}',
        ),
        (NPM, '{"versions":[{"1":{"dist":{"tarball":"no"}}}],"dist":[{"tarball":"no"}],"tarball":"no"}'),
        # Malformed: only what directly follows the colon is the value.
        (SIMPLE, '{"files":[{"url":1"no"},{"url":{}"no"},{"url":[]"no"},{"url" "no"},{"url":"yes""no","url":"yes"}]}'),
    ],
)
def test_the_same_key_elsewhere_has_no_link(kind: str, page: str) -> None:
    wanted = page.replace("yes", "YES").encode()
    assert rewritten(kind, page.encode()) == wanted
    assert rewritten(kind, page.encode(), *range(len(page))) == wanted
    for cut in range(len(page)):
        assert rewritten(kind, page.encode(), cut) == wanted


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        (SIMPLE, '{"files":[{"url":"%s"}]}'),
        (NPM, '{"versions":{"1":{"dist":{"tarball" : "%s"}}}}'),
        (HTML, '<a href="%s">'),
        (HTML, "<a href=%s >"),
    ],
)
@pytest.mark.parametrize("link", [b"x" * (LINK + 1), b"\xff", b"x\xc3", b"\\ud800", b"&#" + b"9" * 5000, b"\\x"])
def test_what_is_no_link_passes_unchanged(kind: str, page: str, link: bytes) -> None:
    def locate(text: str) -> str:
        return f"http://{text.encode().decode()}"

    whole = page.encode().replace(b"%s", link)
    taken_as_text = {HTML: b"\\", SIMPLE: b"&", NPM: b"&"}[kind] in link
    assert (rewritten(kind, whole, locate=locate) == whole) is not taken_as_text


@pytest.mark.parametrize("kind", PAGES)
def test_only_links_are_held_back(kind: str) -> None:
    page = PAGES[kind](str.upper)
    for text in (b"{" * 1000, b'"', b"x" * 1000, b"<a ", b"y" * 1000, b" href", b"=", b"'"):
        assert page.feed(text) == text
    held = sum(len(text) - len(page.feed(text)) for text in [b"x" * 1000] * 100)
    assert abs(held) <= LINK
