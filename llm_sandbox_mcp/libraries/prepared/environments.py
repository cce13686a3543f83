"""Prepared environments: libraries that are installed once on the host and mounted read-only into every sandbox.

Only wheels are installed, so that no code of a package runs outside a sandbox.
"""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import anyio
import anyio.lowlevel
from anyio.streams.text import TextReceiveStream

from ...aio.tasks import open_tasks
from ...base.errors import ProfileError, StartFailed
from ...base.results import OnProgress
from ...host.server_folder import make_public
from ...languages.languages import Language
from .keeping import lock_of, make_private, unfinished, use
from .progress import in_place

_FORMAT = 1
"""Increase it when environments are built differently, so that older ones are not used."""
FOLDER = "environments"
_PREPARED = "prepared.txt"
"""The file in an environment that lists what was prepared in it."""
TOOLS = "tools"
ELSEWHERE = "another server is preparing the same libraries; waiting for it"
_LAST_LINES = 8
_COUNT = 1.0
"""Seconds between two counts of the packages that are in place."""
_LOCK_WAIT = 0.1
_IDENTITY = 10.0
"""Seconds in which an interpreter has to say what it is; it takes a fraction of one."""


def place_of(cache: Path, language: Language, libraries: Iterable[str]) -> Path:
    """The folder in which the environment of these libraries is, or will be.

    It is known before anything is built, so a sandbox can see it from its start, and what comes later appears there.
    """
    content = [_FORMAT, language.handler.model_dump(mode="json", include={"environment"}), sorted(set(libraries))]
    return cache / FOLDER / f"{language.name}-{_hash(json.dumps(content, sort_keys=True))}"


def environment_path(cache: Path, key: str) -> Path:
    """The folder of the environment with that key."""
    return cache / FOLDER / key


async def prepare(
    language: Language,
    libraries: Sequence[str],
    cache: Path,
    on_progress: OnProgress,
    *,
    index: str = "",
    environ: Mapping[str, str] | None = None,
) -> str:
    """Builds the environment of these libraries unless it exists, and returns its key.

    Without `index`, uv uses its configured index; with it, uv runs in the environment `environ`. Servers that need the
    same environment at the same time share one build.
    Raises `ProfileError` for a language without an environment, `StartFailed` if it cannot be built.
    """
    environment = language.handler.environment
    if environment is None:
        raise ProfileError("missing, so no library can be prepared", file=language.definition, key="environment")
    target = place_of(cache, language, libraries) / await _identity(environment.python)
    if not await _use(target):
        await anyio.to_thread.run_sync(make_public, target.parent)
        make_private(target)
        async with locked(lock_of(target), on_progress) as lock:
            if not await _use(target):
                # The index may contain credentials, and everyone can see command lines.
                env = {**(environ or {}), "UV_DEFAULT_INDEX": index} if index else None
                await _build(language.name, environment.python, libraries, target, lock, on_progress, env)
                await _use(target)
    return _key(target)


async def find(language: Language, libraries: Sequence[str], cache: Path) -> str:
    """The key of the environment of these libraries; empty if it is not prepared yet."""
    environment = language.handler.environment
    if environment is None:
        return ""
    target = place_of(cache, language, libraries) / await _identity(environment.python)
    return _key(target) if await anyio.Path(target).is_dir() else ""


def changed(environment: Path) -> list[str]:
    """The libraries, with versions, that were put into an environment after it was prepared, or taken out of it."""
    try:
        prepared = (environment / _PREPARED).read_text(errors="replace").split()
    except OSError:  # it was removed just now, or prepared by an older version
        return []
    return sorted({*prepared} ^ _libraries(environment))


def _libraries(environment: Path) -> set[str]:
    return {path.stem for path in environment.glob("lib/python*/site-packages/*.dist-info")}


def tool_place(cache: Path) -> Path:
    """The folder in which the uv that this package depends on is, or will be."""
    with suppress(PackageNotFoundError):  # `doctor` reports it
        return cache / TOOLS / f"uv-{version('uv')}"
    return cache / TOOLS / "uv-none"


async def stage_tool_uv(cache: Path) -> Path:
    """Puts the uv that this package depends on where sandboxes of any user can mount it, and returns its path."""
    return await anyio.to_thread.run_sync(_stage_uv, cache)


def _stage_uv(cache: Path) -> Path:
    from uv import find_uv_bin

    source = Path(find_uv_bin())
    staged = tool_place(cache) / "bin" / "uv"
    if staged.is_file() and use(staged.parent):
        return staged
    make_public(staged.parent)
    make_private(staged.parent)
    fresh = unfinished(staged.parent).with_suffix(f".{secrets.token_hex(6)}")
    try:
        try:
            if source.stat().st_mode & 0o555 != 0o555:
                raise PermissionError(errno.EACCES, "not for everyone", str(source))
            os.link(source, fresh)
        except OSError:
            shutil.copyfile(source, fresh)
            fresh.chmod(0o755)
        fresh.replace(staged)
    finally:
        fresh.unlink(missing_ok=True)
    use(staged.parent)
    return staged


