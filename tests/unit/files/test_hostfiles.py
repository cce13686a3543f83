"""Files of this machine: only below open folders, whatever others who can write there do at the same time, and no file
of a person's is replaced."""

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.listing import Stamp
from llm_sandbox_mcp.base.errors import BadHostPath
from llm_sandbox_mcp.base.open_folders import OpenFolder
from llm_sandbox_mcp.base.results import HostFile
from llm_sandbox_mcp.files.beneath import InTheWay
from llm_sandbox_mcp.files.drafts import Draft, NotOwned
from llm_sandbox_mcp.files.hostfiles import Call, Memory, open_source, open_target
from tests.effort import tries

pytestmark = pytest.mark.anyio

TRIES = tries(1000)


async def read(path: str, *opened: Path, hidden: bool = False) -> bytes:
    async with open_source(path, [OpenFolder(str(root)) for root in opened], hidden=hidden) as (_, content):
        return b"".join([portion async for portion in content()])


async def write(path: str, *opened: Path, content: bytes = b"new", call: Call | None = None) -> HostFile:
    folders = [OpenFolder(str(root), writable=True) for root in opened]
    async with open_target(path, folders, call or Memory().begin()) as target:
        return await target.write(content)


HEAD = "ref: refs/heads/main\n"


def bare(folder: Path) -> Path:
    """A repository without a worktree, and a worktree of it."""
    for name in ("objects", "refs", "hooks", "worktrees/other"):
        (folder / name).mkdir(parents=True)
    for name in (
        "HEAD",
        "config",
        "Config.lock",
        "credentials",
        "worktrees/other/HEAD",
        "worktrees/other/config.worktree",
    ):
        (folder / name).write_text(HEAD if name.endswith("HEAD") else "own")
    return folder


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def swapping(folder: Path, outside: Path) -> Iterator[None]:
    """Replaces a folder by a link and puts the folder back, again and again."""
    over = threading.Event()
    away = folder.with_name("away")

    def swap() -> None:
        while not over.is_set():
            folder.rename(away)
            folder.symlink_to(outside)
            folder.unlink()
            away.rename(folder)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("secret")
    return tmp_path / "outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/folder").mkdir(parents=True)
    (tmp_path / "root/folder/file").write_text("content")
    return tmp_path / "root"


async def test_a_folder_that_becomes_a_link_leads_nowhere(root: Path, outside: Path) -> None:
    found = set()
    with swapping(root / "folder", outside):
        for _ in range(TRIES):
            with suppress(BadHostPath):
                found.add(await read(f"{root}/folder/file", root))
            with suppress(BadHostPath):
                await write(f"{root}/folder/new", root)
    assert found == {b"content"}
    assert os.listdir(outside) == ["file"]
    assert (root / "folder/new").read_bytes() == b"new"


async def test_a_link_that_stays_below_the_root_is_followed(root: Path) -> None:
    (root / "link").symlink_to("folder")
    (root.parent / "other").symlink_to(root)
    assert await read(f"{root}/link/file", root) == b"content"
    assert await read(f"{root.parent}/other/link/file", root.parent / "other") == b"content"
    await write(f"{root}/link/new", root)
    assert (root / "folder/new").read_bytes() == b"new"


@pytest.mark.parametrize("name", [".bashrc", ".git/hooks/pre-commit", "folder/.profile", "link/pre-commit"])
async def test_a_hidden_file_is_not_written(root: Path, name: str) -> None:
    (root / ".git/hooks").mkdir(parents=True)
    (root / "link").symlink_to(".git/hooks")
    with pytest.raises(BadHostPath, match="is never written: its name or a folder of it is hidden; use another name"):
        await write(f"{root}/{name}", root)
    assert not (root / name).exists()


@pytest.mark.parametrize("name", [".env", ".git/config", "folder/.netrc", "link/config"])
async def test_a_hidden_file_is_read_only_for_a_person(root: Path, name: str) -> None:
    (root / ".git").mkdir()
    (root / "link").symlink_to(".git")
    for made in (".env", ".git/config", "folder/.netrc"):
        (root / made).write_text("password")
    with pytest.raises(BadHostPath, match=r"is hidden, and code gets no hidden files.*; ask the user to put"):
        await read(f"{root}/{name}", root)
    assert await read(f"{root}/{name}", root, hidden=True) == b"password"


