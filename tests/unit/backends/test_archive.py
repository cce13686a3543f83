"""Tar streams from inside sandboxes: files arrive complete however the data is split, and no input does harm."""

import io
import itertools
import tarfile
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends.archive import END, ArchiveReader, Member, header, padding, timed_header

NAMES = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=120).filter(
    lambda name: name not in (".", "..")
)
FILES = st.dictionaries(NAMES, st.sampled_from([0, 1, 511, 512, 513, 3000]), max_size=5)
DROPPED = st.sampled_from(
    [tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)


def read(data: bytes, limit: int, cuts: Iterable[int] = ()) -> tuple[list[Member], ArchiveReader]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    reader = ArchiveReader(limit)
    members = [m for start, end in itertools.pairwise(places) for m in reader.feed(data[start:end])]
    return members, reader


@given(
    FILES,
    st.lists(DROPPED, max_size=3),
    st.lists(st.integers(0), max_size=20),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    st.sampled_from([{}, {"SCHILY.xattr.user.x": "a=b\n7 c=d\n"}]),
)
def test_regular_files_come_out_unchanged_and_nothing_else_does(
    files: dict[str, int], others: list[bytes], cuts: list[int], form: int, records: dict[str, str]
) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        for kind in others:
            info = tarfile.TarInfo("other")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        for name, size in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = size, records
            archive.addfile(info, io.BytesIO(name.encode()[:1] * size))
    members, reader = read(stream.getvalue(), 10_000, cuts)
    assert {m.name: (m.size, bytes(m.content)) for m in members} == {
        name: (size, name.encode()[:1] * size) for name, size in files.items()
    }
    assert not reader.malformed
    assert {m.attributes for m in members} <= {bool(records) and form == tarfile.PAX_FORMAT}


@pytest.mark.parametrize("records", [{}, {"SCHILY.xattr.user.x": "a=b"}, {"comment": "SCHILY.xattr.user.x"}])
def test_a_file_says_whether_it_has_extended_attributes(records: dict[str, str]) -> None:
    infos = tarfile.TarInfo("a"), tarfile.TarInfo("b")
    infos[0].pax_headers = records
    members, _ = read(b"".join(info.tobuf(tarfile.PAX_FORMAT) for info in infos) + END, 100)
    assert [(member.name, member.attributes) for member in members] == [
        ("a", "comment" not in records and bool(records)),
        ("b", False),
    ]


@given(st.binary(max_size=2000), st.lists(st.integers(0), max_size=20))
def test_no_input_makes_it_fail_or_keep_more_than_the_limit(data: bytes, cuts: list[int]) -> None:
    members, _ = read(data, 600, cuts)
    assert all(len(member.content) <= 600 for member in members)


@given(st.data())
def test_damaged_archives_neither_fail_nor_exceed_the_limit(data: st.DataObject) -> None:
    whole = header("a/b", 700) + bytes(700) + padding(700) + header("x" * 150, 5) + b"hello" + padding(5)
    whole += timed_header("y" * 150, 5, mode=0o644, mtime=1) + b"hello" + padding(5) + END
    damaged = bytearray(whole)
    for place, byte in data.draw(
        st.dictionaries(st.integers(0, len(whole) - 1), st.integers(0, 255), max_size=20)
    ).items():
        damaged[place] = byte
    members, reader = read(bytes(damaged), 600, data.draw(st.lists(st.integers(0), max_size=10)))
    assert all(len(member.content) <= 600 for member in members)
    assert len(reader._held) < 512


def test_a_file_over_the_limit_gives_its_name_and_size_at_once_but_no_content() -> None:
    reader = ArchiveReader(100)
    (member,) = list(reader.feed(header("big", 1 << 40)))
    assert (member.name, member.size, bytes(member.content)) == ("big", 1 << 40, b"")
    for _ in range(100):
        assert list(reader.feed(bytes(10_000))) == []
    assert len(reader._held) == 0


@pytest.mark.parametrize(("size", "kept"), [(99, 99), (100, 100), (101, 0)])
def test_a_file_of_exactly_the_limit_is_kept(size: int, kept: int) -> None:
    [member], _ = read(header("a", size) + b"x" * size + padding(size) + END, 100)
    assert (member.size, bytes(member.content)) == (size, b"x" * kept)


def test_an_empty_file_is_there_as_soon_as_its_header_is() -> None:
    [member] = ArchiveReader(100).feed(header("a", 0))
    assert (member.name, member.ends) == ("a", True)


def test_a_file_after_a_file_over_the_limit_is_read() -> None:
    data = header("big", 700) + b"x" * 700 + padding(700) + header("small", 2) + b"ok" + padding(2) + END
    members, _ = read(data, 100, range(0, len(data), 7))
    assert [(member.name, bytes(member.content)) for member in members] == [("big", b""), ("small", b"ok")]


def test_a_name_over_4096_bytes_ends_the_reading() -> None:
    info = tarfile.TarInfo("x" * 5000)
    members, reader = read(info.tobuf(tarfile.GNU_FORMAT), 100)
    assert members == [] and reader.malformed


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_an_empty_extension_of_a_header_changes_nothing(kind: bytes) -> None:
    empty = tarfile.TarInfo("extension")
    empty.type = kind
    members, reader = read(empty.tobuf(tarfile.USTAR_FORMAT) + header("a", 2) + b"ok" + padding(2) + END, 100)
    assert [(member.name, bytes(member.content)) for member in members] == [("a", b"ok")]
    assert not reader.malformed


@given(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.sampled_from([0, 1, 511, 512, 513]))
def test_a_written_archive_contains_the_file_and_its_folders(path: str, size: int) -> None:
    data = header(path, size) + b"x" * size + padding(size) + END
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        *folders, file = archive.getmembers()
        assert (file.name, file.size, file.isreg()) == (path, size, True)
        assert all(folder.isdir() and path.startswith(folder.name + "/") for folder in folders)
        assert len(folders) == path.count("/")


@given(NAMES, st.integers(0, 1 << 62), st.sampled_from([0o644, 0o755, 0o400]))
def test_a_time_in_nanoseconds_and_any_name_survive_an_archive(path: str, mtime: int, mode: int) -> None:
    data = timed_header(path, 2, mode=mode, mtime=mtime) + b"ok" + padding(2) + END
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        [member] = archive
    assert (member.name, member.size, member.mode) == (path, 2, mode)
    assert member.pax_headers["mtime"] == f"{mtime // 10**9}.{mtime % 10**9:09}"


@pytest.mark.parametrize("size", [0, 1, 8**11 - 1, 8**11, 8**11 + 1, 1 << 40])
@pytest.mark.parametrize(("mtime", "shown"), [(0, 0), (5, 5e-9), (-1_500_000_000, -1.5)])
def test_a_file_of_any_size_and_time_has_a_header(size: int, mtime: int, shown: float) -> None:
    data = timed_header("a", size, mode=0o644, mtime=mtime)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        member = archive.next()
    assert member is not None
    assert (member.name, member.size, member.mtime) == ("a", size, shown)
    assert {member.uid, member.gid, member.devmajor, member.devminor} == {0}
    # Where the usual field suffices, readers that know no records find the size too.
    assert ("size" in member.pax_headers) == (size >= 8**11)
    [read_back] = ArchiveReader(0).feed(data)
    assert (read_back.name, read_back.size) == ("a", size)


@given(FILES, st.lists(st.integers(0), max_size=20), st.integers(1, 2000))
def test_a_file_in_parts_is_the_whole_file(files: dict[str, int], cuts: list[int], part: int) -> None:
    data = b"".join(header(name, size) + b"x" * size + padding(size) for name, size in files.items()) + END
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    reader, found, ended = ArchiveReader(1 << 20, part), dict.fromkeys(files, 0), []
    for start, end in itertools.pairwise(places):
        for member in reader.feed(data[start:end]):
            assert member.offset == found[member.name]
            assert len(member.content) <= part
            found[member.name] += len(member.content)
            ended += [member.name] if member.ends else []
    assert found == files
    assert sorted(ended) == sorted(files)
