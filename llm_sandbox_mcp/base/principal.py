"""Who calls: sessions, work, artifacts and names belong to a principal."""

import os
import pwd
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """One caller, as far as the server tells callers apart. It is written down; nothing is decided by it yet."""

    issuer: str
    """Who vouches for the name: `machine` for users of this machine, `http` for callers over HTTP."""
    name: str


TOKEN = Principal("http", "token")
"""Whoever has the token of `http.token_file`."""
ANONYMOUS = Principal("http", "anonymous")
"""Whoever calls a server over HTTP that asks for no token."""


def _user() -> Principal:
    number = os.getuid()
    try:
        return Principal("machine", pwd.getpwuid(number).pw_name)
    except KeyError:  # as in containers that run as any number
        return Principal("machine", str(number))


USER = _user()
"""The user that this process runs as: the only client on standard input, at the command line, and in a program. Looked
up once, as the system may ask other machines for it."""