async def test_a_hidden_folder_that_the_operator_opened_is_open(root: Path) -> None:
    (root / ".own").mkdir()
    (root / ".own/file").write_text("own")
    assert await read(f"{root}/.own/file", root, root / ".own") == b"own"
    await write(f"{root}/.own/new", root, root / ".own")
    assert (root / ".own/new").read_bytes() == b"new"


@pytest.mark.parametrize(
    "name", ["config", "Config.lock", "credentials", "worktrees/other/config.worktree", "../link/config"]
)
async def test_settings_of_a_repository_are_read_only_for_a_person(root: Path, name: str) -> None:
    (root / "link").symlink_to(bare(root / "own.git"))
    path = f"{root}/own.git/{name}"
    for opened in (root, root / "own.git") if "link" not in name else (root,):
        with pytest.raises(
            BadHostPath, match=r"is a setting of a repository, and code gets none.*; ask the user to put"
        ):
            await read(path, opened)
    assert await read(path, root, hidden=True) == b"own"
    assert await read(f"{root}/own.git/HEAD", root) == HEAD.encode()
    (root / "folder/config").write_text("of a program")
    assert await read(f"{root}/folder/config", root) == b"of a program"


@pytest.mark.parametrize("name", ["config", "new", "hooks/post-update", "worktrees/other/new", "objects/ab/new"])
async def test_nothing_is_written_into_a_repository(root: Path, name: str) -> None:
    bare(root / "own.git")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    for opened in (root, root / "own.git"):
        with pytest.raises(BadHostPath, match="is never written: it is in a repository's own folder; use another"):
            async with open_target(
                f"{root}/own.git/{name}", [OpenFolder(str(opened), writable=True)], Memory().begin(), make=True
            ):
                pass
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


@pytest.mark.parametrize("make", [False, True])
async def test_a_path_below_a_file_is_refused_and_gets_no_folder_beside_the_file(root: Path, make: bool) -> None:
    opened = [OpenFolder(str(root), writable=True)]
    for name in ("folder/file/new", "folder/file/deep/new"):
        with pytest.raises(BadHostPath, match="on this machine cannot be written: Not a directory"):
            async with open_target(f"{root}/{name}", opened, Memory().begin(), make=make):
                pass
    assert [path.name for path in (root / "folder").iterdir()] == ["file"]


async def test_folders_on_the_way_are_made_only_where_that_is_asked_for(root: Path) -> None:
    opened = [OpenFolder(str(root), writable=True)]
    with pytest.raises(BadHostPath, match="on this machine cannot be written: No such file or directory"):
        async with open_target(f"{root}/a/b/new", opened, Memory().begin()):
            pass
    assert not (root / "a").exists()
    async with open_target(f"{root}/a/b/new", opened, Memory().begin(), make=True) as target:
        await target.write(b"new")
    assert (root / "a/b/new").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["HEAD", "head", "folder/Head"])
async def test_no_folder_becomes_a_repository(root: Path, name: str) -> None:
    with pytest.raises(
        BadHostPath, match="is never written: with a file of that name, its folder could become a repository"
    ):
        await write(f"{root}/{name}", root)
    assert not (root / name).exists()


@pytest.mark.parametrize("name", ["folder/\ud800", "\udcff/file", "folder/" + "x" * 300, "x" * 5000, "a/../../file"])
async def test_an_impossible_path_is_refused(root: Path, name: str) -> None:
    for use in (read, write):
        with pytest.raises(BadHostPath, match="on this machine"):
            await use(f"{root}/{name}", root)


@pytest.mark.parametrize(
    "path", ["", "folder/file", "./folder/file", "~/file", "{root}/folder/file\0", "\0{root}/file"]
)
async def test_a_path_that_is_not_absolute_is_refused_wherever_the_server_was_started(
    root: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    for use in (read, write):
        with pytest.raises(BadHostPath, match="on this machine must be an absolute path"):
            await use(path.format(root=root), root)


async def test_a_link_that_changed_before_it_was_read_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "link").symlink_to("folder")
    monkeypatch.setattr(os, "readlink", _gone)
    # Since Python 3.13, resolving leaves such a link as it is, and then it is not followed.
    with pytest.raises(BadHostPath, match=r"on this machine cannot be (resolved|read: Not a directory)"):
        await read(f"{root}/link/file", root)


