"""Output as a terminal leaves it: of a line that was written again and again, such as a progress bar, its last state.

It is applied where output becomes what a model reads, and nowhere else: the bytes of a run, files of its whole output,
and what streams to a caller while code runs stay as the code wrote them, so that all offsets and sizes count these.
"""

import re

_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-JL-~]|\][^\x07\x1b]*\x07)")
"""Colours and other codes that erase nothing: they have no width, so that what is written over them is elsewhere. Lines
that are written once keep theirs."""
_RETURNS = re.compile("\r\r+")
_ERASE_LINE = "\x1b[2K"
"""Programs go to the start of the line before or after it."""
_ERASE_REST = "\x1b[K", "\x1b[0K"


def as_left(text: str) -> str:
    """The text with the last state of each line; takes linear time."""
    if "\r" not in text:
        return text
    lines = _RETURNS.sub("\r", text).replace("\r\n", "\n").split("\n")
    return "\n".join(_last_state(line) if "\r" in line else line for line in lines)


def bytes_as_left(data: bytes) -> bytes:
    """The same for bytes; those that are not UTF-8 stay."""
    if b"\r" not in data:
        return data
    return as_left(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _last_state(line: str) -> str:
    line = _CODES.sub("", line).rpartition(_ERASE_LINE)[2]
    if (erased := max(map(line.rfind, _ERASE_REST))) >= 0:
        line = line[line.rfind("\r", 0, erased) + 1 :]
        for code in _ERASE_REST:
            line = line.replace(code, "")
    # From its end: what was written later covers what was written before, and only slices that show are copied.
    state, end = "", len(line)
    while end >= 0:
        start = line.rfind("\r", 0, end) + 1
        if end - start > len(state):
            state += line[start + len(state) : end]
        end = start - 1
    return state
