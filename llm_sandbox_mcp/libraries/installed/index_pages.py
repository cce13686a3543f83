"""Rewrites the responses of package indexes that name files on other hosts, piece by piece, by content type.

Responses of other types are passed on unchanged; this is enough for indexes with all files below their own address.
Others write these pages, so each byte is looked at a few times, whatever it is, and only those of a link are held back.
Nothing is judged here: what is malformed passes unchanged, and the package manager refuses it.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from html import escape, unescape

LINK = 16 << 10
"""Maximum bytes of a link in a page; a longer one passes unchanged."""

Locate = Callable[[str], str]
"""Turns a link in a page into the link that the package manager gets."""


class Rewriting(ABC):
    """Changes the links of one page while it arrives, in time that grows with its bytes and memory that does not."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate
        self._step = self._outside
        """Reads on from a position in a piece, and returns the next one."""
        self._out = bytearray()
        self._link: bytearray | None = None

    def feed(self, piece: bytes) -> bytes:
        """Takes the next bytes of the page, wherever it is cut, and returns those that are done."""
        at = 0
        while at < len(piece):
            at = self._step(piece, at)
        return self._done()

    def end(self) -> bytes:
        """The last bytes, after the end of the page."""
        self._give_up_link()
        return self._done()

    @abstractmethod
    def _outside(self, piece: bytes, at: int) -> int:
        """The first step of a page."""

    @abstractmethod
    def _relocated(self, link: bytes) -> bytes:
        """The bytes instead of those of a link; `ValueError` if they are none."""

    def _copy(self, piece: bytes, at: int, end: int) -> int:
        self._out += piece[at:end]
        return end

    def _hold(self, piece: bytes, at: int, end: int) -> int:
        """Copies a part of a value, or holds it back if it is a link."""
        if self._link is None:
            return self._copy(piece, at, end)
        self._link += piece[at:end]
        if len(self._link) > LINK:
            self._give_up_link()
        return end

    def _finish_link(self) -> None:
        if self._link is not None:
            try:
                self._out += self._relocated(bytes(self._link))
                self._link = None
            except ValueError:
                self._give_up_link()

    def _give_up_link(self) -> None:
        self._out += self._link or b""
        self._link = None

    def _done(self) -> bytes:
        done, self._out = bytes(self._out), bytearray()
        return done


_SPACES = rb" \t\n\r\f"
_OPENING = re.compile(rb"<(?:([A-Za-z/][^%(_)b/>]*+)(?=[%(_)b/>])|[A-Za-z/!]|\Z)" % {b"_": _SPACES})
_GAP = re.compile(rb"[%b/]*+" % _SPACES)
_SPACE = re.compile(rb"[%b]*+" % _SPACES)
_TAG = re.compile(rb"[^%b/>]*+" % _SPACES)
_ATTRIBUTE = re.compile(rb"[^%b/>=]*+" % _SPACES)
_QUOTED = re.compile(rb"[%(_)b/]*+([^%(_)b/>=]++)=\"([^\"]*+)\"" % {b"_": _SPACES})
"""A whole attribute, as most are written."""
_BARE = re.compile(rb"[^%b>]*+" % _SPACES)
_LONGEST = len("href") + 1
"""Bytes of a name that tell whether it is `a` or `href`."""


