"""`llm-sandbox-mcp doctor`."""

import argparse
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import anyio

from ..backends.base import Backend, Check, Sandbox
from ..backends.layout import ENVIRONMENTS, PATH, TOOLS
from ..base.errors import InstallFailed, SandboxError, StartFailed, StoreFailed
from ..base.messages import Problem
from ..base.principal import USER
from ..base.text import one_line
from ..base.units import format_duration, format_size
from ..compat.environment import OldVariable, old_variables, settings_of
from ..host.folders import HostFolders, can_be_used
from ..languages.languages import Language
from ..languages.places import Places
from ..libraries.installing import choose
from ..libraries.prepared import environments
from ..libraries.prepared.cache import contents
from ..pool.preloads import modules_of, zygote_of
from ..profile.profile import Profile
from ..rules.checking import Unready
from ..runs.interpreter import start_interpreter
from ..runs.interpreters import Interpreters
from ..runs.preloading import preload
from ..service import Service
from ..service.describing import ask_version
from ..service.starts import Starts
from . import layers
from .cache import used_of
from .console import table
from .opening import folders_of, named_profile, opened, read_profile, run_until_signal

_BROKEN = 1
_PATIENCE = 30.0
"""Seconds until a process that has all modules imported is ready to be forked; it takes one or two."""
_BUILD = "llm-sandbox-mcp images build"


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints what works, what is degraded and what is missing; 0 when code can run in at least one language, else 1."""
    variables = old_variables(environ, named=bool(named_profile(options, environ)))
    profile = read_profile(options, environ, settings_of(variables))
    folders = folders_of(profile, environ)

    async def examine() -> int:
        async with opened(profile, environ) as service:
            engine = await service.backend.probe()
            if all(row.state != "missing" for row in engine):
                trial, seen, languages = await _try_sandboxes(service, folders, environ)
                engine = _merged([*engine, trial], seen)
            else:
                languages = [row for language in service.languages.values() for row in _missing_commands(language)]
            unjudged = await service.unjudged()
            runs = [row for row in languages if row.state != "missing" and row.name not in unjudged]
            works = all(row.state != "missing" for row in engine) and bool(runs)
            rules = _rules(service, unjudged)
            show(
                [
                    *engine,
                    _room(service),
                    _network(profile),
                    *languages,
                    *rules,
                    *_tools(),
                    *_folders(folders),
                    await _saved_sessions(service),
                    *_old(variables),
                ],
                works,
            )
        return 0 if works else _BROKEN

    return run_until_signal(examine)


def show(rows: Sequence[Check], works: bool) -> None:
    """Prints the rows, the fixes for rows that are not ok, and the conclusion."""
    lines = [table(("what", "state", "detail"), [(row.name, row.state, row.detail) for row in rows])]
    fixes = [one_line(f"  {row.name}: {row.fix}") for row in rows if row.state != "ok" and row.fix]
    if fixes:
        lines += ["", "what fixes it:", *fixes]
    lines += ["", "Code can run here." if works else "Code cannot run here."]
    sys.stdout.write("\n".join(lines) + "\n")


def _merged(reported: Sequence[Check], seen: Sequence[Check]) -> list[Check]:
    """One row for each name: the engine's row, unless a live sandbox shows that something is not ok."""
    found = {row.name: row for row in seen}
    rows = [(found.pop(row.name, row), row) for row in reported]
    return [*(live if live.state != "ok" == row.state else row for live, row in rows), *found.values()]


async def _try_sandboxes(
    service: Service, folders: HostFolders, environ: Mapping[str, str]
) -> tuple[Check, list[Check], list[Check]]:
    """Opens a real sandbox of each image, or of the host, and checks its start, its layers and each language in it."""
    backend = await service.backend.chosen()
    by_image: dict[str, list[Language]] = {}
    for language in service.languages.values():
        by_image.setdefault(backend.image_of(language.name), []).append(language)
    policy = service.profile.policy()
    trial = Check("sandbox", "missing", "no sandbox can be made for any language", "see the rows below")
    rows, seen = [], []
    for image, languages in by_image.items():
        start = time.perf_counter()
        try:
            async with backend.sandbox(policy, image) as sandbox:
                await sandbox.run(("true",), {"PATH": PATH})
                if trial.state != "ok":
                    spent = (time.perf_counter() - start) * 1000
                    trial = Check("sandbox", "ok", f"started and ran a program in {spent:.0f} ms")
                    seen = [*await layers.look(sandbox, policy, environ), *await _views(service, sandbox)]
                for language in languages:
                    rows += await _examine(language, service.profile, folders, environ, backend, sandbox)
                    rows += await _start(language, service.starts, backend, sandbox)
        except SandboxError as error:
            cause, step = error.problem
            if not image:
                return Check("sandbox", "missing", cause, step or "see the rows above"), [], []
            rows += [Check(language.name, "missing", cause, step) for language in languages]
    return trial, seen, rows


