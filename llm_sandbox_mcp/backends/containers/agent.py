"""The agent, the main process of a container, and the archive of handlers that it unpacks first."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

AGENT = (Path(__file__).parent / "agent.sh").read_text(encoding="utf-8")
"""The agent's script, for `sh -c`."""

HANDLERS_BYTES = 16 << 20
"""The size of the folder for the handlers."""

ALIAS_BYTES = 4096
"""The size of the folder for the link that is another name of the working directory: the least that there is."""

_TIME = 1
"""When all files were changed, in seconds: `tar` warns of 0."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The handler folders as a compressed tar archive that anyone can unpack."""

    archive: bytes
    digest: str
    """The digest of their names and content, the same on every machine."""

    @property
    def name(self) -> str:
        """The file's name in `/opt` of images that contain these handlers, to whose sandboxes they are not sent."""
        return f"handlers-{self.digest}.tar.gz"


def pack_handlers(handlers: Mapping[str, Path]) -> Packed:
    """Packs the handler folders of languages for sandboxes."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if PurePath(member.name).name in ("__pycache__", "selftest", "Dockerfile"):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = _TIME
        member.mode = 0o755 if member.isdir() else 0o644
        return member

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, folder in sorted(handlers.items()):
            archive.add(folder, name, filter=plain)
    content = packed.getvalue()
    # Not of the compressed archive, which depends on the compressor.
    return Packed(gzip.compress(content, mtime=_TIME), hashlib.sha256(content).hexdigest())
