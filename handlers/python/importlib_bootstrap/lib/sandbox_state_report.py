"""Writes the report of a session that was saved or opened: what is lost, what else a caller must know, and a number."""

from __future__ import annotations

from posix import O_CREAT, O_TRUNC, O_WRONLY, close, rename, write
from posix import open as open_descriptor

_LOST_LIMIT = 500
"""The most losses that are named."""
_FIELD_LIMIT = 200


def write_report(folder: str, lost: list, notes: list, kept: int) -> None:
    """Writes `report`, whole or not at all; each loss has a name, a type and a reason."""
    lines = [("lost", *loss) for loss in lost[:_LOST_LIMIT]]
    if len(lost) > _LOST_LIMIT:
        lines.append(("note", f"{len(lost) - _LOST_LIMIT} more variables are lost"))
    lines += [("note", note) for note in notes]
    lines.append(("kept", str(kept)))
    text = "".join("\t".join(map(clean, fields)) + "\n" for fields in lines)
    write_file(f"{folder}/report.new", text.encode())
    rename(f"{folder}/report.new", f"{folder}/report")


def clean(text: str) -> str:
    """A text as one field of a line."""
    text = "".join(character if character.isprintable() else " " for character in text[:_FIELD_LIMIT])
    return text.encode("utf-8", "replace").decode()


def reason(error: BaseException) -> str:
    """Why something failed, in words; never fails itself."""
    try:
        text = str.__str__(str(error)).strip()
    except BaseException:
        text = ""
    kind = type.__dict__["__name__"].__get__(type(error))
    plain = kind in ("PicklingError", "UnpicklingError", "ModuleNotFoundError", "Unknown")
    return text if text and (plain or text.startswith("cannot pickle")) else f"{kind}: {text}".rstrip(": ")


def write_file(path: str, content: bytes) -> None:
    """Writes a file without `open`, which code may have replaced."""
    descriptor = open_descriptor(path, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    try:
        while content:
            content = content[write(descriptor, content) :]
    finally:
        close(descriptor)
