"""Files of a person in folders that they opened: none is lost, replaced by accident, or changes owner or mode."""

import errno
import fcntl
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends import libc
from llm_sandbox_mcp.backends.listing import Stamp
from llm_sandbox_mcp.base.errors import BadPath
from llm_sandbox_mcp.cli.saving import save
from llm_sandbox_mcp.files.beneath import Changed, InTheWay, make_folder, move_file, open_folder, remove_file
from llm_sandbox_mcp.files.drafts import NotOwned, new_file, write_file
from tests.disks import fill, small_disk
from tests.effort import tries

from .kernels import KERNELS, before, denied, on

ACCESS = "system.posix_acl_access"
DEFAULT = "system.posix_acl_default"
OTHER = 12345
LONG = "é" * 127 + "x"
"""A name of 255 bytes."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder; at the end of the test, nothing temporary is in it, and no descriptor is left open."""
    at_first = set(os.listdir("/proc/self/fd"))
    (tmp_path / "opened").mkdir()
    yield tmp_path / "opened"
    assert [path for path in (tmp_path / "opened").rglob(".*") if path.name.endswith(".part")] == []
    assert set(os.listdir("/proc/self/fd")) == at_first


def create(path: Path, content: bytes = b"new", mode: int = 0o644, mtime: int | None = None) -> Stamp:
    with open_folder(path.parent) as opened, new_file(opened) as draft:
        draft.write(content)
        return draft.create(path.name, mode=mode, mtime=mtime)


def replace(path: Path, expected: Stamp | None, content: bytes = b"new", mtime: int | None = None) -> Stamp:
    with open_folder(path.parent) as opened, new_file(opened) as draft:
        draft.write(content)
        return draft.replace(path.name, expected, mtime=mtime)


def remove(path: Path, expected: Stamp) -> None:
    with open_folder(path.parent) as opened:
        remove_file(opened, path.name, expected)


def move(path: Path, to: Path, expected: Stamp) -> Stamp:
    with open_folder(path.parent) as opened, open_folder(to.parent) as other:
        return move_file(opened, path.name, other, to.name, expected)


def write(path: Path, content: bytes = b"new") -> None:
    with open_folder(path.parent) as opened:
        write_file(opened, path.name, content)


def same(path: Path, content: bytes) -> bool:
    with open_folder(path.parent) as opened, new_file(opened) as draft:
        draft.write(content)
        return draft.same_as(path.name)


def seen(path: Path) -> Stamp:
    return Stamp.of(path.lstat())


