"""What a repository's config may show to code: how to read the repository, and no credentials.

Configs often hold some: in the URL of a remote, in a header for HTTP, in a helper's command. So an allow list decides
what is shown, and `clean` writes that anew. The syntax is that of git's own parser, which is more lenient than its
documentation.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

MOST = 1 << 20
"""Bytes of the largest config that is read."""

_ALL = None
_SHOWN: dict[bytes, frozenset[bytes] | None] = {
    b"core": frozenset(
        b"abbrev autocrlf bare bigfilethreshold checkroundtripencoding checkstat commentchar commitgraph "
        b"disambiguate eol filemode hidedotfiles ignorecase logallrefupdates longpaths multipackindex notesref "
        b"precomposeunicode preloadindex protecthfs protectntfs quotepath repositoryformatversion safecrlf "
        b"sharedrepository sparsecheckout sparsecheckoutcone splitindex symlinks trustctime untrackedcache "
        b"warnambiguousrefs whitespace worktree".split()
    ),
    b"diff": frozenset(
        b"algorithm colormoved context dirstat ignoresubmodules indentheuristic interhunkcontext "
        b"mnemonicprefix noprefix relative renamelimit renames statgraphwidth submodule suppressblankempty "
        b"wordregex wserrorhighlight".split()
    ),
    b"extensions": _ALL,
    b"i18n": frozenset((b"commitencoding", b"logoutputencoding")),
    b"index": _ALL,
    b"init": frozenset((b"defaultbranch",)),
    b"status": frozenset((b"relativepaths", b"renamelimit", b"renames", b"showuntrackedfiles")),
    b"submodule": frozenset((b"active", b"recurse")),
    b"user": frozenset((b"email", b"name")),
}
"""The keys of sections without a name that are shown."""
_SHOWN_NAMED = {
    b"branch": frozenset((b"merge", b"pushremote", b"rebase", b"remote")),
    b"remote": frozenset(b"fetch mirror partialclonefilter promisor prune pushurl tagopt url".split()),
    b"submodule": frozenset(b"active branch fetchrecursesubmodules ignore path update url".split()),
}
"""The keys of sections with a name that are shown."""
_URLS = {
    (b"branch", b"pushremote"),
    (b"branch", b"remote"),
    (b"remote", b"pushurl"),
    (b"remote", b"url"),
    (b"submodule", b"url"),
}

_BOM = b"\xef\xbb\xbf"
_SKIPPED = re.compile(rb"[ \t\r\n]++|[#;]([^\n]*+)\n")
_SECTION = re.compile(rb'\[([A-Za-z0-9.-]*+)(?:\]|[ \t\r]++"((?:[^"\\\n\0]|\\[^\n\0])*+)"\])')
_KEY = re.compile(rb"([A-Za-z][A-Za-z0-9-]*+)[ \t]*+(\n|=)")
_QUOTED = rb'"(?:[^"\\\n\0]|\\["\\ntb\n])*+"'
_VALUE = re.compile(rb'((?:[^"\\\n\0#;]|\\["\\ntb\n]|' + _QUOTED + rb")*+)(?:[#;]([^\n]*+))?+\n")
_PIECE = re.compile(rb'([ \t\r]++)|[^ \t\r"\\]++|\\[^\0]|' + _QUOTED)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_MEANT = {b"n": b"\n", b"t": b"\t", b"b": b"\b", b"\n": b""}

_PLAIN = re.compile(rb"[\w./:@+*=,%~!\[\]-]+")
"""Values that need no quotes."""
_SPECIAL = re.compile(rb'[\\"\n\t\b]')
_WRITTEN = {b"\\": b"\\\\", b'"': b'\\"', b"\n": b"\\n", b"\t": b"\\t", b"\b": b"\\b"}

_URL = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*+)://([^/?#]*+)([^?#]*+)")
_SSH = {b"ssh", b"git+ssh", b"ssh+git"}
_SSH_USER = re.compile(rb"(?<=ssh://)[\w.+-]++@")
_HOST = re.compile(rb"(?:[^:\[\]]*+|\[[0-9A-Fa-f:.]*+\])(?::[0-9]*+)?")
_USER = re.compile(rb"[\w.+-]+")
_SCP = re.compile(rb"[\w.+-]++@(?:[\w.-]++|\[[0-9A-Fa-f:.]++\]):[^@]*+")
_LOCAL = (b"/", b"./", b"../", b"~")
_HELPER = re.compile(rb"[\w.+-]++::")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")

_PARTS = re.compile(rb"[\s/]+")
_CAMEL = re.compile(rb"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_NAME = re.compile(
    rb"token|passw(?:or)?d|passphrase|secret|(?:api|access|private)-?key|authorization|extraheader"
    rb"|pass(?![a-z])|(?<![a-z])pat(?![a-z])"
)
_SECRET_WORD = re.compile(
    rb"(?<![a-z])(?:tokens?|passw(?:or)?d|passphrase|pass|secrets?|pat|(?:api|access|private)[-_ ]?key|authorization"
    rb"|bearer|sshpass|extraheader)(?![a-z])"
)
_NAMED_BY_PEOPLE = {b"branch", b"remote", b"submodule"}
"""Sections whose names say nothing of their values: a branch may be called `fix-token`."""


class _Entry(NamedTuple):
    section: bytes
    subsection: bytes | None
    key: bytes
    value: bytes | None
    """None if the key stands alone, which means true."""
    spelt: bytes
    """The key as the file has it; `key` is in lower case."""


class _Parsed(NamedTuple):
    entries: list[_Entry]
    comments: list[bytes]
    whole: bool
    """Whether all of it was understood; otherwise, `entries` are those before the first mistake."""


def clean(config: bytes) -> bytes:
    """The part of a config that git needs to read the repository, written anew, without anything that may be a secret.

    URLs lose their credentials and queries. Of a malformed config, what is before the mistake counts; one of more than
    `MOST` bytes gives nothing.
    """
    if len(config) > MOST:
        return b""
    text = b"".join(_written(filter(None, map(_shown, _parsed(config).entries))))
    return text if len(text) <= MOST else b""


def has_secrets(config: bytes) -> bool:
    """Whether a config may hold a secret as it is, also in its comments.

    True if that cannot be judged: if it is malformed, or has more than `MOST` bytes.
    """
    if len(config) > MOST:
        return True
    parsed = _parsed(config)
    return not parsed.whole or any(map(_speaks_of_secrets, parsed.comments)) or any(map(_may_be_secret, parsed.entries))


def _parsed(config: bytes) -> _Parsed:
    # Git reads the end of a file as the end of a line, also after a backslash.
    text = config.removeprefix(_BOM).replace(b"\r\n", b"\n") + b"\n\n"
    entries: list[_Entry] = []
    comments: list[bytes] = []
    stem, position = b"", 0
    while position < len(text):
        if found := _SKIPPED.match(text, position):
            comments += [found[1]] if found[1] else []
        elif found := _SECTION.match(text, position):
            if not found[1] and found[2] is None:
                return _Parsed(entries, comments, False)
            stem = found[1].lower()
            if found[2] is not None:
                stem += b"." + _ESCAPE.sub(rb"\1", found[2])
        elif found := _KEY.match(text, position):
            value = None
            section, dot, subsection = stem.partition(b".")
            spelt, end = found[1], found[2]
            if end == b"=":
                found = _VALUE.match(text, found.end())
                if found is None:
                    return _Parsed(entries, comments, False)
                value = _meant(found[1])
                comments += [found[2]] if found[2] else []
            entries.append(_Entry(section, subsection if dot else None, spelt.lower(), value, spelt))
        else:
            return _Parsed(entries, comments, False)
        position = found.end()
    return _Parsed(entries, comments, True)


def _meant(written: bytes) -> bytes:
    """The value that is written as these bytes: without the space around it, quotes and escapes."""
    value, space = bytearray(), b""
    for piece in _PIECE.finditer(written):
        if piece[1]:
            space += piece[1] if value else b""
            continue
        value += space
        space = b""
        text = piece[0]
        value += _ESCAPE.sub(_unescaped, text[1:-1] if text.startswith(b'"') else text)
    return bytes(value)


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return _MEANT.get(escape[1], escape[1])


def _written(entries: Iterable[_Entry]) -> Iterator[bytes]:
    for (section, subsection), group in groupby(entries, lambda entry: (entry.section, entry.subsection)):
        name = b"" if subsection is None else b' "%s"' % re.sub(rb'([\\"])', rb"\\\1", subsection)
        yield b"[%s%s]\n" % (section, name)
        for entry in group:
            yield b"\t%s\n" % entry.key if entry.value is None else b"\t%s = %s\n" % (entry.key, _quoted(entry.value))


def _quoted(value: bytes) -> bytes:
    return value if _PLAIN.fullmatch(value) else b'"%s"' % _SPECIAL.sub(lambda found: _WRITTEN[found[0]], value)


def _is_listed(entry: _Entry) -> bool:
    if entry.subsection is not None:
        return entry.key in _SHOWN_NAMED.get(entry.section, ())
    keys = _SHOWN.get(entry.section, frozenset())
    return keys is _ALL or entry.key in keys


def _shown(entry: _Entry) -> _Entry | None:
    """What is shown of an entry; None if nothing is."""
    if not _is_listed(entry) or (entry.subsection is not None and _has_credentials(entry.subsection)):
        return None
    if entry.value is None:
        return entry
    if (entry.section, entry.key) in _URLS:
        url = _without_credentials(entry.value)
        return None if url is None else entry._replace(value=url)
    # A value that begins so is a command.
    if (entry.section, entry.key) == (b"submodule", b"update") and entry.value.startswith(b"!"):
        return None
    return None if _has_credentials(entry.value) else entry


def _without_credentials(url: bytes) -> bytes | None:
    """An address of a repository without passwords and query; None if it is not clear where these would be."""
    if _CONTROL.search(url) or _HELPER.match(url):
        return None
    if found := _URL.match(url):
        protocol, authority, path = found.groups()
        users, _, host = authority.rpartition(b"@")
        user = users.partition(b":")[0]
        if b"@" in path or not _HOST.fullmatch(host):
            return None
        # For SSH, the name belongs to the address. For HTTP, it may be the token.
        kept = user + b"@" if protocol in _SSH and _USER.fullmatch(user) else b""
        return protocol + b"://" + kept + host + path
    if b"://" in url:
        return None
    if url.startswith(_LOCAL):
        return url
    place = url.partition(b"?")[0]
    return place if b"@" not in place or _SCP.fullmatch(place) else None


def _has_credentials(text: bytes) -> bool:
    """Whether text has a URL with a user or a query, or a user with a password before a host."""
    _, found, after = text.partition(b"://")
    if found and (b"@" in after or b"?" in after):
        return True
    for part in _PARTS.split(text):
        user, _, password = part.rpartition(b"@")[0].partition(b":")
        if user and password:
            return True
    return False


def _speaks_of_secrets(text: bytes) -> bool:
    plain = _CAMEL.sub(b"-", text).lower()
    return bool(_SECRET_WORD.search(plain)) or _has_credentials(_SSH_USER.sub(b"", text))


def _may_be_secret(entry: _Entry) -> bool:
    if _is_listed(entry):
        return _shown(entry) != entry
    if (entry.section, entry.key) == (b"credential", b"username"):  # often a token
        return True
    if _SECRET_NAME.search(_CAMEL.sub(b"-", entry.spelt).lower()) or _SECRET_NAME.search(entry.section):
        return True
    name, value = entry.subsection or b"", entry.value or b""
    judge = _has_credentials if entry.section in _NAMED_BY_PEOPLE else _speaks_of_secrets
    return _speaks_of_secrets(value) or judge(_SSH_USER.sub(b"", name))
