"""Paths that callers give stay below the working directory."""

import posixpath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llm_sandbox_mcp.base.errors import BadPath
from llm_sandbox_mcp.files.artifacts import inner_path, is_inner

PARTS = st.sampled_from(["..", ".", "", "a", "b c", "...", "sandbox", "/", "/sandbox", "\0", "é", "-x", "\ud800", "~"])


@given(st.lists(PARTS, max_size=8).map("/".join) | st.text(max_size=50))
@example("/sandbox/../etc/passwd")
@example("/sandbox//etc/passwd")
@example("a/../../b")
def test_a_path_stays_below_or_is_refused(path: str) -> None:
    try:
        inner = inner_path(path)
    except BadPath:
        return
    full = posixpath.normpath(posixpath.join("/sandbox", inner))
    assert full.startswith("/sandbox/") and full != "/sandbox/"
    assert inner == posixpath.normpath(inner)
    assert not posixpath.isabs(inner) and ".." not in inner.split("/")
    assert "\0" not in inner
    assert inner_path(inner) == inner
    inner.encode()


@pytest.mark.parametrize(
    ("path", "inner"), [("a", "a"), ("./a//b", "a/b"), ("a/../b", "b"), ("/sandbox/a", "a"), ("..a", "..a")]
)
def test_a_path_below_is_normalized(path: str, inner: str) -> None:
    assert inner_path(path) == inner


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "../a", "/", "/etc/passwd", "a/", "/sandbox", "/sandbox/", "/sandboxes/a", "a\0", "x" * 1025],
)
def test_a_path_outside_is_refused(path: str) -> None:
    with pytest.raises(BadPath, match="path"):
        inner_path(path)


@pytest.mark.parametrize(
    ("name", "inner"),
    [("a", True), ("a/b", True), ("./a", False), ("a//b", False), ("/sandbox/a", False), ("../a", False), ("", False)],
)
def test_a_name_from_inside_counts_only_in_its_normal_form(name: str, inner: bool) -> None:
    assert is_inner(name) == inner