def old_file(folder: Path, name: str = "file", content: bytes = b"old") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """Entries are a tag, permissions and an id."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


SHARED = access_list((1, 6, 2**32 - 1), (2, 6, OTHER), (4, 4, 2**32 - 1), (16, 6, 2**32 - 1), (32, 0, 2**32 - 1))


def set_attribute(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"this file system refuses {name}: {error.strerror}")


def test_a_new_file_has_its_content_mode_and_time(folder: Path, kernel: str) -> None:
    stamp = on(kernel, lambda: create(folder / "file", b"content", 0o4750, 10**18))
    state = (folder / "file").stat()
    assert (folder / "file").read_bytes() == b"content"
    assert (state.st_mode & 0o7777, state.st_mtime_ns, state.st_nlink) == (0o750, 10**18, 1)
    assert stamp == Stamp.of(state)


def test_nobody_else_can_read_a_file_that_has_no_name_yet(folder: Path, kernel: str) -> None:
    def modes() -> list[int]:
        found = []
        with open_folder(folder) as opened, new_file(opened) as draft:
            draft.write(b"secret")
            for number in os.listdir("/proc/self/fd"):
                with suppress(FileNotFoundError):  # that of the list itself
                    if os.readlink(f"/proc/self/fd/{number}").startswith(f"{folder}/"):
                        found.append(stat.S_IMODE(os.stat(f"/proc/self/fd/{number}").st_mode))
        return found

    assert on(kernel, modes) == [0o600]


def test_a_time_in_the_future_is_not_set(folder: Path) -> None:
    create(folder / "file", mtime=2**62)
    assert (folder / "file").stat().st_mtime_ns <= time.time_ns()


def test_a_new_file_replaces_nothing(folder: Path, kernel: str) -> None:
    for name, path in things(folder).items():
        at_first = seen(path)
        with pytest.raises(FileExistsError):
            on(kernel, lambda name=name: create(folder / name))  # type: ignore[misc]
        assert seen(path) == at_first
    assert len(os.listdir(folder)) == 7


def things(folder: Path) -> dict[str, Path]:
    """One of each thing that can have a name."""
    old_file(folder)
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("file")
    (folder / "dangling").symlink_to("nothing")
    (folder / "leads to a folder").symlink_to("folder")
    os.mkfifo(folder / "pipe")
    with open_folder(folder) as opened, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{opened}/socket")  # a longer path would not fit
    return {name: folder / name for name in os.listdir(folder)}


def test_only_a_regular_file_is_replaced_removed_or_moved(folder: Path, kernel: str) -> None:
    for path in things(folder).values():
        at_first = seen(path)
        if path.name == "file":
            continue
        for act in (
            lambda path=path: replace(path, None),
            lambda path=path: replace(path, seen(path)),
            lambda path=path: write(path),
            lambda path=path: remove(path, seen(path)),
            lambda path=path: move(path, path.with_name("other"), seen(path)),
        ):
            with pytest.raises(InTheWay):
                on(kernel, act)
        assert not same(path, b"old")
        assert seen(path) == at_first
    assert (folder / "file").read_bytes() == b"old"
    assert len(os.listdir(folder)) == 7


def test_a_draft_without_a_name_is_gone_after_its_scope(folder: Path, kernel: str) -> None:
    def fail() -> None:
        with open_folder(folder) as opened, new_file(opened) as draft:
            draft.write(b"content")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        on(kernel, fail)
    assert os.listdir(folder) == []


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o755, 0o1644, 0o000])
def test_a_replaced_file_keeps_its_mode(folder: Path, kernel: str, mode: int) -> None:
    path = old_file(folder)
    path.chmod(mode)
    stamp = on(kernel, lambda: replace(path, seen(path), b"content", 10**18))
    assert path.stat().st_mode & 0o7777 == mode
    assert path.stat().st_mtime_ns == 10**18
    assert stamp == seen(path)
    assert same(path, b"content") or os.geteuid() != 0
    assert os.listdir(folder) == ["file"]


@as_root
def test_a_replaced_file_keeps_its_owner_and_group(folder: Path, kernel: str) -> None:
    path = old_file(folder)
    os.chown(path, OTHER, OTHER + 1)
    path.chmod(0o750)
    on(kernel, lambda: replace(path, seen(path)))
    on(kernel, lambda: write(path))
    state = path.stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o7777) == (OTHER, OTHER + 1, 0o750)


@pytest.mark.parametrize("mode", [0o4755, 0o2755])
def test_a_file_that_runs_with_rights_of_its_own_is_not_replaced(folder: Path, kernel: str, mode: int) -> None:
    path = old_file(folder)
    path.chmod(mode)
    before = seen(path)
    for change in (lambda: replace(path, before), lambda: write(path)):
        with pytest.raises(NotOwned):
            on(kernel, change)
    assert (seen(path), os.listdir(folder)) == (before, ["file"])


def test_a_replaced_file_keeps_its_access_list_and_attributes(folder: Path, kernel: str) -> None:
    path = old_file(folder)
    set_attribute(path, ACCESS, SHARED)
    set_attribute(path, "user.note", b"a note")
    mode = path.stat().st_mode
    on(kernel, lambda: replace(path, seen(path)))
    assert path.read_bytes() == b"new"
    assert os.getxattr(path, ACCESS) == SHARED
    assert os.getxattr(path, "user.note") == b"a note"
    assert path.stat().st_mode == mode


def test_attributes_of_a_file_that_is_read_only_stay(folder: Path) -> None:
    path = old_file(folder)
    set_attribute(path, "user.note", b"a note")
    path.chmod(0o444)
    replace(path, seen(path))
    assert os.getxattr(path, "user.note") == b"a note"


@pytest.mark.parametrize("reason", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_is_replaced_where_no_file_has_attributes(folder: Path, reason: int) -> None:
    path = old_file(folder)
    denied("listxattr flistxattr", lambda: replace(path, seen(path)), reason)
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("call", ["listxattr", "flistxattr"])
def test_a_file_whose_attributes_are_not_known_is_not_replaced(folder: Path, call: str) -> None:
    path = old_file(folder)
    with pytest.raises(OSError, match="Input/output error"):
        denied(call, lambda: replace(path, seen(path)), errno.EIO)
    assert (path.read_bytes(), os.listdir(folder)) == (b"old", ["file"])


def test_a_replaced_file_gets_no_access_list_from_the_folder(folder: Path) -> None:
    path = old_file(folder)
    set_attribute(folder, DEFAULT, SHARED)
    replace(path, seen(path))
    assert ACCESS not in os.listxattr(path)


def test_a_new_file_gets_the_access_list_that_the_folder_has_for_it(folder: Path, kernel: str) -> None:
    set_attribute(folder, DEFAULT, SHARED)
    on(kernel, lambda: create(folder / "file"))
    assert ACCESS in os.listxattr(folder / "file")


def test_a_draft_that_could_not_replace_a_file_takes_nothing_from_it_to_another_name(folder: Path) -> None:
    path = old_file(folder)
    set_attribute(path, ACCESS, SHARED)
    set_attribute(path, "user.note", b"a note")
    if os.geteuid() == 0:
        os.chown(path, OTHER, OTHER)
    at_first = seen(path)

    def act() -> None:
        with open_folder(folder) as opened, new_file(opened) as draft:
            draft.write(b"new")
            with pytest.raises(PermissionError):
                draft.replace("file", None)
            draft.create("beside")

    denied("exchange", act)
    state = (folder / "beside").stat()
    assert not {ACCESS, "user.note"} & {*os.listxattr(folder / "beside")}
    assert (state.st_uid, state.st_gid, state.st_mode & 0o7777) == (os.geteuid(), folder.stat().st_gid, 0o644)
    assert seen(path) == at_first


@as_root
def test_what_root_makes_belongs_to_the_owner_of_the_folder(folder: Path, kernel: str) -> None:
    os.chown(folder, OTHER, OTHER + 1)

    def act() -> None:
        with open_folder(folder, ["a", "b"], make=True) as opened:
            write_file(opened, "file", b"new")

    for _ in range(2):
        on(kernel, act)
    made = [folder / "a", folder / "a/b", folder / "a/b/file"]
    assert [path.stat().st_mode & 0o7777 for path in made] == [0o755, 0o755, 0o644]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(OTHER, OTHER + 1)}


def test_a_folder_that_is_there_stays_as_it_is(folder: Path) -> None:
    (folder / "a").mkdir(mode=0o700)
    with open_folder(folder, ["a", "b"], make=True):
        pass
    assert (folder / "a").stat().st_mode & 0o7777 == 0o700


def test_a_folder_that_somebody_makes_first_is_used(folder: Path) -> None:
    def act() -> None:
        with open_folder(folder, ["a"], make=True) as opened:
            write_file(opened, "file", b"new")

    before("exchange", [lambda: (folder / "a").mkdir(mode=0o700)], act)
    assert (folder / "a").stat().st_mode & 0o7777 == 0o700
    assert os.listdir(folder / "a") == ["file"]


@as_root
@pytest.mark.parametrize(("owner", "mode"), [(OTHER, 0o700), (0, 0o750)])
def test_a_folder_that_somebody_puts_in_place_of_a_new_one_keeps_its_owner_and_mode(
    folder: Path, owner: int, mode: int
) -> None:
    os.chown(folder, OTHER + 1, OTHER + 1)
    theirs = folder.parent / "theirs"
    theirs.mkdir()
    theirs.chmod(mode)
    os.chown(theirs, owner, owner)

    def exchange() -> None:
        [made] = folder.iterdir()
        made.rmdir()
        theirs.rename(made)

    with open_folder(folder) as opened:
        before("open", [exchange], lambda: make_folder(opened, "a"))
    state = (folder / "a").stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o7777) == (owner, owner, mode)


ORDINARY = """
import os, sys
from llm_sandbox_mcp.files import beneath, drafts
from llm_sandbox_mcp.backends.listing import Stamp
with beneath.open_folder(sys.argv[1]) as folder:
    os.setgroups([]), os.setresgid(*[int(sys.argv[2])] * 3), os.setresuid(*[int(sys.argv[2])] * 3)
    for name in sys.argv[3:]:
        try:
            drafts.write_file(folder, name, b"new")
        except Exception as error:
            print(name, type(error).__name__)
