"""A person and code change the same folder at random; no byte of either is ever lost, and every conflict is named."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.effort import EFFORT, tries

pytestmark = pytest.mark.anyio

NAMES = ("a.txt", "b.txt", "Makefile", "d/c.txt", "d/e.sh", "d/deep/f.txt", "d2/g.txt")
FOLDERS = ("d", "d/deep", "d2")
ENDS = {":rw": False, ":rwd": True}
STEPS = {"embedded": 120}
FEWER = 25
"""Changes by either side in each case, and on engines; `make test-all` makes ten times as many."""

PLAY = """
import os, shutil, stat
TOP = "/data/both"

def view():
    found = {}
    for top, folders, names in os.walk(TOP):
        folders[:] = [name for name in folders if name != ".git"]
        for name in names:
            path = os.path.join(top, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                state = os.lstat(path)
                with open(path) as file:
                    found[os.path.relpath(path, TOP)] = (file.read(), state.st_mode & 0o777, state.st_mtime_ns)
    return found

def play(kind, name, other, text):
    path, second = f"{TOP}/{name}", f"{TOP}/{other}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if kind in ("edit", "append", "chmod") and os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError("it would change something else, or wait")
    if kind == "write" and os.path.isdir(path):
        raise OSError("it would write only the other file")
    if kind == "write":
        with open(path + ".new", "w") as file:
            file.write(text)
        os.replace(path + ".new", path)
    elif kind == "edit":
        with open(path, "w") as file:
            file.write(text)
    elif kind == "append":
        with open(path, "a") as file:
            file.write(text)
    elif kind == "delete":
        os.unlink(path)
    elif kind == "rename":
        os.makedirs(os.path.dirname(second), exist_ok=True)
        os.rename(path, second)
    elif kind == "chmod":
        os.chmod(path, int(text))
    elif kind == "symlink":
        os.symlink("a.txt", path)
    elif kind == "link":
        os.link(path, second)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "rmdir":
        os.rmdir(os.path.dirname(path))
    elif kind == "folder":
        os.unlink(path)
        os.mkdir(path)
        with open(path + "/in.txt", "w") as file:
            file.write(text)
    elif kind == "file":
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        if folder == TOP:
            raise OSError("all would be gone")
        shutil.rmtree(folder)
        with open(folder, "w") as file:
            file.write(text)
"""
RUN = """
before = view()
for change in CHANGES:
    try:
        play(*change)
    except OSError:
        pass
print("half way", flush=True)
for change in LATER:
    try:
        play(*change)
    except OSError:
        pass
(before, view())
"""
KINDS = ("write", "edit", "append", "delete", "rename", "chmod", "symlink", "link", "pipe", "rmdir", "folder", "file")
WEIGHTS = (3, 4, 6, 3, 2, 2, 1, 1, 1, 1, 1, 1)
WRITING = {"write", "edit", "append", "folder", "file"}

Change = tuple[str, str, str, str]
Seen = dict[str, tuple[str, int, int]]


@dataclass
class Model:
    """What may never be lost: each text that either side wrote, until one who saw it overwrote or deleted it."""

    alive: set[str] = field(default_factory=set)
    steps: int = 0


@dataclass
class Game:
    service: Service
    top: Path
    rng: random.Random
    deletes: bool
    model: Model = field(default_factory=Model)
    session_id: str = ""
    permitted: set[str] = field(default_factory=set)
    """Files whose permissions code has changed."""

    def changes(self, most: int) -> list[Change]:
        made: list[Change] = []
        for _ in range(self.rng.randint(0, most)):
            kind = self.rng.choices(KINDS, WEIGHTS)[0]
            name, other = self.rng.choice(NAMES), self.rng.choice(NAMES)
            self.model.steps += 1
            text = str(self.rng.choice((0o600, 0o644, 0o755, 0o640))) if kind == "chmod" else f"<{self.model.steps}>"
            made.append((kind, name, other, text))
        return made

    def person(self, changes: list[Change]) -> set[str]:
        """Plays changes on this machine; returns the names that they touched."""
        touched = set()
        space: dict[str, Any] = {}
        exec(PLAY.replace('"/data/both"', repr(str(self.top))), space)
        for change in changes:
            before = self.host()
            try:
                space["play"](*change)
            except OSError:
                continue
            after = self.host()
            touched |= {
                change[1],
                change[2],
                *(name for name in {*before, *after} if before.get(name) != after.get(name)),
            }
            self.forget(before, after)
            if change[0] in WRITING:
                self.model.alive.add(change[3])
        return touched

    def forget(self, before: Seen, after: Seen) -> None:
        """What somebody saw and then overwrote or deleted may be gone."""
        left = "".join(text for text, _, _ in after.values())
        for text, _, _ in before.values():
            self.model.alive -= {token for token in tokens(text) if token not in left}

    def host(self) -> Seen:
        space: dict[str, Any] = {}
        exec(PLAY.replace('"/data/both"', repr(str(self.top))), space)
        found: Seen = space["view"]()
        return found

    async def run(self) -> None:
        first, later = self.changes(3), self.changes(3)
        during = self.changes(3) if self.rng.random() < 0.6 else []
        host = self.host()
        hosts_own = {name: (path.lstat().st_ino, path.lstat().st_uid) for name in host for path in [self.top / name]}
        touched: set[str] = set()

        async def on_output(stream: str, text: str) -> None:
            if during and "half way" in text:
                touched.update(self.person(during))
                during.clear()

        code = PLAY + RUN.replace("CHANGES", repr(first)).replace("LATER", repr(later))
        done = await execute(self.service, code, session_id=self.session_id, on_output=on_output)
        assert done.status == "ok", (done.stderr.text, done.notes)
        self.session_id = done.session_id
        before, after = eval(done.result or "")
        # Code sees the folder as it was when the run began: contents, permissions, times.
        # Permissions that code has given to a person's file are the code's own.
        assert {name: (text, time) for name, (text, _, time) in before.items()} == {
            name: (text, time) for name, (text, _, time) in host.items()
        }
        assert all(before[name][1] == mode for name, (_, mode, _) in host.items() if name not in self.permitted)
        self.permitted |= {name for name in after if before.get(name, after[name])[1] != after[name][1]}
        self.check(done, host, hosts_own, before, after, touched)

    def check(
        self,
        done: Execution,
        host: Seen,
        hosts_own: dict[str, tuple[int, int]],
        before: Seen,
        after: Seen,
        touched: set[str],
    ) -> None:
        written = {token for text, _, _ in after.values() for token in tokens(text)}
        seen = {token for text, _, _ in before.values() for token in tokens(text)}
        self.model.alive |= written - seen
        now = self.host()
        if self.deletes:
            self.forget(before, after)
        else:
            # Code may overwrite what it saw, but not delete it.
            kept = {name: before[name] for name in before if name not in after}
            self.forget({name: one for name, one in before.items() if name in after}, {**after, **kept})
        everything = "".join(text for text, _, _ in now.values())
        lost = {token for token in self.model.alive if token not in everything}
        assert not lost, (lost, done.notes, before, after, host, now)
        notes = " ".join(done.notes)
        changed = {name for name in {*before, *after} if before.get(name, ("",))[0] != after.get(name, ("",))[0]}
        permitted = {name for name in {*before} & {*after} if before[name][1] != after[name][1]}
        for name in {*before, *after} - changed - touched - permitted:
            # What code did not change is the very same file as before.
            state = (self.top / name).lstat()
            assert now[name] == host[name], (name, done.notes)
            assert (state.st_ino, state.st_uid) == hosts_own[name]
        for name in changed & touched:
            same = after.get(name, ("",))[0] == now.get(name, ("",))[0]
            assert same or name in notes, (name, done.notes)
        for name in {*before} - {*after}:
            assert name not in now or any(name.startswith(word) or word in notes for word in (name, *parents(name)))
        for name in host:
            if name in now and name not in touched and name not in after:
                assert now[name][1] == host[name][1], name  # permissions
        assert not [*self.top.rglob(".*.part")]


def parents(name: str) -> list[str]:
    return [str(parent) for parent in Path(name).parents if parent.name]


def tokens(text: str) -> set[str]:
    return {f"<{part}" for part in text.split("<") if part}


@pytest.fixture(params=ENDS)
def end(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def changes(folder: Path, end: str) -> dict[str, Mapping[str, object]]:
    (folder / "both").mkdir()
    return {"files": {"folders": [f"{folder}/both{end}"]}}


@pytest.mark.timeout(120 * EFFORT)
@pytest.mark.parametrize("seed", range(2))
async def test_no_byte_of_a_person_or_of_code_is_lost(
    profile: Profile, backend_name: str, folder: Path, end: str, seed: int
) -> None:
    async with open_service(profile) as service:
        game = Game(service, folder / "both", random.Random(f"{end} {seed}"), ENDS[end])
        while game.model.steps < tries(STEPS.get(backend_name, FEWER)):
            game.person(game.changes(4))
            await game.run()
