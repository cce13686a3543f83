"""Sessions that are put aside in memory: a store and sandboxes whose every step a test can stop, break or cancel."""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.backends.layout import WORKDIR
from llm_sandbox_mcp.base.errors import StoreFailed
from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.state import encoding
from llm_sandbox_mcp.state.bounds import Bounds
from llm_sandbox_mcp.state.changes import FOLDER
from llm_sandbox_mcp.state.kept import KeptSessions
from llm_sandbox_mcp.state.manifest import Manifest
from llm_sandbox_mcp.state.store import Entry, Sink, Source, Store
from llm_sandbox_mcp.testing.profiles import small_profile
from tests.memory.backend import HANDLERS, PROGRAMS, MemoryBackend, MemoryProcess, open_in_memory
from tests.memory.script import Runner

from .conftest import run

Folders = dict[str, dict[str, str]]
"""Variables by folder and name."""


IDLE = 100.0
SAVE = 10.0
"""Seconds until an idle session is put aside, and for saving all at the end."""


class Steps:
    """What is done with states, step by step."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.before: Callable[[str], Awaitable[None]] | None = None
        """Called before each step, with its name."""

    async def take(self, name: str) -> None:
        """Takes a step."""
        await anyio.lowlevel.checkpoint()
        self.done.append(name)
        if self.before is not None:
            await self.before(name)


class Gate:
    """Stops steps of one name until it is opened."""

    def __init__(self, steps: Steps, name: str) -> None:
        self.reached = anyio.Event()
        self.opened = anyio.Event()
        self._name = name
        self.number = 0
        """How many have come to it."""
        steps.before = self._wait

    async def _wait(self, name: str) -> None:
        if name == self._name:
            self.number += 1
            self.reached.set()
            await self.opened.wait()


class MemoryStore(Store):
    """Keeps objects in memory; servers can share it."""

    place = "memory"

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.steps = Steps()
        self.failure = ""
        """Why it cannot be written, if so."""
        self._made = 0

    @property
    def names(self) -> list[str]:
        """The names of all descriptions; no data is missing, and none is left over."""
        described = {name: data for (_, name), (data, _) in self.objects.items() if describes(name)}
        named = set[str]().union(*(described_in(data).objects for data in described.values()))
        assert {name for _, name in self.objects if not describes(name)} == named
        return sorted(described)

    @property
    def data(self) -> list[str]:
        """The names of all objects with data, the oldest first."""
        return [name for _, name in self.objects if not describes(name)]

    def manifest(self, session_id: str) -> Manifest:
        """What the description of a session says, under either of its names."""
        (state,) = [data for (_, name), (data, _) in self.objects.items() if name in (session_id, f"{session_id}.live")]
        return described_in(state)

    async def entries(self, owner: str) -> Sequence[Entry]:
        await self.steps.take("entries")
        return [Entry(name, len(data), tag) for (other, name), (data, tag) in [*self.objects.items()] if other == owner]

    @asynccontextmanager
    async def create(self, owner: str, name: str) -> AsyncIterator[Sink]:
        await self.steps.take("create")
        if self.failure:
            raise StoreFailed(self.failure)
        yield _MemorySink(self, owner, name)

    @asynccontextmanager
    async def open(self, owner: str, name: str) -> AsyncIterator[Source | None]:
        await self.steps.take("open")
        found = self.objects.get((owner, name))
        yield _MemorySource(self, *found) if found is not None else None

    async def remove(self, owner: str, name: str, tag: str = "") -> bool:
        await self.steps.take("remove")
        found = self.objects.get((owner, name))
        if found is None or tag not in ("", found[1]):
            return False
        del self.objects[owner, name]
        return True

    async def rename(self, owner: str, name: str, new: str) -> None:
        await self.steps.take("rename")
        if (found := self.objects.pop((owner, name), None)) is not None:
            self.objects[owner, new] = found
        await self.steps.take("renamed")

    def put(self, owner: str, name: str, data: bytes) -> None:
        """Puts an object there."""
        self._made += 1
        self.objects[owner, name] = data, str(self._made)


def describes(name: str) -> bool:
    """Whether an object of that name describes a session, and is not data of it."""
    return "." not in name or name.endswith(".live")


def described_in(state: bytes) -> Manifest:
    """What an object says of itself."""
    place = encoding.place_of_manifest(state[-encoding.TAIL_SIZE :])
    return Manifest.model_validate_json(encoding.manifest_in(state[place : -encoding.TAIL_SIZE], place))


class _MemorySink(Sink):
    def __init__(self, store: MemoryStore, owner: str, name: str) -> None:
        self._store = store
        self._key = owner, name
        self._data = bytearray()

    async def write(self, data: bytes) -> None:
        await self._store.steps.take("write")
        self._data += data

    async def complete(self) -> None:
        step = "describe" if describes(self._key[1]) else "complete"
        await self._store.steps.take(step)
        self._store.put(*self._key, bytes(self._data))
        await self._store.steps.take(f"{step}d")


class _MemorySource(Source):
    def __init__(self, store: MemoryStore, data: bytes, tag: str) -> None:
        self._store = store
        self._data = data
        self.size = len(data)
        self.tag = tag

    async def read(self, start: int, length: int) -> bytes:
        await self._store.steps.take("read")
        return self._data[start : start + length]


class _Keeper(Runner):
    """A runner that can save its variables."""

    def __init__(self, engine: "KeepingEngine", process: MemoryProcess) -> None:
        super().__init__(process)
        self._engine = engine
        self._id = process.sandbox.id

    async def _do_save(self, words: str, report: dict[str, object]) -> None:
        await self._engine.steps.take("save variables")
        self._engine.folders.setdefault(self._id, {})[words] = dict(self._values)

    async def _do_open(self, words: str, report: dict[str, object]) -> None:
        await self._engine.steps.take("open variables")
        self._values |= self._engine.folders[self._id][words]


class KeepingEngine(MemoryBackend):
    """Makes sandboxes whose variables can be packed and unpacked; their only file is a text of the test."""

    def __init__(self, steps: Steps) -> None:
        programs = {"script": self._script, "sh": self._sh, "tar": self._tar, "mkdir": self._nothing, "rm": self._rm}
        super().__init__({**PROGRAMS, **programs})
        self.steps = steps
        self.folders: dict[str, Folders] = {}
        """The variables that are in the folder for them, by sandbox and folder."""
        self.texts: dict[str, str] = {}
        """The text in each sandbox, a file; it is gone if it is empty."""
        self._unpacked: dict[str, dict[str, str]] = {}
        """The files of all layers that were unpacked, by sandbox."""
        self.layers: list[str] = []
        """The sandboxes in which a layer was unpacked, one for each layer."""

    async def _script(self, process: MemoryProcess) -> int:
        return await _Keeper(self, process).serve()

    async def _nothing(self, process: MemoryProcess) -> int:
        await anyio.lowlevel.checkpoint()
        return 0

    async def _rm(self, process: MemoryProcess) -> int:
        await anyio.lowlevel.checkpoint()
        self.folders.pop(process.sandbox.id, None)
        return 0

    async def _sh(self, process: MemoryProcess) -> int:
        command, name = process.argv[2], process.sandbox.id
        if "$folder/known" in command and "tar -c" not in command:
            await self.steps.take("begin")
            await _received(process)
        elif process.argv[4:] == (WORKDIR, "text"):
            await self._write(process, name)
        elif "tar -c" in command:
            await self.steps.take("pack")
            await self._pack(process, name, changes="--files-from" in command)
            await self.steps.take("packed")
        elif "tar" in process.argv:
            return await self._tar(process)
        elif process.argv[4].endswith("/report"):
            await self.steps.take("report")
            folders, folder = self.folders.get(name, {}), process.argv[4].removesuffix("/report")
            if folder in folders:
                await process.print(b"kept\t%d\n" % len(folders.pop(folder)))
        return 0

    async def _tar(self, process: MemoryProcess) -> int:
        await self.steps.take("unpack")
        packed = await _received(process)
        if not packed:  # whoever sent it has failed
            return 2
        self._unpack(process.sandbox.id, packed, first=process.argv[0] == "tar")
        await self.steps.take("unpacked")
        return 0

    async def _write(self, process: MemoryProcess, name: str) -> None:
        """Writes the text, from the archive that copies it into the sandbox."""
        with tarfile.open(fileobj=io.BytesIO(await _received(process))) as members:
            content = members.extractfile("text")
            assert content is not None
            self.texts[name] = content.read().decode()

    async def _pack(self, process: MemoryProcess, name: str, *, changes: bool) -> None:
        """Prints all files, those with variables too, or first a list of them and then those that it is asked for."""
        folders, files = self.folders.pop(name, {}), dict[str, str]()
        if text := self.texts.get(name, ""):
            files["sandbox/text"] = text
        for folder, values in folders.items():
            parts = {one: f"{folder}/parts/{one}-{_digest(value)}".removeprefix("/") for one, value in values.items()}
            files |= {path: values[one] for one, path in parts.items()}
            files[f"{folder}/index".removeprefix("/")] = json.dumps(parts)
            await process.print(f"{folder}/report\nkept\t{len(values)}\n\n".encode(), "stderr")
        if changes:
            await process.print(f"{FOLDER}/\n".encode(), "stderr")
            listed = f"0 0 0 {_digest(text)} 644 f sandbox/text\0" * bool(text)
            own = [path for path in files if path != "sandbox/text"]
            lines = [f"{'-' if '/parts/' in path else _digest(files[path])}  {path}\n" for path in own]
            await process.print(f"all\0{listed}\0{''.join(lines)}\0".encode())
            asked = (await _received(process)).decode().split("\0")
            files = {path: content for path, content in files.items() if path in asked}
        else:
            names = ["sandbox/", "home/", *(["sandbox/text"] if text else [])]
            await process.print("\n".join([f"{FOLDER}/", *names, ""]).encode(), "stderr")
        await process.print(json.dumps(files).encode())

    def _unpack(self, name: str, stream: bytes, *, first: bool) -> None:
        """Unpacks a stream; the variables are those that the indexes name. Later ones begin with what is gone."""
        assert first == (name not in self._unpacked)
        self.layers.append(name)
        files = self._unpacked.setdefault(name, {})
        start = 0 if first else 10 + int(stream[:10])
        for path in stream[10:start].decode().split("\0")[:-1]:
            del files[path]
        files |= json.loads(stream[start:])
        self.texts.pop(name, None)
        if "sandbox/text" in files:
            self.texts[name] = files["sandbox/text"]
        indexes = {path.removesuffix("/index"): json.loads(files[path]) for path in files if path.endswith("/index")}
        self.folders[name] = {
            f"/{folder}": {one: files[path] for one, path in index.items()} for folder, index in indexes.items()
        }


async def _received(process: MemoryProcess) -> bytes:
    """All that is sent to a process."""
    received = bytearray()
    with suppress(anyio.EndOfStream):
        while True:
            received += await process.receive()
    return bytes(received)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def keeping_handlers(folder: Path) -> Path:
    """A folder with the language `script`, which can save its variables here."""
    shutil.copytree(HANDLERS, folder, dirs_exist_ok=True)
    definition = folder / "script" / "handler.toml"
    definition.write_text(f'{definition.read_text()}\n[state]\nsave = "save {{folder}}"\nopen = "open {{folder}}"\n')
    return folder


@asynccontextmanager
async def another_server(
    profile: Profile, store: MemoryStore, engine: KeepingEngine | None = None
) -> AsyncIterator[Service]:
    """Another server with the same store."""
    async with open_in_memory(profile, engine or KeepingEngine(store.steps)) as service:
        yield service


async def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for something that comes within ten minutes of the clock that jumps."""
    with anyio.move_on_after(600):
        while not condition():  # noqa: ASYNC110 - it has no event
            await anyio.sleep(1)
    assert condition(), what


