"""`llm-sandbox-mcp run`."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio

from ..base.errors import InvalidArgument
from ..base.messages import listed
from ..base.open_folders import OpenFolder
from ..base.principal import USER
from ..base.results import Execution, StreamName
from ..runs.requests import checked_stdin
from ..service import Service
from ..service.ask import Ask
from ..service.work import Listener
from .console import Console
from .opening import opened, read_profile, run_until_signal
from .piped import piped
from .saving import save
from .words import in_words

_EVERYWHERE = (OpenFolder("/"),)
"""The user of the command line is the operator, who can name every file that they can read."""
_TIMEOUT = 124
_OUT_OF_MEMORY = 137
_MISSING = "no such file or directory"
_SHOWN = 5
_UNSAVED = {"result_not_saved", "results_held_back", "results_incomplete", "results_lost", "databases_open"}
"""Notes that say that something is lost which code wrote into a folder."""


def main(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Runs one program with live output, and returns its exit status."""
    profile = read_profile(options, environ)
    stdin, code = _stdin(options), _code(options)
    files = [_pair(text) for text in options.files]

    async def run() -> int:
        async with opened(profile, environ) as service:
            return await _run(service, options, code, stdin, files)

    return run_until_signal(run)


async def _run(
    service: Service, options: argparse.Namespace, code: str, stdin: str | None, files: list[tuple[str, str]]
) -> int:
    consoles = {"stdout": Console(1), "stderr": Console(2)}

    async def show(stream: StreamName, text: str) -> None:
        await consoles[stream].write(text)

    for place in _places(service, renamed=True):
        await consoles["stderr"].note(place)
    language = options.language or _guess(service, options.source)
    if stdin is None:
        stdin = await _piped(service, language, consoles["stderr"])
    ask = Ask(
        caller=USER,
        code=code,
        language=language,
        libraries=options.library,
        timeout=service.profile.limits.timeout if options.timeout is None else options.timeout,
        stdin=stdin,
        keep_session=False,
    )
    checked = await service.door.check(ask)
    if files:
        checked = checked.within(service.sessions.open(ask.caller, ask.language))
    for host_path, path in files:
        await service.files.copy_in_from_host(checked.ask.session_id, path, host_path, _EVERYWHERE, hidden=True)
    execution = (await service.door.attend(checked, Listener(show, consoles["stderr"].note))).execution
    if execution.result is not None:
        await consoles["stdout"].line(execution.result)
    for note in execution.notes:
        await consoles["stderr"].note(f"note: {in_words(note)}")
    if execution.status == "error" and _MISSING in execution.stderr.text.lower():
        for place in _places(service, renamed=False):
            await consoles["stderr"].note(place)
    if options.artifacts is not None:
        await _save(service, execution, Path(options.artifacts), consoles["stderr"])
    elif names := [artifact.name for artifact in execution.artifacts]:
        await consoles["stderr"].note(f"note: not saved: {listed(names, _SHOWN)}; give --artifacts DIR")
    return _status(execution)


def _places(service: Service, *, renamed: bool) -> Iterator[str]:
    """Where code sees each opened folder: those with another name there than here, or the others."""
    for view in service.profile.views:
        if renamed == (os.path.basename(view.place) != os.path.basename(view.folder.path)):
            yield f"note: code sees {view.folder.path} as {view.place}"


async def _piped(service: Service, name: str, console: Console) -> str:
    """What this command was given on its standard input, if the language takes it; a note if it does not."""
    language = service.languages.get(name)
    try:
        text = (await anyio.to_thread.run_sync(piped)).decode(errors="replace")
        return text if language is None else checked_stdin(text, language)
    except InvalidArgument as error:
        await console.note(f"note: standard input was not passed on: {in_words(error)}")
        return ""


async def _save(service: Service, execution: Execution, folder: Path, console: Console) -> None:
    for artifact in execution.artifacts:
        _, content = await service.files.read_artifact(execution.session_id, artifact.name)
        await anyio.to_thread.run_sync(save, folder, artifact.name, content)
        await console.note(f"saved: {folder / artifact.name}")


def _status(execution: Execution) -> int:
    match execution.status:
        case "ok":
            return int(any(note.code in _UNSAVED for note in execution.notes))
        case "timeout" | "cpu_limit":
            return _TIMEOUT
        case "out_of_memory":
            return _OUT_OF_MEMORY
    return execution.exit_code & 0xFF or 1


def _code(options: argparse.Namespace) -> str:
    if options.code is not None:
        return str(options.code)
    return _text(options.source).removeprefix("\ufeff")  # some editors begin a file with a byte order mark


def _stdin(options: argparse.Namespace) -> str | None:
    """What the program reads; None for what is on standard input, without waiting for it."""
    if options.stdin == options.source == "-":
        raise InvalidArgument("--stdin -: standard input is the program already", "give --stdin a file")
    if options.stdin is not None:
        return _text(options.stdin)
    return "" if options.source in ("-", "/dev/stdin") else None


def _text(source: str) -> str:
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        step = "" if os.path.dirname(source) or Path(source).suffix else "give -c before code itself"
        raise InvalidArgument(f"{source}: cannot be read: {error.strerror}", step) from error
    return data.decode(errors="replace")


def _pair(text: str) -> tuple[str, str]:
    """The two paths of `--file`. Links in the host's path are resolved here, because the service follows none."""
    host_path, colon, path = text.rpartition(":")
    if not colon:
        host_path, path = text, os.path.basename(text)
    resolved = os.path.realpath(host_path)
    if not os.path.isfile(resolved):
        raise InvalidArgument(f"--file {text}: {host_path} is not a file")
    return resolved, path


def _guess(service: Service, source: str | None) -> str:
    if source is None or source == "-":
        return "python"
    extension = Path(source).suffix
    for name, language in service.languages.items():
        if language.handler.extension == extension:
            return name
    raise InvalidArgument(f"{source}: unknown file extension", f"give --language {'|'.join(service.languages)}")