"""


@as_root
def test_an_ordinary_user_does_not_replace_a_file_whose_owner_or_group_it_cannot_keep(folder: Path) -> None:
    folder.chmod(0o777)
    for name, (owner, group) in {"own": (OTHER, OTHER), "group": (OTHER, 1), "other": (0, OTHER)}.items():
        os.chown(old_file(folder, name), owner, group)
    argv = [sys.executable, "-c", ORDINARY, str(folder), str(OTHER), "own", "group", "other", "new"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "group NotOwned\nother NotOwned\n"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "own": b"new",
        "group": b"old",
        "other": b"old",
        "new": b"new",
    }
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (folder / "own", folder / "new")} == {(OTHER, OTHER)}


def test_a_file_that_changed_is_not_replaced_removed_or_moved(folder: Path, kernel: str) -> None:
    path = old_file(folder)
    for change in (
        lambda: path.chmod(0o600),  # only its ctime differs
        lambda: path.write_bytes(b"longer"),
        lambda: os.utime(path, ns=(1, 1)),
        lambda: old_file(folder, "other").rename(path),
        path.unlink,
    ):
        stamp = seen(path)
        change()
        for act in (
            lambda stamp=stamp: replace(path, stamp),
            lambda stamp=stamp: remove(path, stamp),
            lambda stamp=stamp: move(path, folder / "moved", stamp),
        ):
            with pytest.raises(Changed):
                on(kernel, act)
        if path.exists():
            assert seen(path) != stamp
            assert path.read_bytes() != b"new"
    assert os.listdir(folder) == []


def test_a_file_is_removed(folder: Path, kernel: str) -> None:
    path = old_file(folder)
    on(kernel, lambda: remove(path, seen(path)))
    assert os.listdir(folder) == []


def test_a_moved_file_stays_the_same_file(folder: Path, kernel: str) -> None:
    (folder / "below").mkdir()
    path = old_file(folder)
    path.chmod(0o4640)
    at_first = path.stat()
    stamp = on(kernel, lambda: move(path, folder / "below/moved", seen(path)))
    after = (folder / "below/moved").stat()
    assert stamp == Stamp.of(after)
    assert (at_first.st_ino, at_first.st_mode, at_first.st_mtime_ns) == (after.st_ino, after.st_mode, after.st_mtime_ns)
    assert os.listdir(folder) == ["below"]


def test_a_move_replaces_nothing(folder: Path, kernel: str) -> None:
    path = old_file(folder, "own")
    for other in things(folder).values():
        if other != path:
            stamps = seen(path), seen(other)
            with pytest.raises(FileExistsError):
                on(kernel, lambda other=other: move(path, other, seen(path)))  # type: ignore[misc]
            assert (seen(path), seen(other)) == stamps
    assert len(os.listdir(folder)) == 8


def test_a_move_to_another_device_is_refused(folder: Path, tmp_path: Path) -> None:
    path = old_file(folder)
    with small_disk(tmp_path / "disk", "1m") as disk, pytest.raises(OSError, match="cross-device") as refused:
        move(path, disk / "file", seen(path))
    assert refused.value.errno == errno.EXDEV
    assert path.read_bytes() == b"old"


def test_a_full_disk_leaves_the_old_file(folder: Path, kernel: str) -> None:
    with small_disk(folder / "disk", "1m") as disk:
        path = old_file(disk)
        filler = fill(disk)
        with pytest.raises(OSError, match="No space left"):
            on(kernel, lambda: write(path, bytes(1 << 16)))
        assert path.read_bytes() == b"old"
        assert {*os.listdir(disk)} == {"file", filler.name}


def test_the_longest_names_can_be_used(folder: Path, kernel: str) -> None:
    def act() -> None:
        path = folder / LONG
        replace(path, create(path), b"newer")
        with pytest.raises(OSError, match="too long"):
            create(folder / f"{LONG}x")
        with pytest.raises(OSError, match="too long"):
            move(path, folder / f"{LONG}x", seen(path))
        assert path.read_bytes() == b"newer"

    on(kernel, act)
    assert os.listdir(folder) == [LONG]


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_the_same_content_is_known(folder: Path, size: int) -> None:
    content = os.urandom(size)
    path = old_file(folder, content=content)
    assert same(path, content)
    assert not same(path, content + b"x")
    if size:
        assert not same(path, content[:-1] + bytes([content[-1] ^ 1]))
    assert not same(folder / "missing", content)


def test_a_draft_takes_any_bytes_in_parts(folder: Path) -> None:
    with open_folder(folder) as opened, new_file(opened) as draft:
        for part in (b"a", bytearray(b"b"), memoryview(b"c"), b""):
            draft.write(part)
        stamp = draft.create("file")
    assert (folder / "file").read_bytes() == b"abc"
    assert stamp == seen(folder / "file")


def save_again(path: Path, content: bytes = b"saved") -> Callable[[], None]:
    """What an editor does that saves a file by renaming."""

    def act() -> None:
        with suppress(FileExistsError):
            (path.parent.parent / "desk").mkdir()
        (path.parent.parent / "desk/file").write_bytes(content)
        (path.parent.parent / "desk/file").rename(path)

    return act


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b" and more")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_file_that_is_saved_just_before_it_is_replaced_stays(folder: Path) -> None:
    path = old_file(folder)
    with pytest.raises(Changed):
        before("exchange", [save_again(path)], lambda: replace(path, seen(path)))
    assert contents(folder) == {"file": b"saved"}


def test_a_file_that_is_edited_just_before_it_is_replaced_stays(folder: Path) -> None:
    path = old_file(folder)
    with pytest.raises(Changed):
        before("exchange", [lambda: append(path)], lambda: replace(path, seen(path)))
    assert contents(folder) == {"file": b"old and more"}


def test_a_mode_that_changes_while_a_file_is_replaced_is_not_undone(folder: Path) -> None:
    path = old_file(folder)
    with pytest.raises(Changed):
        before("link", [lambda: path.chmod(0o600)], lambda: replace(path, seen(path)))
    assert contents(folder) == {"file": b"old"}
    assert path.stat().st_mode & 0o7777 == 0o600


def test_a_file_that_somebody_puts_in_place_of_a_draft_is_not_removed(folder: Path) -> None:
    path = old_file(folder)

    def swap() -> None:
        (draft,) = folder.glob(".*.part")
        path.rename(draft)

    with pytest.raises(Changed):
        before("exchange", [swap], lambda: replace(path, seen(path)))
    (left,) = folder.iterdir()
    left.rename(path)
    assert contents(folder) == {"file": b"old"}


def test_a_file_that_is_removed_just_before_it_is_replaced_stays_removed(folder: Path) -> None:
    path = old_file(folder)
    with pytest.raises(Changed):
        before("exchange", [path.unlink], lambda: replace(path, seen(path)))
    assert contents(folder) == {}


def test_a_folder_that_gets_the_name_just_before_it_is_replaced_stays(folder: Path) -> None:
    path = old_file(folder)

    def act() -> None:
        path.unlink()
        path.mkdir()
        (path / "below").touch()

    with pytest.raises(Changed):
        before("exchange", [act], lambda: replace(path, seen(path)))
    assert [found.name for found in folder.rglob("*")] == ["file", "below"]


@pytest.mark.parametrize(("name", "beside"), [("file", "file.kept"), (LONG, f"{'é' * 125}.kept")])
def test_of_a_file_that_is_saved_twice_while_it_is_replaced_both_versions_stay(
    folder: Path, name: str, beside: str
) -> None:
    path = old_file(folder, name)
    twice = [save_again(path, b"first"), save_again(path, b"second")]
    with pytest.raises(Changed):
        before("exchange", twice, lambda: replace(path, seen(path)))
    assert contents(folder) == {name: b"first", beside: b"second"}


def test_a_file_that_is_removed_when_its_draft_has_the_name_gets_it_back(folder: Path) -> None:
    path = old_file(folder)
    with pytest.raises(Changed):
        before("exchange", [save_again(path), path.unlink], lambda: replace(path, seen(path)))
    assert contents(folder) == {"file": b"saved"}


def test_a_new_file_that_is_edited_at_once_does_not_count_as_seen(folder: Path) -> None:
    path = old_file(folder)
    stamp = before("unlink", [lambda: append(path)], lambda: replace(path, seen(path)))
    assert contents(folder) == {"file": b"new and more"}
    assert stamp.ctime == 0
    with pytest.raises(Changed):
        remove(path, stamp)


def test_a_file_that_is_saved_just_before_it_is_removed_stays(folder: Path) -> None:
    path = old_file(folder)
    with pytest.raises(Changed):
        before("rename", [save_again(path)], lambda: remove(path, seen(path)))
    assert contents(folder) == {"file": b"saved"}


def test_a_file_whose_name_is_taken_before_it_gets_it_back_is_kept_beside(folder: Path) -> None:
    path = old_file(folder)
    old_file(folder, "file.kept", b"older")
    twice = [save_again(path, b"first"), save_again(path, b"second")]
    with pytest.raises(Changed):
        before("rename exchange", twice, lambda: remove(path, seen(path)))
    assert contents(folder) == {"file": b"second", "file.kept": b"older", "file.kept-2": b"first"}


def test_a_file_that_is_saved_just_before_it_is_moved_stays(folder: Path) -> None:
    path = old_file(folder)
    with pytest.raises(Changed):
        before("exchange", [save_again(path)], lambda: move(path, folder / "moved", seen(path)))
    assert contents(folder) == {"file": b"saved"}


def test_a_file_that_a_program_opens_for_writing_in_the_last_moment_is_not_replaced(folder: Path) -> None:
    path = old_file(folder)
    with ExitStack() as opened, pytest.raises(Changed):
        before("exchange", [lambda: opened.enter_context(path.open("ab"))], lambda: replace(path, seen(path)))
    assert contents(folder) == {"file": b"old"}


def test_a_file_that_a_program_writes_to_is_not_removed(folder: Path) -> None:
    path = old_file(folder)
    with path.open("ab") as log:
        with pytest.raises(Changed):
            remove(path, seen(path))
        log.write(b" and more")
    assert contents(folder) == {"file": b"old and more"}
    with path.open("rb"):
        remove(path, seen(path))
    assert contents(folder) == {}


def test_a_file_with_a_lease_for_writing_is_not_replaced(folder: Path) -> None:
    path = old_file(folder)
    with path.open("r+b") as file:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        for act in (replace, remove):
            with pytest.raises(Changed):
                act(path, seen(path))
    assert contents(folder) == {"file": b"old"}


def test_permissions_that_are_taken_away_in_the_last_moment_are_not_given_back(folder: Path) -> None:
    path = old_file(folder)
    path.chmod(0o644)
    with pytest.raises(Changed):
        before("exchange", [lambda: path.chmod(0o600)], lambda: replace(path, seen(path)))
    assert contents(folder) == {"file": b"old"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_saved_while_it_is_written_is_replaced_whole(folder: Path) -> None:
    """Whoever writes without having looked replaces what is there, but never half of it."""
    path = old_file(folder)
    before("exchange", [save_again(path)], lambda: write(path))
    assert contents(folder) == {"file": b"new"}


class Person:
    """Works in a folder from another thread, and knows what became of each version that it saved by renaming."""

    def __init__(self, path: Path, desk: Path) -> None:
        self.path, self.desk = path, desk
        self.saved = 0
        self.over = threading.Event()
        self.destroyed: list[bytes] = []
        """Contents that it replaced or removed itself."""

    def work(self) -> None:
        while not self.over.is_set():
            self.save()
            self.append()
            self.save()
            self.remove()

    def save(self) -> None:
        version = self.desk / "version"
        self.saved += 1
        version.write_bytes(b"<%d>" % self.saved + b"-" * (self.saved % 50))
        for flags in (libc.RENAME_EXCHANGE, libc.RENAME_NOREPLACE) * 1000:
            with suppress(FileNotFoundError, FileExistsError), self.folders() as (desk, folder):
                libc.renameat2(desk, "version", folder, self.path.name, flags)
                break
        if version.exists():
            self.destroyed.append(version.read_bytes())
            version.unlink()

    def append(self) -> None:
        with suppress(FileNotFoundError), self.folders() as (_, folder):
            file = os.open(self.path.name, os.O_WRONLY | os.O_APPEND, dir_fd=folder)
            os.write(file, b"+")
            os.close(file)

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            self.path.rename(self.desk / "version")
            self.destroyed.append((self.desk / "version").read_bytes())
            (self.desk / "version").unlink()
        with suppress(FileExistsError):
            self.path.open("xb").close()

    @contextmanager
    def folders(self) -> Iterator[tuple[int, int]]:
        with open_folder(self.desk) as desk, open_folder(self.path.parent) as folder:
            yield desk, folder


def replace_seen(path: Path, stamp: Stamp) -> None:
    replace(path, stamp)


def move_away(path: Path, stamp: Stamp) -> None:
    move(path, path.parent.parent / "away", stamp)
    (path.parent.parent / "away").unlink()


@pytest.mark.parametrize("act", [replace_seen, remove, move_away])
@pytest.mark.parametrize("name", ["usual", "without files without a name", "without names in addition"])
def test_no_version_that_somebody_saves_meanwhile_is_lost(
    folder: Path, tmp_path: Path, act: Callable[[Path, Stamp], None], name: str
) -> None:
    (tmp_path / "desk").mkdir()
    person = Person(folder / "file", tmp_path / "desk")
    taken: list[bytes] = []

    def take() -> None:
        for _ in range(tries(1000)):
            with suppress(FileNotFoundError), person.path.open("rb") as file:
                content = file.read()
                stamp = Stamp.of(os.fstat(file.fileno()))
                with suppress(Changed):
                    act(person.path, stamp)
                    taken.append(content)

    thread = threading.Thread(target=person.work)
    thread.start()
    try:
        on(name, take)
    finally:
        person.over.set()
        thread.join()
    assert [path for path in os.listdir(folder) if path.startswith(".")] == []
    there = b"".join([*contents(folder).values(), *taken, *person.destroyed])
    found = {int(number) for number in re.findall(rb"<(\d+)>", there)}
    assert found == {*range(1, person.saved + 1)}


def test_a_file_that_the_command_saves_is_not_put_in_place_of_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(BadPath, match="it is a link, a pipe, a device or a folder there, and is not replaced"):
        save(folder, "pipe", b"new")
