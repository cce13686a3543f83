"""What has changed in the files and variables of a sandbox since they were saved last.

Code can have written all that is compared here: it can only harm what is saved of itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..backends.layout import HOME, WORKDIR

FOLDER = "/tmp/.sandbox-state"
"""Where variables are while they are saved or opened, in a folder for each language."""
PLACES = tuple(path.removeprefix("/") for path in (WORKDIR, HOME, "/tmp"))
"""The folders whose files are saved."""

_OWN = f"{FOLDER.removeprefix('/')}/".encode()
_PART = b"-"
"""Instead of a digest: the name of the file is one."""
_BEFORE_MAPPED = 5
"""Fields before the path of a file in a line about the memory of a process."""
_FIELDS = 6
"""Before the path of a file: times, size, number, mode, kind."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Files and variables as they were saved."""

    listing: bytes = b""
    """A line for each file, compressed."""
    variables: dict[bytes, bytes] = field(default_factory=dict)
    """The digests of the files that variables are in, by path."""
    parts: frozenset[bytes] = frozenset()
    """The paths of the parts of variables, which have digests as names."""

    def known(self) -> Iterable[bytes]:
        """The parts of each language, as lines with its name and theirs."""
        for path in self.parts:
            language, _, rest = path.removeprefix(_OWN).partition(b"/parts/")
            yield b"%b %b\n" % (language, rest)


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be saved."""

    seen: Seen
    """As it is now."""
    changed: Sequence[bytes]
    """Paths of files to be packed."""
    gone: Sequence[bytes]
    files: int
    """How many files and folders there are now."""

    @property
    def head(self) -> bytes:
        """What precedes the packed files: the names of those that are gone, after their length."""
        names = b"".join(b"%b\0" % path for path in self.gone)
        return b"%010d%b" % (len(names), names)


NOTHING_GONE = b"%010d" % 0


def compare(before: Seen | None, listing: bytes, variables: bytes) -> Changes:
    """Compares what is there with what was saved, if anything was. It takes long.

    `listing` has an entry for each file, ended by NUL: times, size, number, mode, kind and path; `variables` a line
    for each file with variables: its digest, or `-` for a part, and its path; and lines of /proc/PID/maps about files
    that are written through memory.
    """
    import zstandard

    entries = listing.split(b"\0")[:-1]
    now = set(entries)
    earlier = set[bytes]()
    if before is not None:
        earlier.update(zstandard.ZstdDecompressor().decompress(before.listing).split(b"\0")[:-1])
    changed = [_path(entry) for entry in entries if entry not in earlier]
    gone = {_path(entry) for entry in earlier - now} - {_path(entry) for entry in now - earlier}
    known, parts = before.variables if before is not None else {}, before.parts if before is not None else frozenset()
    digests, new, mapped = dict[bytes, bytes](), set[bytes](), set[bytes]()
    for line in variables.split(b"\n"):
        if len(memory := line.split(None, _BEFORE_MAPPED)) > _BEFORE_MAPPED:
            mapped.add(memory[-1].removeprefix(b"/"))
            continue
        digest, _, path = line.partition(b"  ")
        if not path.startswith(_OWN):
            continue
        if digest == _PART:
            new.add(path)
        else:
            digests[path] = digest
    if mapped:  # what is written through memory changes no times
        changed += sorted(mapped.intersection(map(_path, entries)).difference(changed))
    changed += sorted(new - parts)
    changed += [path for path, digest in digests.items() if known.get(path) != digest]
    gone |= known.keys() - digests.keys()
    seen = Seen(zstandard.ZstdCompressor(level=1).compress(listing), digests, parts | new)
    return Changes(seen, changed, sorted(gone), len(now))


def _path(entry: bytes) -> bytes:
    return entry.split(b" ", _FIELDS)[-1]
