"""The ids of sessions and runs: secrets, by which a server knows whether it made them, and since when."""

import hashlib
import re
import secrets

_ID = re.compile("[0-9a-f]{40}")
_CHECK = 4
"""Digits at the end that follow from the others, so that an id which was never given is told from one that was."""


class Ids:
    """Makes the ids of one server: 40 hexadecimal digits, of which 4 name its start, 32 are random, 4 check these."""

    def __init__(self) -> None:
        self._start = secrets.token_hex(2)

    def new(self) -> str:
        """An id that nobody can guess."""
        digits = self._start + secrets.token_hex(16)
        return digits + _check(digits)

    def valid(self, given: str) -> bool:
        """Whether some server has made it; nobody else guesses one."""
        return bool(_ID.fullmatch(given)) and _check(given[:-_CHECK]) == given[-_CHECK:]

    def made(self, given: str) -> bool:
        """Whether this server has made it, if it is valid."""
        return given.startswith(self._start)

    def fate(self, given: str, ended: str) -> str:
        """Why an id is not known; `ended` is what becomes of those that were made since the start."""
        if not self.valid(given):
            return "it never existed"
        return ended if self.made(given) else "the server has started again since, or another one made it"


def _check(digits: str) -> str:
    return hashlib.sha256(digits.encode()).hexdigest()[:_CHECK]
