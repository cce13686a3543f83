"""Cuts of UTF-8 that leave its characters whole, and names of files that are not UTF-8."""

LONGEST_CHARACTER = 4
"""Bytes."""


def whole_end(data: bytes) -> bytes:
    """The data without a character that the cut at its end split."""
    for back in range(1, min(LONGEST_CHARACTER, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data if back >= needed else data[:-back]
    return data


def whole_start(data: bytes) -> bytes:
    """The data without the rest of a character that the cut at its start split."""
    start = 0
    while start < min(LONGEST_CHARACTER - 1, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def is_text(name: str) -> bool:
    """Whether a name that the system decoded is UTF-8: other bytes are lone surrogates."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)