def _gone(path: str) -> str:
    """Fails as the kernel does if a link became a file after it was checked; no test can hit this moment."""
    raise OSError(22, "Invalid argument")


async def test_a_failed_write_leaves_nothing(root: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError):
        async with open_target(f"{root}/folder/new", [OpenFolder(str(root), writable=True)], Memory().begin()):
            raise RuntimeError
    assert os.listdir(root / "folder") == ["file"]
    with pytest.raises(BadHostPath, match="on this machine cannot be written: File name too long"):
        await write(f"{root}/folder/{'x' * 256}", root)
    assert os.listdir(root / "folder") == ["file"]
    assert set(os.listdir("/proc/self/fd")) == before


async def test_a_file_of_a_person_stays_and_the_new_one_is_beside_it(root: Path) -> None:
    own = root / "folder/table.csv"
    own.write_text("own")
    before = Stamp.of(own.stat())
    memory = Memory()
    for content, name in (
        (b"1", "table.from-code.csv"),
        (b"2", "table.from-code-2.csv"),
        (b"1", "table.from-code.csv"),
    ):
        written = await write(str(own), root, content=content, call=memory.begin())
        assert written == HostFile(f"{root}/folder/{name}", beside=str(own))
        assert (root / "folder" / name).read_bytes() == content
    assert (own.read_text(), Stamp.of(own.stat())) == ("own", before)
    assert sorted(os.listdir(root / "folder")) == ["file", "table.csv", "table.from-code-2.csv", "table.from-code.csv"]


async def test_nothing_is_written_if_the_content_is_there_already(root: Path) -> None:
    path, memory = root / "folder/file", Memory()
    before = Stamp.of(path.stat())
    assert await write(str(path), root, content=b"content", call=memory.begin()) == HostFile(str(path))
    assert Stamp.of(path.stat()) == before
    # Nor is it the server's by that.
    assert (await write(str(path), root, call=memory.begin())).beside == str(path)


async def test_what_this_server_wrote_is_replaced_while_nobody_changes_it(root: Path) -> None:
    path, memory = root / "new", Memory()
    for content in (b"1", b"2", b"2", b"3"):
        assert await write(str(path), root, content=content, call=memory.begin()) == HostFile(str(path))
        assert path.read_bytes() == content
    assert sorted(os.listdir(root)) == ["folder", "new"]
    # The same file by another path.
    (root / "folder/link").symlink_to("..")
    assert await write(f"{root}/folder/link/new", root, content=b"4", call=memory.begin()) == HostFile(str(path))
    assert (await write(str(path), root, content=b"5", call=Memory().begin())).beside == str(path)
    assert path.read_bytes() == b"4"


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def _forge(path: Path) -> None:
    """Changes the content, and sets back its time."""
    state = path.stat()
    path.write_bytes(b"X")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def _save(path: Path) -> None:
    """As editors do."""
    path.with_name("saved").write_bytes(b"X")
    path.with_name("saved").rename(path)


@pytest.mark.parametrize("change", [_append, _forge, _save, lambda path: path.chmod(0o600)])
async def test_what_a_person_changed_is_theirs_again(root: Path, change: Callable[[Path], None]) -> None:
    path, memory = root / "new", Memory()
    await write(str(path), root, content=b"1", call=memory.begin())
    await anyio.sleep(0.02)  # the kernel's times of files have steps
    change(path)
    before, content = Stamp.of(path.stat()), path.read_bytes()
    written = await write(str(path), root, content=b"2", call=memory.begin())
    assert written == HostFile(f"{root}/new.from-code", beside=str(path))
    assert (Stamp.of(path.stat()), path.read_bytes()) == (before, content)
    path.unlink()
    assert await write(str(path), root, content=b"3", call=memory.begin()) == HostFile(str(path))