async def put_aside(service: Service, session_id: str) -> None:
    """Waits until an idle session is put aside."""
    await until(lambda: not service.sessions.is_open(session_id), "it is put aside")


def codes(result: Execution) -> list[str]:
    return [note.code for note in result.notes]


async def value(service: Service, session_id: str) -> str | None:
    """The value of `x` in a session."""
    return (await run(service, "get x", session_id=session_id)).result


def kept_in(store: Store) -> Callable[[Profile, Path], KeptSessions]:
    """What opens kept sessions, wherever the profile says that they are, in that store."""

    def kept(profile: Profile, _: Path) -> KeptSessions:
        limits = profile.sessions
        return KeptSessions(store, Bounds(limits.kept, limits.saved_size, limits.saved_age))

    return kept


@pytest.fixture(name="store")
def kept_store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()
    monkeypatch.setattr("llm_sandbox_mcp.wiring.kept_sessions", kept_in(store))
    return store


@pytest.fixture(name="engine")
def kept_engine(store: MemoryStore) -> KeepingEngine:
    return KeepingEngine(store.steps)


@pytest.fixture(name="profile")
def kept_profile(tmp_path: Path, changes: dict[str, Mapping[str, object]]) -> Profile:
    """A profile that keeps sessions, with the tables that a test overrides."""
    sessions = {"keep": True, "idle_timeout": IDLE, "save_timeout": SAVE, "starts_per_second": 1000.0}
    tables: dict[str, Mapping[str, object]] = {
        "handlers": {"folders": (str(keeping_handlers(tmp_path / "kept-handlers")),)},
        **changes,
        "sessions": {**sessions, **changes.get("sessions", {})},
    }
    return small_profile("embedded", tmp_path, **tables)