def _key(target: Path) -> str:
    return f"{target.parent.name}/{target.name}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


async def _identity(python: str) -> str:
    """A hash of everything about an interpreter that its environments depend on."""
    code = "import os, sys; print(os.path.realpath(sys.executable), sys.implementation.cache_tag, sys.version)"
    try:
        # Neither Ctrl-C nor the end of the server interrupts this short process: asyncio would complain on stderr about
        # a process that both have ended.
        with anyio.fail_after(_IDENTITY, shield=True):
            answer = await anyio.run_process(
                [python, "-I", "-S", "-c", code], stdin=subprocess.DEVNULL, start_new_session=True
            )
    except (OSError, subprocess.CalledProcessError) as error:
        raise StartFailed(f"{python} does not run ({error})", "install it: apt-get install python3") from error
    return _hash(answer.stdout.decode(errors="replace").strip())


async def _use(target: Path) -> bool:
    return await anyio.to_thread.run_sync(use, target)


async def silent(line: str) -> None:
    """Drops what is reported."""
    await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def locked(path: Path, on_progress: OnProgress) -> AsyncIterator[int]:
    """Holds the lock of one environment among all servers of this machine, and yields its descriptor.

    It polls for the lock, since a thread that waits for it could not be cancelled.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        waiting = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    await on_progress(ELSEWHERE)
                waiting = True
                await anyio.sleep(_LOCK_WAIT)
        yield descriptor
    finally:
        os.close(descriptor)


async def _build(
    name: str,
    python: str,
    libraries: Sequence[str],
    target: Path,
    lock: int,
    on_progress: OnProgress,
    env: Mapping[str, str] | None,
) -> None:
    from uv import find_uv_bin

    # All builds of this environment use this name: we hold the lock, so an existing folder is from a killed build. No
    # sandbox sees it: uv waits for the lock of an environment that it changes, and code could hold that.
    fresh = unfinished(target)
    uv = find_uv_bin()
    # With the certificates of this machine, as for installations: a company's own index has a company's certificate.
    common = ("--no-progress", "--color", "never", "--system-certs")
    create = (uv, "venv", *common, "--relocatable", "--no-project", "--python", python, "--no-python-downloads")
    # Copies: links would share modes and later changes with files in the uv cache of the user.
    install = (
        *(uv, "pip", "install", *common, "--only-binary", ":all:", "--link-mode", "copy"),
        *("--python", str(fresh / "bin" / "python"), "--", *sorted(set(libraries))),
    )
    hint = f"check languages.{name}.libraries and .index in the profile, and that the package index can be reached"
    try:
        await anyio.to_thread.run_sync(_remove, fresh)
        await run_with_lock((*create, str(fresh)), lock, on_progress, env, hint)
        if libraries:
            async with open_tasks() as counting:
                counting.start_soon(_count, fresh, on_progress)
                await run_with_lock(install, lock, on_progress, env, hint)
                counting.cancel_scope.cancel()
        await anyio.to_thread.run_sync(_publish, fresh, target)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_remove, fresh)


async def _count(fresh: Path, on_progress: OnProgress) -> None:
    while True:
        await anyio.sleep(_COUNT)
        found = await anyio.to_thread.run_sync(lambda: [*fresh.glob("lib/python*/site-packages/*.dist-info")])
        await on_progress(in_place(len(found)))


async def run_with_lock(
    command: Sequence[str], lock: int, on_progress: OnProgress, env: Mapping[str, str] | None = None, hint: str = ""
) -> None:
    """Runs a command with the lock's descriptor, so that it is held while that runs, even if the server is killed.

    Raises `StartFailed` with its last lines.
    """
    process = await anyio.open_process(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd="/",
        env=env,
        umask=0o022,
        start_new_session=True,
        pass_fds=[lock],
    )
    last: list[str] = []
    try:
        assert process.stderr is not None
        rest = ""
        async for text in TextReceiveStream(process.stderr, errors="replace"):
            *lines, rest = (rest + text).split("\n")
            for line in filter(None, map(str.strip, lines)):
                last = [*last[1 - _LAST_LINES :], line]
                await on_progress(line)
        await process.wait()
    finally:
        # The whole group, for children of uv.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    if process.returncode:
        raise StartFailed(f"libraries could not be prepared: {' '.join(last) or 'no reason was given'}", hint)


def _publish(fresh: Path, target: Path) -> None:
    (fresh / _PREPARED).write_text("\n".join(sorted(_libraries(fresh))))
    for folder, _, files in os.walk(fresh):
        for path in (Path(folder), *(Path(folder, file) for file in files)):
            mode = path.lstat().st_mode
            wanted = (mode | (0o555 if stat.S_ISDIR(mode) or mode & 0o111 else 0o444)) & ~0o022
            if wanted != mode and not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(wanted))
    fresh.rename(target)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
