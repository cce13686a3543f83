"""Finds the package index from which the libraries of a language come."""

import re
import subprocess

import anyio

from ..errors import InstallFailed, ProfileError
from ..languages import Language, Libraries
from ..profile import Profile

_WAIT = 20.0
_defaults: dict[tuple[str, ...], str] = {}
"""Output of package managers, by command: their configuration is read once in the life of this process."""


async def index_of(language: Language, profile: Profile) -> str:
    """The URL of the package index: from the profile, else the handler, else the package manager's configuration.

    `InstallFailed` if none of them names an index, `ProfileError` for a handler without libraries.
    """
    libraries = language.handler.libraries
    if libraries is None:
        raise ProfileError(f"{language.folder / 'handler.toml'}: libraries: missing, so nothing can be installed")
    chosen = profile.language(language.name).index or libraries.index
    return chosen or await _default_index(language.name, libraries)


async def _default_index(name: str, libraries: Libraries) -> str:
    command = libraries.default_index
    if command in _defaults:
        return _defaults[command]
    hint = f"set languages.{name}.index in the profile"
    if not command:
        raise InstallFailed(f"no package index is known for {name}; {hint}")
    try:
        with anyio.fail_after(_WAIT):
            answer = await anyio.run_process(_program(command), stdin=subprocess.DEVNULL, cwd="/", check=False)
    except TimeoutError:
        raise InstallFailed(f"`{' '.join(command)}` did not answer within {_WAIT:.0f}s; {hint}") from None
    except OSError as error:
        raise InstallFailed(f"`{' '.join(command)}` cannot be run ({error.strerror}); install it, or {hint}") from error
    match = re.search(libraries.default_index_pattern, answer.stdout.decode(errors="replace"))
    if match is None:
        raise InstallFailed(f"`{' '.join(command)}` printed no package index; {hint}")
    _defaults[command] = match[1 if match.re.groups else 0].strip()
    return _defaults[command]


def _program(command: tuple[str, ...]) -> tuple[str, ...]:
    if command[0] != "uv":
        return command
    from uv import find_uv_bin

    return (find_uv_bin(), *command[1:])
