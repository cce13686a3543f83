"""Folders of the engine's machine that code sees, in all forms that LLM Sandbox and Docker's client accept."""

from collections.abc import Iterable, Mapping

from .overlay import ENGINES, Overlay

_LABELS = frozenset("zZ")
"""Modes for SELinux; accepted, but the engine's own settings decide here."""


def mounts(overlay: Overlay, argument: str, given: object) -> None:
    """Adds one or several mounts: objects of the engine's package, dicts with the same keys, or texts (/a:/a:ro)."""
    for mount in [given] if isinstance(given, str | Mapping) or not isinstance(given, Iterable) else given:
        if isinstance(mount, str):
            _bind(overlay, argument, mount)
        elif isinstance(mount, Mapping):
            _mount(overlay, argument, mount)
        else:
            raise overlay.refuse(argument, f"{str(mount)[:40]!r} is not a mount", "give a text such as /data:/data:ro")


def volumes(overlay: Overlay, argument: str, given: object) -> None:
    """Adds mounts in Docker's other form: a dict by source, or a list of texts."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise overlay.refuse(argument, "it must be a dict by source, or a list of source:target:mode")
    if not isinstance(given, Mapping):
        for text in given:
            _bind(overlay, argument, text)
        return
    for source, how in given.items():
        if not isinstance(how, Mapping):
            how = {"bind": how}
        if "bind" not in how:
            raise overlay.refuse(argument, f"{str(source)!r} has no 'bind'", "give the path in the sandbox")
        _add(overlay, argument, source, how["bind"], _writable(overlay, argument, how.get("mode", "rw")))


def _bind(overlay: Overlay, argument: str, text: object) -> None:
    """A folder as `source:target` or `source:target:mode`."""
    source, _, rest = str(text).partition(":")
    target, _, mode = rest.partition(":")
    _add(overlay, argument, source, target, _writable(overlay, argument, mode or "rw"))


def _mount(overlay: Overlay, argument: str, mount: Mapping[object, object]) -> None:
    values = {str(key).lower(): value for key, value in mount.items()}
    if values.get("type", "bind") != "bind":
        raise overlay.refuse(argument, f"unknown type {values['type']!r}", "available: bind")
    readonly = values.get("readonly") or values.get("read_only")
    _add(overlay, argument, values.get("source"), values.get("target"), not readonly)


def _writable(overlay: Overlay, argument: str, mode: object) -> bool:
    """Whether code may write to a folder that is mounted with this mode, such as `ro,z`."""
    words = set(str(mode).split(","))
    if unknown := words - {"ro", "rw"} - _LABELS:
        raise overlay.refuse(argument, f"unknown mode {min(unknown)!r}", "available: ro, rw")
    return "ro" not in words


def _add(overlay: Overlay, argument: str, source: object, target: object, writable: bool) -> None:
    overlay.only(argument, *ENGINES)
    for path in (source, target):
        if not str(path).startswith("/"):
            raise overlay.refuse(argument, f"{str(path)[:40]!r} is not an absolute path", "give one such as /data")
    overlay.add(argument, "containers.mounts", {"source": str(source), "target": str(target), "writable": writable})
