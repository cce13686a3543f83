"""Finds the names in a file: modules, calls, literal strings. Runs in the worker, on untrusted text."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from operator import itemgetter

from tree_sitter import Language, Node, Parser

from .escapes import decoded, unescaped
from .hints import pieces_of
from .queries import Match, parts_of

_LONGEST = 400
"""Bytes of a name that are read; a longer name is a chain of calls, and its beginning is enough."""
_MEANINGS = 8
"""Names that one alias can refer to at most, in all scopes of one file."""
_LITERAL = re.compile(r"""(?:[A-Za-z]|u8)*("{3}|'{3}|["'`])(.*?)\1?\Z|<(.*)>\Z""", re.DOTALL)
_NO_MODULE = re.compile(r"\s|//")
_DEEPEST = 3
"""How many levels of code in strings of code are read."""
_PLAIN = re.compile(r"[\w.]*")
_SPACE = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|/\*.*?\*/|(?://|\#(?!\w))[^\n]*|\\\n|\s+""", re.DOTALL)
_BEFORE = re.compile(r"\A(?:[(\s]|(?:await|new)\s)+")
_LAST = re.compile(r"([^./:-]+)(?:[./]v\d+)?\Z")
"""The last part of a module, by which code refers to it; a version such as `v2` at the end does not count."""
_INDEX = re.compile(r"""\[["'`]([\w.]+)["'`]\]""")
_DOT = re.compile(r"[?&]\.|->|:{2,3}|\$")
_CALLED = re.compile(r"""([^(]+)\((?:\w+=)?((?:[A-Za-z]{0,2})(?:"[^"]*"|'[^']*'|`[^`]*`))[^)]*\)*(.*)\Z""", re.DOTALL)
_ARGUMENTS = re.compile(r"\([^()]*\)")


@dataclass(slots=True)
class Names:
    """The names in one file, each with the offset in bytes of its first use."""

    modules: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)
    comments: list[tuple[int, int]] = field(default_factory=list)
    literals: list[tuple[int, int]] = field(default_factory=list)
    """Where comments and literal strings begin and end, in bytes."""


class Grammar:
    """The grammar of one language, with the query that finds names in its syntax trees."""

    def __init__(
        self,
        language: Language,
        query: str,
        *,
        importers: Iterable[str],
        builtin: Iterable[str],
        noise: str,
        dotted: bool,
        signs: Mapping[str, str],
    ) -> None:
        self.dot = "." if dotted else ":"
        self.boundary = re.compile(r"[./:]|\Z" if dotted else r"[/:]|\Z")
        self._parser = Parser(language)
        self.signs = signs
        self._parts = parts_of(language, query)
        self._noise = re.compile(noise) if noise else None
        self._builtin = tuple(f"{name}{self.dot}" for name in builtin)
        self._importers = frozenset(map(self.plain, importers))
        names = [name.encode() for name in importers]
        self._importing = frozenset(piece for name in names for piece in pieces_of(name) or [name])

    def names(
        self,
        code: bytes,
        *,
        named: bool = True,
        texts: bool = True,
        shapes: bool = False,
        pieces: Collection[bytes] | None = None,
        depth: int = _DEEPEST,
    ) -> Names:
        """The names in the code, the texts of its strings, and its shapes: where strings and comments are.

        Each of the three costs time. With `pieces`, only calls that contain one of these, or an alias of a name that
        does, are read. `depth`: how many levels of code in strings are read.
        """
        root = self._parser.parse(code).root_node
        wanted = None if pieces is None else self._importing.union(pieces)
        reading = _Reading(self, code, self._importers, wanted)
        if named:
            reading.read(chain(self._parts.named.matches(root, code), self._parts.special.matches(root, code)))
        texts = texts or reading.computes
        if texts or shapes:
            found = self._parts.shapes.captures(root)
            reading.read_shapes(found)
            if texts:
                reading.read_texts(found.get("string", ()), self._parts.words.captures(root).get("word", ()))
        if reading.computes:
            reading.take_strings_for_modules()
        if depth:
            for inner, start in reading.inner.items():
                reading.take(self.names(inner, texts=False, pieces=pieces, depth=depth - 1), start)
        return reading.names

    def plain(self, name: str) -> str:
        """A name in the form that is compared: without spaces and noise, with one kind of separator."""
        name = decoded(name)
        if self._noise is not None:
            name = self._noise.sub("", name)
        if not name.isascii():
            # Python normalizes identifiers like this; in no language does it hide a plain name.
            name = unicodedata.normalize("NFKC", name)
        if not _PLAIN.fullmatch(name):
            name = _DOT.sub(self.dot, _INDEX.sub(r".\1", _SPACE.sub(r"\1", _BEFORE.sub("", name))))
        return self.own(name)

    def own(self, name: str) -> str:
        """The name without a builtin module, whose names need no import."""
        for prefix in self._builtin:
            if name.startswith(prefix):
                return name[len(prefix) :]
        return name


class _Reading:
    """One pass over what the query found in a file: first the names that the file binds, then those that it uses."""

    def __init__(
        self, grammar: "Grammar", code: bytes, importers: frozenset[str], pieces: Collection[bytes] | None
    ) -> None:
        self._grammar = grammar
        self._dot = grammar.dot
        self._code = code
        self._importers = importers
        self._bound: dict[str, list[str]] = {}
        self._stars: list[str] = []
        self._meanings: dict[str, list[str]] = {}
        self._plain = cache(grammar.plain)
        self._module = cache(lambda text: grammar.plain(literal(text)))
        self._pieces = set(pieces) if pieces is not None else None
        self.names = Names()
        self.inner: dict[bytes, int] = {}
        """Code in strings that the file runs as code, and where each string begins."""
        self.computes = False
        """Whether the file imports something whose name is not a literal."""

    def read(self, matches: Iterable[Match]) -> None:
        """Takes in the names of modules and calls."""
        values, calls = [], []
        for setting, captures in matches:
            if "call" in captures or "member" in captures:
                calls.append((setting, captures))
            elif "value" in captures:
                values.append((setting, captures))
            elif "code" in captures:
                self._run(setting, captures["code"][0])
            elif "computed" in captures:
                self.computes = True
            else:
                self._import(setting, captures)
        for setting, captures in values:
            self._assign(setting, captures)
        # Calls that import, such as `library(x)`, come first: they can bind names that other calls use.
        by_literal = {self._call_with_name(setting, captures) for setting, captures in calls if "argument" in captures}
        # Most names are used many times: each is resolved only once.
        first: dict[str | bytes, int] = {}
        others: set[str | bytes] = set()
        for setting, captures in calls:
            called, start = self._called(setting, captures)
            if first.setdefault(called, start) > start:
                first[called] = start
            if start not in by_literal:
                others.add(called)
        for called, start in first.items():
            if isinstance(called, str):
                self._use(called, start)
            elif self._matters(called):
                name = called.decode(errors="replace")
                self._use(name, start)
                if called in others and not self.computes:
                    self.computes = self._imports(name)

    def read_shapes(self, captures: Mapping[str, Sequence[Node]]) -> None:
        """Takes in where comments and strings are."""
        for kind, places in (("string", self.names.literals), ("comment", self.names.comments)):
            places += [(node.start_byte, node.end_byte) for node in captures.get(kind, ())]

    def read_texts(self, *kinds: Iterable[Node]) -> None:
        """Takes in the texts of strings, and of words that are texts without quotes."""
        # Most words occur many times: each is read only once.
        first: dict[bytes, int] = {}
        for node in chain(*kinds):
            start = node.start_byte
            text = self._code[start : node.end_byte]
            if first.setdefault(text, start) > start:
                first[text] = start
        for text, start in sorted(first.items(), key=itemgetter(1)):  # captures are not ordered
            self._note(self.names.strings, literal(text.decode(errors="replace")), start)

    def _import(self, settings: Mapping[str, str | None], captures: dict[str, list[Node]]) -> None:
        node = captures["module"][0]
        module = self._module(self._text_of(node))
        start = node.start_byte
        self._note(self.names.modules, module, start)
        name = self._text_of(captures["name"][0]) if "name" in captures else ""
        whole = self._plain(f"{module}{self._dot}{name}") if name else module
        if name:
            self._note(self.names.modules, whole, start)
        local = self._text_of(captures["as"][0]) if "as" in captures else name
        self._bind(settings, local, module, whole)

    def _assign(self, settings: Mapping[str, str | None], captures: dict[str, list[Node]]) -> None:
        name = self._text_of(captures["name"][0]) if "name" in captures else ""
        local = self._text_of(captures["as"][0]) if "as" in captures else name
        for value in list(self._meaning(self._text_of(captures["value"][0]))):
            whole = f"{value}{self._dot}{name}" if name else value
            if name:
                self._use(whole, captures["name"][0].start_byte)
            self._bind(settings, local, value, whole)

    def _bind(self, settings: Mapping[str, str | None], local: str, module: str, whole: str) -> None:
        match settings.get("bind"):
            case "none":
                return
            case "star":
                self._stars.append(module)
                if self._matters(module.encode()):
                    self._pieces = None
                return
            case "first":
                local = whole = module.partition(".")[0]
            case "last":
                last = _LAST.search(module)
                local = last[1] if last is not None else module
        meanings = self._bound.setdefault(local, [])
        if local and whole not in meanings and len(meanings) < _MEANINGS:
            meanings.append(whole)
            if self._pieces is not None and self._matters(whole.encode()):
                known_as = pieces_of(local.encode())
                self._pieces = self._pieces.union(known_as) if known_as else None

    def _matters(self, name: bytes) -> bool:
        return self._pieces is None or not self._pieces.isdisjoint(pieces_of(name) or [name])

    def _call_with_name(self, settings: Mapping[str, str | None], captures: dict[str, list[Node]]) -> int | None:
        """The start of a call that imports something by a literal name; None for any other call."""
        called, start = self._called(settings, captures)
        if not self._imports(called if isinstance(called, str) else called.decode(errors="replace")):
            return None
        module = self._module(self._text_of(captures["argument"][0]))
        self._note(self.names.modules, module, start)
        self._bind({"bind": settings.get("bind") or "none"}, "", module, module)
        return start

    def _called(self, settings: Mapping[str, str | None], captures: dict[str, list[Node]]) -> tuple[str | bytes, int]:
        if "call" in captures:
            node = captures["call"][0]
            start = (captures["on"][0] if "on" in captures else node).start_byte
            return settings.get("name") or self._code[start : min(node.end_byte, start + _LONGEST)], start
        on, member = captures["on"][0], captures["member"][0]
        name = literal(self._text_of(member)).removeprefix(":")
        return f"{self._text_of(on)}{self._dot}{name}", on.start_byte

    def _run(self, settings: Mapping[str, str | None], node: Node) -> None:
        code = self._code[node.start_byte : node.end_byte]
        if self._matters(code):
            text = code.decode(errors="replace")
            text = text if settings.get("text") == "verbatim" else literal(unescaped(text))
            self.inner.setdefault(text.encode(errors="replace"), node.start_byte)

    def take(self, names: Names, start: int) -> None:
        """Takes in the names of code in a string that begins at `start`."""
        for mine, theirs in ((self.names.modules, names.modules), (self.names.calls, names.calls)):
            for name in theirs:
                self._note(mine, name, start)

    def take_strings_for_modules(self) -> None:
        """Takes each string of the file as a module: an import whose name is not a literal can get any of them."""
        for text, start in self.names.strings.items():
            if len(text) <= _LONGEST and not _NO_MODULE.search(text):
                self._note(self.names.modules, self._plain(text), start)

    def _use(self, text: str, start: int) -> None:
        known = self._meanings.get(text)
        if known is None:
            known = self._meanings[text] = list(self._meaning(text))
        for name in known:
            self._note(self.names.calls, name, start)

    def _meaning(self, text: str) -> Iterator[str]:
        """The names that an expression can refer to."""
        if "(" in text:
            text = _BEFORE.sub("", text)
            if self._imports(text.partition("(")[0]):
                called = _CALLED.match(_SPACE.sub(r"\1", text))
                if called is not None:
                    yield self._plain(literal(called[2]) + _without_arguments(called[3]))
                    return
            text = _without_arguments(text)
        name = self._plain(text)
        head, dot, rest = name.partition(self._dot)
        bound = self._bound.get(head)
        if bound is None:
            yield name
        for meaning in self._stars if bound is None else bound:
            yield self._grammar.own(f"{meaning}{self._dot}{name}" if bound is None else f"{meaning}{dot}{rest}")

    def _imports(self, called: str) -> bool:
        if not self._importers:
            return False
        name = self._plain(_without_arguments(called))
        if name in self._importers:
            return True
        head, dot, rest = name.partition(self._dot)
        return any(
            self._grammar.own(f"{meaning}{dot}{rest}") in self._importers for meaning in self._bound.get(head, ())
        )

    def _note(self, names: dict[str, int], name: str, start: int) -> None:
        names[name] = min(start, names.get(name, start))

    def _text_of(self, node: Node, last: Node | None = None) -> str:
        start, end = node.start_byte, (last or node).end_byte
        return self._code[start : min(end, start + _LONGEST)].decode(errors="replace")


def literal(text: str) -> str:
    """The text of a literal, with its escapes decoded; a word without quotes is its own text."""
    found = _LITERAL.match(text)
    if found is None:
        return text
    return decoded(found[2] if found[2] is not None else found[3])


def _without_arguments(name: str) -> str:
    """`a(1).b(2)` as `a.b`."""
    while "(" in name:
        shorter = _ARGUMENTS.sub("", name)
        if shorter == name:
            return name.partition("(")[0]
        name = shorter
    return name.replace(")", "")
