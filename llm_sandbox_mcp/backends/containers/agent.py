"""The agent, the main process of a container, and the archive of handlers that it receives first."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePath

AGENT = (Path(__file__).parent / "agent.sh").read_text(encoding="utf-8")
"""The agent's script, for `sh -c`."""

HANDLERS_BYTES = 16 << 20
"""The size of the folder for the handlers."""


def pack_handlers(handlers: Mapping[str, Path]) -> bytes:
    """The handler folders as a compressed tar archive that anyone can unpack; it is sent to every sandbox."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if PurePath(member.name).name in ("__pycache__", "selftest", "Dockerfile"):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() else 0o644
        return member

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.GNU_FORMAT) as archive:
        for name, folder in handlers.items():
            archive.add(folder, name, filter=plain)
    return packed.getvalue()