@pytest.mark.parametrize("refusal", [NotOwned, None])
async def test_a_file_that_cannot_be_replaced_stays(
    root: Path, monkeypatch: pytest.MonkeyPatch, refusal: type[Exception] | None
) -> None:
    path, memory = root / "new", Memory()
    await write(str(path), root, content=b"1", call=memory.begin())

    def refuse(*_: object) -> None:
        if refusal is None:
            path.unlink()
            path.mkdir()  # somebody makes a folder right now
            raise InTheWay
        raise refusal

    monkeypatch.setattr(Draft, "replace", refuse)
    written = await write(str(path), root, content=b"2", call=memory.begin())
    assert written == HostFile(f"{root}/new.from-code", beside=str(path))
    assert path.is_dir() if refusal is None else path.read_bytes() == b"1"
    assert (root / "new.from-code").read_bytes() == b"2"


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
async def test_what_is_no_file_stays_and_the_new_file_is_beside_it(root: Path, outside: Path, kind: str) -> None:
    taken = root / "taken.csv"
    match kind:
        case "link":
            taken.symlink_to(outside / "file")
        case "dangling":
            taken.symlink_to(outside / "nothing")
        case "pipe":
            os.mkfifo(taken)
        case _:
            taken.mkdir()
    before = taken.lstat()
    assert await write(str(taken), root) == HostFile(f"{root}/taken.from-code.csv", beside=str(taken))
    assert taken.lstat() == before
    assert (root / "taken.from-code.csv").read_bytes() == b"new"
    assert mode_of(root / "taken.from-code.csv") == 0o644
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("file", "secret")]


@pytest.mark.parametrize(("theirs", "new"), [(0o600, 0o600), (0o640, 0o640), (0o400, 0o600), (0o777, 0o644)])
async def test_the_file_beside_is_open_to_no_more_users(root: Path, theirs: int, new: int) -> None:
    (root / "folder/file").chmod(theirs)
    written = await write(f"{root}/folder/file", root)
    assert mode_of(Path(written.path)) == new


async def test_calls_at_the_same_time_lose_no_version(root: Path) -> None:
    memory, barrier = Memory(), threading.Barrier(4)
    contents = [bytes([number]) * 100_000 for number in range(4)]

    async def one(path: str, call: Call, content: bytes) -> None:
        async with open_target(path, [OpenFolder(str(root), writable=True)], call) as target:
            await anyio.to_thread.run_sync(barrier.wait)
            await target.write(content)

    # A name that is new, and one that all of them may replace.
    await write(f"{root}/old", root, content=b"seen", call=memory.begin())
    for name in ("new", "old"):
        async with anyio.create_task_group() as tasks:
            for content in contents:
                tasks.start_soon(one, f"{root}/{name}", memory.begin(), content)
        assert sorted(path.read_bytes() for path in root.glob(f"{name}*")) == contents


async def test_a_call_that_began_earlier_does_not_replace_what_nobody_has_seen(root: Path) -> None:
    memory = Memory()
    first, second = memory.begin(), memory.begin()
    await write(f"{root}/new", root, content=b"1", call=first)
    assert (await write(f"{root}/new", root, content=b"2", call=second)).path == f"{root}/new.from-code"
    # Nor does a call what it has written itself.
    assert (await write(f"{root}/new", root, content=b"3", call=first)).path == f"{root}/new.from-code-2"
    assert (await write(f"{root}/new", root, content=b"4", call=memory.begin())).path == f"{root}/new"


async def test_the_memory_of_what_was_written_is_bounded(root: Path) -> None:
    memory = Memory(2)
    for name in ("a", "b", "a", "c"):
        await write(f"{root}/{name}", root, content=os.urandom(8), call=memory.begin())
    for name, beside in (("a", ""), ("c", ""), ("b", f"{root}/b")):
        assert (await write(f"{root}/{name}", root, content=os.urandom(8), call=memory.begin())).beside == beside


async def test_a_full_disk_is_told_and_nothing_is_left(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Draft, "write", fail)
    with pytest.raises(BadHostPath, match="on this machine cannot be written: No space left on device"):
        await write(f"{root}/folder/file", root)
    assert [(path.name, path.read_text()) for path in (root / "folder").iterdir()] == [("file", "content")]
