"""Characters that code spells as escapes, in the forms that most languages share."""

import re

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,5})\}|([0-7]{3}))")


def decoded(text: str) -> str:
    """The text with the characters that it means."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    octal = escape[4]
    return chr(int(octal, 8) if octal else int(escape[1] or escape[2] or escape[3], 16))