class _Html(Rewriting):
    """Changes the `href` of anchors."""

    _name = b""
    _in_anchor = False
    _quote = b""
    _last = b""
    """In a comment, the bytes before the present one."""

    def _outside(self, piece: bytes, at: int) -> int:
        found = _OPENING.search(piece, at)
        if found is None:
            return self._copy(piece, at, len(piece))
        if found[1] is not None:
            self._in_anchor, self._step = found[1] in (b"a", b"A"), self._gap
            return self._copy(piece, at, found.end())
        self._step = self._opened
        return self._copy(piece, at, found.start() + 1)

    def _opened(self, piece: bytes, at: int) -> int:
        first = piece[at : at + 1]
        if first.isalpha() or first == b"/":
            # The name of an end tag begins with its slash, so that it is no anchor.
            self._name, self._step = first, self._tag
        elif first == b"!":
            self._last, self._step = b"", self._declared
        else:
            self._step = self._outside
            return at
        return self._copy(piece, at, at + 1)

    def _declared(self, piece: bytes, at: int) -> int:
        if piece[at : at + 1] != b"-":
            self._step = self._outside
            return at
        self._last += b"-"
        if self._last == b"--":
            self._step = self._comment
        return self._copy(piece, at, at + 1)

    def _comment(self, piece: bytes, at: int) -> int:
        end = piece.find(b">", at) + 1
        inside = piece[at : end - 1] if end else piece[at:]
        self._last = (self._last + inside[-2:])[-2:]
        if end and self._last == b"--":
            self._step = self._outside
        elif end:
            self._last = b">"
        return self._copy(piece, at, end or len(piece))

    def _tag(self, piece: bytes, at: int) -> int:
        end = self._named(_TAG, piece, at)
        if end < len(piece):
            self._in_anchor, self._step = self._name.lower() == b"a", self._gap
        return end

    def _gap(self, piece: bytes, at: int) -> int:
        if quoted := _QUOTED.match(piece, at):
            self._quote = b'"'
            if self._in_anchor and quoted[1].lower() == b"href":
                at = self._copy(piece, at, quoted.start(2))
                self._link = bytearray()
                at = self._hold(piece, at, quoted.end(2))
                self._finish_link()
            return self._copy(piece, at, quoted.end())
        end = self._copy(piece, at, _end(_GAP, piece, at))
        if end == len(piece):
            return end
        first = piece[end : end + 1]
        # An attribute may begin with "=".
        self._name, self._step = first, self._outside if first == b">" else self._attribute
        return self._copy(piece, end, end + 1)

    def _attribute(self, piece: bytes, at: int) -> int:
        end = self._named(_ATTRIBUTE, piece, at)
        if end < len(piece):
            self._step = self._assigned
        return end

    def _assigned(self, piece: bytes, at: int) -> int:
        end = self._copy(piece, at, _end(_SPACE, piece, at))
        if end == len(piece):
            return end
        if piece[end : end + 1] != b"=":
            self._step = self._gap
            return end
        self._step = self._before_value
        return self._copy(piece, end, end + 1)

    def _before_value(self, piece: bytes, at: int) -> int:
        end = self._copy(piece, at, _end(_SPACE, piece, at))
        if end == len(piece):
            return end
        first = piece[end : end + 1]
        self._quote = first if first in (b'"', b"'") else b""
        self._link = bytearray() if self._in_anchor and self._name.lower() == b"href" else None
        self._step = self._value
        return self._copy(piece, end, end + len(self._quote))

    def _value(self, piece: bytes, at: int) -> int:
        end = piece.find(self._quote, at) if self._quote else _end(_BARE, piece, at)
        if end in (-1, len(piece)):
            return self._hold(piece, at, len(piece))
        self._hold(piece, at, end)
        self._finish_link()
        self._step = self._gap
        return self._copy(piece, end, end + len(self._quote))

    def _named(self, name: re.Pattern[bytes], piece: bytes, at: int) -> int:
        """Copies a part of a name."""
        end = _end(name, piece, at)
        self._name = (self._name + piece[at:end])[:_LONGEST]
        return self._copy(piece, at, end)

    def _relocated(self, link: bytes) -> bytes:
        quote = b"" if self._quote else b'"'
        return quote + escape(self._locate(unescape(link.decode()))).encode() + quote


_Place = Mapping[bytes | None, "_Place"]
"""Where links are below a value: by key, b"" for any key, None for each element of an array; empty for a link."""
_LINK: _Place = {}
_FILES: _Place = {b"files": {None: {b"url": _LINK}}}
_DIST: _Place = {b"tarball": _LINK}
_TARBALLS: _Place = {b"dist": _DIST, b"versions": {b"": {b"dist": _DIST}}}

_BLANK = b" \t\n\r"
_TEXT = rb'(?:[^"\\]++|\\.)*+'
_ANYTHING = rb'(?:[^"{}\[\]]++|"%b")*+' % _TEXT
_PAIR = re.compile(
    rb'[ \t\n\r,]*+"(%b)"[ \t\n\r]*+:[ \t\n\r]*+(?:"(%b)"|([{\[]%b[}\]])|([^ \t\n\r"{}\[\]:,]))?'
    % (_TEXT, _TEXT, _ANYTHING),
    re.DOTALL,
)
"""A key; and its value, if that is a string or has no containers inside, or the first byte of a number, for example."""
_SKIPPED = re.compile(_ANYTHING, re.DOTALL)
_STRING = re.compile(_TEXT, re.DOTALL)
_PLAIN = re.compile(rb'[^"{}\[\]:]*+')
_KEY = 64
"""Bytes of a key that are kept: enough for any that is searched, even if each character is written as a number."""


