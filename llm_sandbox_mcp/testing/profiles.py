"""A profile with limits that are reached quickly, and the folders of the host that it needs."""

import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..backends.base import Surroundings
from ..host.folders import HANDLERS
from ..host.server_folder import make_public
from ..profile.profile import Profile, load_profile
from ..toml.model import Section

MIB = 1 << 20

_SMALL: Mapping[str, Mapping[str, object]] = {
    "limits": {
        "memory": 128 * MIB,
        "cpus": 1.0,
        "pids": 64,
        "disk": 16 * MIB,
        "timeout": 30.0,
        "output": MIB,
        "shown": 8 << 10,
    },
    "sessions": {"max": 6},
    "pool": {"min": 0},
    "artifacts": {"files": 10, "file_size": MIB, "store": 4 * MIB},
}


@contextmanager
def host_folder() -> Iterator[Path]:
    """A folder of the host that sandboxes with any uid can use parts of; pytest's own folders are private."""
    folder = Path(tempfile.mkdtemp(prefix="sandbox-test-", dir=_place()))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


def _place() -> str:
    """The folder for temporary files, or `/tmp` if other users cannot enter that folder."""
    usual = tempfile.gettempdir()
    return usual if all(path.stat().st_mode & 0o001 for path in (Path(usual), *Path(usual).parents)) else "/tmp"


def surroundings(folder: Path) -> Surroundings:
    """The surroundings of a backend, below the folder."""
    runtime = folder / "runtime" / secrets.token_hex(6)
    make_public(runtime)
    handlers = {path.name: path for path in HANDLERS.iterdir() if path.is_dir()}
    return Surroundings(runtime, handlers, (), folder / "tools")


def small_profile(backend: str, folder: Path, **changes: Mapping[str, object]) -> Profile:
    """The default profile with limits that are reached quickly, and everything it keeps on the host below the folder.

    `changes` override keys of its sections. Python is the system's own, so that no environment is built.
    """
    make_public(folder)
    sections: dict[str, Any] = {name: dict(values) for name, values in _SMALL.items()}
    sections["server"] = {"cache": str(folder / "cache"), "runtime": str(folder / "runtime")}
    sections["sessions"]["store"] = str(folder / "saved")
    sections["handlers"] = {"folders": (str(plain_handlers(folder / "handlers")),)}
    for name, values in changes.items():
        sections[name] = {**sections.get(name, {}), **values}
    return changed(load_profile(over={"backend": {"name": backend}}), **sections)


def changed(profile: Profile, **changes: Mapping[str, object]) -> Profile:
    """The profile with other values in some of its tables; tables of engines that it does not use are ignored."""
    own = {
        name: _changed(profile, name, values) for name, values in changes.items() if name in type(profile).model_fields
    }
    engines = {}
    for engine, settings in profile.engines.items():
        tables = type(settings).model_fields.keys() & changes.keys()
        engines[engine] = settings.model_copy(update={name: _changed(settings, name, changes[name]) for name in tables})
    return profile.model_copy(update={**own, "engines": engines})


def table(profile: Profile, name: str) -> Any:
    """A table of the profile, or of an engine that it uses."""
    if name in type(profile).model_fields:
        return getattr(profile, name)
    return next(getattr(settings, name) for settings in profile.engines.values() if name in type(settings).model_fields)


def _changed(of: Section, table: str, values: Mapping[str, Any]) -> Section | Mapping[str, Section]:
    section: Section | Mapping[str, Section] = getattr(of, table)
    if isinstance(section, Mapping):
        return {**section, **{name: section[name].model_copy(update=update) for name, update in values.items()}}
    return section.model_copy(update=values)


def plain_handlers(folder: Path) -> Path:
    """A folder with the unchanged Python handler, except that it uses the system's interpreter."""
    if not folder.exists():
        shutil.copytree(HANDLERS / "python", folder / "python", ignore=shutil.ignore_patterns("__pycache__"))
        definition = folder / "python" / "handler.toml"
        text = definition.read_text().replace("{environment}/bin/python", "/usr/bin/python3")
        text = text.replace('["python3"', '["/usr/bin/python3"')
        definition.write_text(re.sub(r"^\[environment\]\n(?:(?!\[).*\n)*", "", text, flags=re.MULTILINE))
    return folder
