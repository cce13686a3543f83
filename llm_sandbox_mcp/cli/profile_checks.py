"""What `profile check` looks at in addition to the file itself: folders, files, libraries, indexes, this machine."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio

from ..base.errors import ProfileError
from ..base.messages import Problem
from ..host.folders import can_be_used
from ..languages.languages import Languages, load_languages
from ..libraries.installed.ruling import library_mistakes, library_rules
from ..network.secrets import read_value
from ..profile.machine import limit_mistakes
from ..profile.profile import Profile
from ..rules.checking import open_checker
from ..rules.presets import rules_of
from ..state.opening import saved_sessions


async def profile_mistakes(profile: Profile, environ: Mapping[str, str]) -> list[ProfileError]:
    """Everything that is wrong with a profile whose file is valid."""
    found = [*limit_mistakes(profile), *_folders(profile), *_files(profile)]
    with _noted(found):
        await _token(profile)
    with _noted(found):
        saved_sessions(profile, Path())
    for number, secret in enumerate(profile.network.secrets):
        # A variable of the server's environment can be missing in this one.
        if secret.value_file:
            with _noted(found), _with_file(profile):
                read_value(number, secret, environ)
    with _noted(found):
        languages = load_languages(profile.handlers.folders)
        found += await _about_languages(profile, languages, environ)
    return found


async def _about_languages(profile: Profile, languages: Languages, environ: Mapping[str, str]) -> list[ProfileError]:
    found = [*profile.language_mistakes(languages.prepared, languages.preloading)]
    with _noted(found):
        found += library_mistakes(profile, languages, library_rules(profile, languages))
    async with open_checker(rules_of(profile.rules), profile.rules, languages) as checker:
        for name, why in (await checker.unready()).items():
            if why.file is not None:
                found.append(ProfileError(f"rules apply to {name}, {why.cause}", why.step, file=why.file))
    return [*found, *await _indexes(profile, languages, environ)]


async def _indexes(profile: Profile, languages: Languages, environ: Mapping[str, str]) -> list[ProfileError]:
    """Asks each package index that the profile names, all at once."""
    named = {name: section.index for name, section in profile.languages.items() if section.index and name in languages}
    if not named:
        return []
    # Imported here, since only profiles with an index need an HTTP client.
    from ..libraries.installed.index_client import read_certificates
    from ..libraries.installed.indexes import index_problem

    trusted, problems = await read_certificates(), dict[str, Problem | None]()

    async def ask(name: str) -> None:
        # uv, which prepares environments, also reads folders; what sessions install comes over HTTP.
        folders = languages.prepared[name]
        problems[name] = await index_problem(named[name], trusted, environ, folders=folders)

    async with anyio.create_task_group() as tasks:
        for name in named:
            tasks.start_soon(ask, name)
    return [profile.mistake(f"languages.{name}.index", *why) for name, why in problems.items() if why]


def _folders(profile: Profile) -> Iterator[ProfileError]:
    for number, opened in enumerate(profile.files.opened):
        if problem := opened.problem:
            yield profile.mistake(f"files.folders.{number}", *problem)
    store = "" if profile.sessions.in_objects else profile.sessions.store
    named = {"server.cache": profile.server.cache, "server.runtime": profile.server.runtime, "sessions.store": store}
    for key, folder in named.items():
        if folder and not can_be_used(Path(folder)):
            yield profile.mistake(key, f"{folder} cannot be written", "correct the path, or make it writable")


def _files(profile: Profile) -> Iterator[ProfileError]:
    if file := profile.audit.file:
        # The log is opened when there is something to write, and its folder is not made.
        place = file if os.path.exists(file) else os.path.dirname(file)
        if os.path.isdir(file) or not os.access(place, os.W_OK):
            step = "correct the path, or make its folder writable"
            yield profile.mistake("audit.file", f"{file} cannot be written", step)
    for settings in profile.engines.values():
        for key, file in settings.files().items():
            if file and not os.path.isfile(file):
                yield profile.mistake(key, f"there is no file {file}", "correct the path")
            elif file and not os.access(file, os.R_OK):
                yield profile.mistake(key, f"{file} cannot be read", "allow this user to read it")


async def _token(profile: Profile) -> None:
    if profile.http.token_file:
        # Imported here, since the server is large.
        from ..server.access import read_token

        with _with_file(profile):
            await read_token(profile.http.token_file)


@contextmanager
def _noted(found: list[ProfileError]) -> Iterator[None]:
    """Adds an error that is raised in this scope to those that were found."""
    try:
        yield
    except ProfileError as error:
        found.append(error)


@contextmanager
def _with_file(profile: Profile) -> Iterator[None]:
    """Names the profile's file in an error about one of its keys."""
    try:
        yield
    except ProfileError as error:
        raise profile.mistake(error.key, error.reason, error.step) from error
