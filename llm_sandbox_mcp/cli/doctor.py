"""`llm-sandbox-mcp doctor`."""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..backends.base import PATH, Check, Sandbox
from ..errors import SandboxError
from ..folders import HostFolders
from ..kernel import Places
from ..languages import Language
from ..libraries import environments
from ..profile import Profile
from ..service import Service
from .opening import folders_of, opened, read_profile, run_until_signal
from .table import table

_BROKEN = 1


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints what works, what is degraded and what is missing; 0 when code can run in at least one language, else 1."""
    profile = read_profile(options, environ)
    folders = folders_of(profile, environ)

    async def examine() -> int:
        async with opened(profile, environ) as service:
            engine = await service.backend.probe()
            if all(row.state != "missing" for row in engine):
                trial, languages = await _try_sandbox(service, folders)
                engine.append(trial)
            else:
                languages = [row for language in service.languages.values() for row in _commands(language)]
            works = all(row.state != "missing" for row in engine) and any(row.state != "missing" for row in languages)
            _print([*engine, *languages, *_tools(), *_folders(folders)], works)
        return 0 if works else _BROKEN

    return run_until_signal(examine)


def _print(rows: Sequence[Check], works: bool) -> None:
    lines = [table(("what", "state", "detail"), [(row.name, row.state, row.detail) for row in rows])]
    mends = [f"  {row.name}: {row.mend}" for row in rows if row.state != "ok" and row.mend]
    if mends:
        lines += ["", "what mends it:", *mends]
    lines += ["", "Code can run here." if works else "Code cannot run here."]
    sys.stdout.write("\n".join(lines) + "\n")


async def _try_sandbox(service: Service, folders: HostFolders) -> tuple[Check, list[Check]]:
    """Opens a real sandbox, and asks in it for the version of each language."""
    start = time.perf_counter()
    try:
        async with service.backend.sandbox(service.profile.limits.policy()) as sandbox:
            await sandbox.run(("true",), {"PATH": PATH})
            spent = (time.perf_counter() - start) * 1000
            rows = []
            for language in service.languages.values():
                rows += _commands(language) or await _language(language, service.profile, folders, sandbox)
        return Check("sandbox", "ok", f"started and ran a program in {spent:.0f} ms"), rows
    except SandboxError as error:
        return Check("sandbox", "missing", str(error), "see the rows above"), []


def _commands(language: Language) -> list[Check]:
    """The programs that the language cannot do without, and that sandboxes would not find."""
    missing = [name for name in language.handler.requires.commands if not shutil.which(name, path=PATH)]
    detail = f"not below /usr, where sandboxes look: {', '.join(missing)}"
    return [Check(language.name, "missing", detail, language.handler.requires.install)] if missing else []


async def _language(language: Language, profile: Profile, folders: HostFolders, sandbox: Sandbox) -> list[Check]:
    handler = language.handler
    environment = ""
    if handler.environment is not None:
        libraries = profile.language(language.name).libraries
        found = await environments.find(language, libraries, folders.cache)
        listed = ", ".join(libraries) or "no libraries"
        if found is None:
            mend = f"llm-sandbox-mcp run --language {language.name} -c 1"
            return [Check(language.name, "degraded", f"{listed} will be prepared at the first use", mend)]
        environment = found.name
    places = Places(language, environment)
    asked = await sandbox.run(places.argv(handler.version), places.env())
    version = (asked.stdout or asked.stderr).decode(errors="replace").strip().partition("\n")[0]
    if asked.exit_code != 0:
        return [Check(language.name, "missing", version or "does not start", handler.requires.install)]
    rows = [Check(language.name, "ok", f"{version}, {listed} prepared" if environment else version)]
    if handler.libraries is not None:
        lacking = [name for name in handler.libraries.requires if not shutil.which(name, path=PATH)]
        if lacking:
            detail = f"libraries cannot be installed without {', '.join(lacking)}"
            rows.append(Check(f"{language.name} libraries", "degraded", detail, f"install {' and '.join(lacking)}"))
    return rows


def _tools() -> list[Check]:
    try:
        from uv import find_uv_bin

        return [Check("uv", "ok", find_uv_bin())]
    except (ImportError, FileNotFoundError):
        return [Check("uv", "degraded", "not found; Python's libraries cannot be prepared", "pip install uv")]


def _folders(folders: HostFolders) -> list[Check]:
    rows = []
    for name, folder in (("cache", folders.cache), ("runtime", folders.runtime)):
        nearest = _nearest(folder)
        if os.access(nearest, os.W_OK | os.X_OK):
            rows.append(Check(name, "ok", str(folder)))
        else:
            rows.append(Check(name, "degraded", f"{folder} cannot be written", f"set embedded.{name} in the profile"))
    return rows


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())