class _Json(Rewriting):
    """Changes the strings at some places of a JSON document."""

    def __init__(self, locate: Locate, places: _Place) -> None:
        super().__init__(locate)
        self._open: list[_Place] = []
        """Containers that the present value is in, down to the first that has no links."""
        self._below = 0
        """Number of containers further down."""
        self._value: _Place | None = places
        """What is in the present value; None if no links are."""
        self._key = b""
        """The last string, which is a key if a colon follows."""
        self._after_colon = False
        self._escaped = False

    def _outside(self, piece: bytes, at: int) -> int:
        if self._below:
            end = self._copy(piece, at, _end(_SKIPPED, piece, at))
        elif not self._after_colon and (pair := _PAIR.match(piece, at)):
            return self._pair(piece, at, pair)
        else:
            end = self._copy(piece, at, _end(_PLAIN, piece, at))
            if self._after_colon and piece[at:end].strip(_BLANK):
                self._after_colon = False
        if end == len(piece):
            return end
        mark = piece[end : end + 1]
        if mark == b'"':
            self._link = bytearray() if self._after_colon and self._value is _LINK and not self._below else None
            self._key, self._after_colon, self._step = b"", False, self._string
        elif mark == b":":
            self._enter(self._key)
        else:
            self._key, self._after_colon = b"", False
            self._nest(mark)
        return self._copy(piece, end, end + 1)

    def _pair(self, piece: bytes, at: int, pair: re.Match[bytes]) -> int:
        """Does at once what the other steps would do: most of a page is pairs."""
        key, value, container, other = pair.groups()
        self._enter(key)
        self._key = key[:_KEY]
        if container is not None:
            if self._value:
                return self._copy(piece, at, pair.start(3))
            self._key, self._after_colon = b"", False
        elif value is not None:
            self._key, self._after_colon = value[:_KEY], False
            if self._value is _LINK:
                at = self._copy(piece, at, pair.start(2))
                self._link = bytearray()
                at = self._hold(piece, at, pair.end(2))
                self._finish_link()
        elif other is not None:
            self._after_colon = False
        return self._copy(piece, at, pair.end())

    def _enter(self, key: bytes) -> None:
        """Goes to the value of a key."""
        self._after_colon = True
        if self._open and not self._below:
            inside = self._open[-1]
            self._value = inside.get(_unescaped(key[:_KEY]), inside.get(b""))

    def _nest(self, mark: bytes) -> None:
        """Goes into a container, or out of one."""
        if mark in b"{[":
            if self._below or not self._value:
                self._below += 1
            else:
                self._open.append(self._value)
                self._value = self._value.get(None)
        elif self._below:
            self._below -= 1
        elif self._open:
            self._open.pop()
            self._value = self._open[-1].get(None) if self._open else None

    def _string(self, piece: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return self._inside(piece, at, at + 1)
        end = self._inside(piece, at, _end(_STRING, piece, at))
        if end == len(piece):
            return end
        if piece[end : end + 1] == b"\\":
            # The escaped character comes with the next piece.
            self._escaped = True
            return self._inside(piece, end, end + 1)
        self._finish_link()
        self._step = self._outside
        return self._copy(piece, end, end + 1)

    def _inside(self, piece: bytes, at: int, end: int) -> int:
        """Reads a part of a string, which may be a key."""
        if len(self._key) < _KEY:
            self._key = (self._key + piece[at:end])[:_KEY]
        return self._hold(piece, at, end)

    def _relocated(self, link: bytes) -> bytes:
        return json.dumps(self._locate(json.loads(f'"{link.decode()}"'))).encode()[1:-1]


PAGES: Mapping[str, Callable[[Locate], Rewriting]] = {
    "application/vnd.pypi.simple.v1+json": partial(_Json, places=_FILES),
    "application/vnd.pypi.simple.v1+html": _Html,
    "text/html": _Html,
    "application/vnd.npm.install-v1+json": partial(_Json, places=_TARBALLS),
    "application/json": partial(_Json, places=_TARBALLS),
}
"""By content type."""


def _end(pattern: re.Pattern[bytes], piece: bytes, at: int) -> int:
    """Where a run of bytes ends, which may be empty."""
    found = pattern.match(piece, at)
    return at if found is None else found.end()


def _unescaped(key: bytes) -> bytes:
    if b"\\" not in key:
        return key
    try:
        return str(json.loads(f'"{key.decode()}"')).encode()
    except ValueError:
        return b""