async def _views(service: Service, sandbox: Sandbox) -> list[Check]:
    """How code sees each of the operator's folders, or why it cannot use it as it is open."""
    rows = []
    for view in service.profile.views:
        mounted = view in sandbox.mounted
        problem = view.folder.problem
        if not (problem or mounted) and (why := await service.views.problem(view, sandbox.policy)):
            empty = f"{view.folder.path} is empty in sessions: {why}"
            problem = Problem(empty, "open a part of it, or raise limits.disk")
        if problem:
            rows.append(Check(view.place, "degraded", *problem))
            continue
        how = "mounted, read-only" if mounted else "copied into each session, and anew if it changes"
        saved = "; what code changes is saved there when a run ends" if view.folder.writable else ""
        gone = ", and what it deletes is deleted there" if view.folder.deletes else ""
        rows.append(Check(view.place, "ok", f"{view.folder.path}, {how}{saved}{gone}"))
    return rows


def _missing_commands(language: Language) -> list[Check]:
    """A row if programs that the language requires are missing where sandboxes look."""
    missing = _missing_programs(language.handler.requires.commands)
    detail = f"not below /usr, where sandboxes look: {', '.join(missing)}"
    return [Check(language.name, "missing", detail, language.handler.requires.install)] if missing else []


async def _examine(
    language: Language,
    profile: Profile,
    folders: HostFolders,
    environ: Mapping[str, str],
    backend: Backend,
    sandbox: Sandbox,
) -> list[Check]:
    handler = language.handler
    if not sandbox.image and (missing := _missing_commands(language)):
        return missing
    environment = backend.environment
    places = Places(language, environment, tools=f"{environment}/bin" if environment else TOOLS)
    if absent := await sandbox.lacking(handler.requires.commands, places.env(sandbox.path)):
        return [Check(language.name, "missing", f"image {sandbox.image} has no {', '.join(absent)}", _BUILD)]
    listed = fix = ""
    if handler.environment is not None and not environment:
        libraries = profile.language(language.name).libraries
        found = await environments.find(language, libraries, folders.cache)
        listed = ", ".join(libraries) or "no libraries"
        if not found:
            return [await _unprepared(language, profile, environ, listed)]
        if changed := environments.changed(path := environments.environment_path(folders.cache, found)):
            slow = "servers that ran then start sandboxes more slowly"
            listed = f"{', '.join(changed)} changed on disk since it was prepared, so that {slow}; {listed}"
            fix = f"remove {path}; llm-sandbox-mcp prepare {language.name}; start those servers again"
        places = replace(places, environment=f"{ENVIRONMENTS}/{found}")
    try:
        version = await ask_version(sandbox, places)
    except StartFailed as error:
        return [Check(language.name, "missing", str(error), handler.requires.install)]
    detail = f"{version}, {listed} prepared" if listed else version
    rows = [Check(language.name, "degraded" if fix else "ok", detail, fix)]
    if handler.libraries is not None:
        try:
            await choose(sandbox, places)
        except InstallFailed as error:
            rows.append(Check(f"{language.name} libraries", "degraded", *error.problem))
    if profile.pool.min and language.name in profile.pool.languages:
        rows += await _preload(language, profile, backend, sandbox, places)
    return rows


async def _preload(
    language: Language, profile: Profile, backend: Backend, like: Sandbox, places: Places
) -> list[Check]:
    """What warm interpreters import while they wait, and what it costs, tried in other sandboxes like this one."""
    if not (modules := modules_of(profile, language)):
        return []
    name, avoided = f"{language.name} preload", dict[str, str]()
    step = f"name others in languages.{language.name}.preload, or install what is missing"
    done = None
    try:
        while done is None:
            async with backend.sandbox(like.policy, like.image) as sandbox:
                interpreter = await start_interpreter(sandbox, places)
                done = await preload(interpreter, modules, avoided, sandbox.policy.memory)
    except SandboxError as error:
        return [Check(name, "degraded", error.cause, step)]
    cost = f"{format_duration(done.seconds)} and {format_size(done.memory)} for each warm sandbox"
    detail = f"{', '.join(done.modules)}: {cost}" if done.modules else "nothing"
    wrong = [f"without {module}: {why}" for module, why in done.skipped.items()]
    if done.modules:
        why = f"it is not known after {_PATIENCE:g} s whether they can"
        with anyio.move_on_after(_PATIENCE):
            why = await backend.unforked(zygote_of(places, done.modules, frozenset()))
        wrong += [f"sandboxes do not start with them: {why}"] if why else []
    return [Check(name, "degraded" if wrong else "ok", "; ".join([detail, *wrong]), step)]


