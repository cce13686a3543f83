"""Finds the package index from which the libraries of a language come, and says why it does not answer."""

import re
import ssl
import subprocess
from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import url2pathname

import anyio

from ...base.errors import InstallFailed, ProfileError
from ...base.messages import Problem
from ...languages.languages import Language, Libraries
from ...profile.profile import Profile
from .index_client import FAILURES, Upstream, describe, open_client

_WAIT = 20.0
_defaults: dict[tuple[str, ...], str] = {}
"""Output of package managers, by command: their configuration is read once in the life of this process."""


async def index_of(language: Language, profile: Profile) -> str:
    """The URL of the package index: from the profile, else the handler, else the package manager's configuration.

    `InstallFailed` if none of them names an index, `ProfileError` for a handler without libraries.
    """
    libraries = language.handler.libraries
    if libraries is None:
        raise ProfileError("missing, so nothing can be installed", file=language.definition, key="libraries")
    chosen = profile.language(language.name).index or libraries.index
    return chosen or await _default_index(language.name, libraries)


async def _default_index(name: str, libraries: Libraries) -> str:
    command = libraries.default_index
    if command in _defaults:
        return _defaults[command]
    hint = f"set languages.{name}.index in the profile"
    if not command:
        raise InstallFailed(f"no package index is known for {name}", hint)
    try:
        with anyio.fail_after(_WAIT):
            answer = await anyio.run_process(_program(command), stdin=subprocess.DEVNULL, cwd="/", check=False)
    except TimeoutError:
        raise InstallFailed(f"`{' '.join(command)}` did not answer within {_WAIT:.0f}s", hint) from None
    except OSError as error:
        raise InstallFailed(
            f"`{' '.join(command)}` cannot be run ({error.strerror})", f"install it, or {hint}"
        ) from error
    match = re.search(libraries.default_index_pattern, answer.stdout.decode(errors="replace"))
    if match is None:
        raise InstallFailed(f"`{' '.join(command)}` printed no package index", hint)
    _defaults[command] = match[1 if match.re.groups else 0].strip()
    return _defaults[command]


def _program(command: tuple[str, ...]) -> tuple[str, ...]:
    if command[0] != "uv":
        return command
    from uv import find_uv_bin

    return (find_uv_bin(), *command[1:])


_PROBE_WAIT = 10.0
_ASKS_FOR_CREDENTIALS = 401
_BROKEN = 500


async def index_problem(
    address: str, trusted: ssl.SSLContext, environ: Mapping[str, str], *, folders: bool
) -> Problem | None:
    """What is wrong with an index, and the next step; None if it answers.

    `environ` names proxies. `folders`: whether it can be a folder of this machine. Whether it has any library is not
    asked: what is at the address itself differs between indexes, and many have nothing there.
    """
    if folders and address.startswith(("/", "file:")):
        folder = anyio.Path(url2pathname(urlsplit(address).path))
        return None if await folder.is_dir() else Problem(f"there is no folder {folder}", "correct the path")
    try:
        index = Upstream.parse(address)
    except ValueError as error:
        return Problem(f"the address {error}")
    try:
        with anyio.fail_after(_PROBE_WAIT):
            async with (
                open_client(address, trusted, environ) as client,
                client.stream("GET", index.url, auth=index.auth) as answer,
            ):
                status = answer.status_code
    except TimeoutError:
        return Problem(f"{index.host} did not answer within {_PROBE_WAIT:g}s", "correct the address, or start it")
    except FAILURES as error:
        return Problem(f"{index.host} {describe(error)}", "correct the address, or start it")
    if status == _ASKS_FOR_CREDENTIALS:
        step = f"write them as https://USER:PASSWORD@{index.host}"
        return Problem(f"{index.host} refuses these credentials", step)
    if status >= _BROKEN:
        return Problem(f"{index.host} answers with status {status}", "see its log")
    return None