async def _start(language: Language, starts: Starts, backend: Backend, like: Sandbox) -> list[Check]:
    """Whether the saved session opens that those in a language start from, tried in another sandbox like this one."""
    if language.name not in starts.names:
        return []
    row, name = f"{language.name} start", starts.names[language.name]
    try:
        async with backend.sandbox(like.policy, like.image) as sandbox:
            began = time.perf_counter()
            notes = (await starts.open(Interpreters(sandbox), language.name)).notes
            spent = (time.perf_counter() - began) * 1000
    except SandboxError as error:
        return [Check(row, "missing", *error.problem)]
    detail = "; ".join([f"{name}, opened in {spent:.0f} ms", *(note.cause for note in notes)])
    return [Check(row, "degraded" if notes else "ok", detail, "save it again, with the libraries of today")]


async def _unprepared(language: Language, profile: Profile, environ: Mapping[str, str], listed: str) -> Check:
    """Whether the libraries of a language can be prepared at its first use."""
    prepare = f"llm-sandbox-mcp prepare {language.name}"
    if profile.server.offline:
        detail = f"{listed} are not prepared, and server.offline is true: code runs without them"
        return Check(language.name, "degraded", detail, f"with a network: {prepare}")
    # Imported here, since no other command needs an HTTP client.
    from ..libraries.installed.index_client import read_certificates
    from ..libraries.installed.indexes import index_of, index_problem

    try:
        index = await index_of(language, profile)
        problem = await index_problem(index, await read_certificates(), environ, folders=True)
    except InstallFailed as error:
        problem = error.problem
    if problem is None:
        return Check(language.name, "degraded", f"{listed} will be prepared at the first use", prepare)
    detail = f"{listed} cannot be prepared, and code runs without them: the package index {problem.cause}"
    step = f"name an index that this machine reaches in languages.{language.name}.index of the profile; {prepare}"
    return Check(language.name, "degraded", detail, step)


def _missing_programs(programs: Sequence[str]) -> Sequence[str]:
    return [name for name in programs if not shutil.which(name, path=PATH)]


def _room(service: Service) -> Check:
    """How many sandboxes can exist at once, for each resource that limits their number."""
    promised, bottleneck = service.profile.sessions.max, service.backend.bottleneck
    resources = "; ".join(f"{room.of} for {room.sandboxes}" for room in service.backend.room())
    enough = bottleneck.sandboxes >= promised
    return Check("room", "ok" if enough else "degraded", f"sessions.max is {promised}: {resources}", bottleneck.step)


def _network(profile: Profile) -> Check:
    """What code can reach."""
    network = profile.network
    named = [*map(str, network.granted().destinations), *(f"http://{secret.domain}" for secret in network.secrets)]
    reached = {
        "none": "none",
        "allow": f"allow: {', '.join(named) or 'no host'}",
        "open": "open: what this machine reaches, or the engine's own network",
    }
    return Check("code's network", "ok", reached[network.mode])


def _rules(service: Service, unjudged: Mapping[str, Unready]) -> list[Check]:
    """Whether the rules can judge code, if the profile has rules."""
    if not service.rules:
        return []
    names = ", ".join(dict.fromkeys(rule.name for rule in service.rules))
    refused = [
        Check(f"{name} rules", "missing", f"{name} is refused: rules apply to it, {why.cause}", _fix(why))
        for name, why in unjudged.items()
    ]
    return [Check("rules", "ok", names), *refused]


def _fix(why: Unready) -> str:
    return why.step if why.file is None else f"{why.step}: {why.file}"


def _tools() -> list[Check]:
    try:
        from uv import find_uv_bin

        return [Check("uv", "ok", find_uv_bin())]
    except (ImportError, FileNotFoundError):
        return [Check("uv", "degraded", "not found; Python's libraries cannot be prepared", "pip install uv")]


def _folders(folders: HostFolders) -> list[Check]:
    used = ", ".join(f"{kept.folder.name} {used_of(kept)}" for kept in contents(folders.cache))
    rows = []
    for name, folder, detail in (("cache", folders.cache, f": {used}"), ("runtime", folders.runtime, "")):
        if can_be_used(folder):
            rows.append(Check(name, "ok", f"{folder}{detail}"))
        else:
            rows.append(Check(name, "degraded", f"{folder} cannot be written", f"set server.{name} in the profile"))
    return rows


async def _saved_sessions(service: Service) -> Check:
    """How many sessions this user has saved, or why none can be."""
    name = "saved sessions"
    try:
        detail = f"{await service.states.use(USER)} in {service.states.place}"
        if service.profile.sessions.keep:
            detail += f"; put aside: {await service.keeping.use(USER)}"
        await service.states.check()
    except StoreFailed as error:
        return Check(name, "degraded", error.cause, error.step)
    return Check(name, "ok", detail)


def _old(variables: Sequence[OldVariable]) -> list[Check]:
    """A row for each variable of LLM Sandbox's server that is set; `serve` does not start if one is refused."""
    return [Check(old.name, "missing" if old.refused else "degraded", old.cause, old.step) for old in variables]
