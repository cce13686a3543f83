"""Who changed what in a folder and in the copy of it that code has, and so what goes which way."""

from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends.listing import FOLDER, Entry, Stamp, Tree
from llm_sandbox_mcp.files.merging import NEVER, Pair, beside, incoming, moved_folders, outgoing, topmost

NAMES = ("a", "b", "d", "d/x", "d/y", "d/e", "d/e/z")


def file(number: int, kind: str = "f", inode: int = 0) -> Entry:
    return Entry(kind, 0o644, Stamp(inode or number, number, number, number))


def both(**names: int) -> dict[str, Pair]:
    return {name: Pair(file(number), file(number)) for name, number in names.items()}


def came(base: dict[str, Pair], host: Tree, inside: Tree | None) -> tuple[list[str], list[str]]:
    plan = incoming(base, host, inside, {}, {})
    return plan.copied, plan.removed


def test_only_what_changed_in_the_folder_comes_in() -> None:
    base = both(same=1, edited=2, gone=3)
    inside = {"same": file(1), "edited": file(2), "gone": file(3)}
    host = {"same": file(1), "edited": file(4), "new": file(5), "link": file(6, "l")}
    assert came(base, host, inside) == (["edited", "new"], ["gone"])
    assert came(base, host, None) == (["edited", "new"], ["gone"])


def test_what_code_has_changed_too_is_left_to_be_settled() -> None:
    base = both(edited=1, gone=2, taken=3)
    host = {"edited": file(4), "new": file(5), "taken": file(6)}
    inside = {"edited": file(7), "gone": file(8), "new": file(9)}
    assert came(base, host, inside) == ([], [])


def test_what_is_hidden_comes_in_although_the_copys_list_does_not_have_it() -> None:
    base = both(**{".env": 1, "d/.x": 2, ".gone": 3})
    assert came(base, {".env": file(4), "d/.x": file(5)}, {}) == ([".env", "d/.x"], [".gone"])


def test_a_folder_that_replaces_a_file_comes_in_with_what_is_in_it() -> None:
    base = {"d": Pair(file(1), file(1))}
    assert came(base, {"d": FOLDER, "d/x": file(2)}, {"d": file(1)}) == (["d", "d/x"], ["d"])
    # Not if code has changed the file.
    assert came(base, {"d": FOLDER, "d/x": file(2)}, {"d": file(3)}) == ([], [])


def test_files_that_cannot_be_read_and_special_files_of_the_codes() -> None:
    base, host = both(), {"closed": file(1), "both": file(2)}
    plan = incoming(base, host, {"both": file(3, "l")}, {"closed": file(1)}, {"both": file(3, "l")})
    assert (plan.copied, plan.removed) == (["both"], ["both"])


def test_what_code_changed_goes_out() -> None:
    base = {**both(same=1, edited=2, gone=3, old=4), "d": Pair(FOLDER, FOLDER)}
    inside = {
        "same": file(1),
        "edited": file(5),
        "new": file(6),
        "link": file(7, "l"),
        "\udcff": file(8),
        "moved": file(9, inode=4),
        "e": FOLDER,
    }
    plan = outgoing(base, inside, {})
    assert plan.files == ["edited", "moved", "new"]
    assert plan.moved == {"old": "moved"}
    assert plan.gone == ["gone", "d"]
    assert plan.folders == ["e"]
    assert plan.special == ["link", "\udcff"]
    assert outgoing(base, inside, {"link": file(7, "l"), "\udcff": file(8)}).special == []
    assert not outgoing(both(same=1), {"same": file(1)}, {})


def test_a_database_that_code_has_not_closed_waits_and_its_other_files_never_go_out() -> None:
    base = both(**{"a.db": 1, "b.db": 2, "b.db-wal": 3, "c.db": 4, "c.db-journal": 5})
    inside = {
        "a.db": file(6),
        "a.db-journal": file(7),
        "a.db-shm": file(8),
        "b.db": file(9),
        "c.db": file(4),
        "c.db-journal": file(10),
        "d-wal": file(11),
        "e.db": file(12),
        "f.db": file(14),
        "f.db-shm": file(15),
        "e.db-wal": Entry("f", 0o644, Stamp(13, 0, 1, 1)),
    }
    plan = outgoing(base, inside, {})
    assert plan.databases == ["a.db", "c.db"]
    assert plan.files == ["b.db", "d-wal", "e.db", "f.db"]
    # The folder's own is not removed from its version of the database, but with the database.
    assert not plan.gone
    assert outgoing(base, {}, {}).gone == ["c.db-journal", "c.db", "b.db-wal", "b.db", "a.db"]


def test_a_database_and_its_other_files_come_together_or_not_at_all() -> None:
    base = both(**{"a.db": 1, "a.db-wal": 2})
    host = {"a.db": file(3), "a.db-wal": file(4)}
    assert came(base, host, {"a.db": file(1), "a.db-wal": file(2)}) == (["a.db", "a.db-wal"], [])
    for inside in ({"a.db": file(5), "a.db-wal": file(2)}, {"a.db": file(1), "a.db-wal": file(6)}, {"a.db": file(1)}):
        assert came(base, host, inside) == ([], [])


def test_what_code_has_only_under_names_that_are_never_saved_is_kept() -> None:
    base = {**both(**{"a": 1, "b": 2, "d/x": 3, "c": 4}), "d": Pair(FOLDER, FOLDER)}
    inside = {"\udcff": file(9, inode=2)}
    plan = outgoing(base, inside, {}, folders={"d": 30}, hidden={1, 30})
    assert (sorted(plan.kept), plan.gone) == (["a", "b", "d", "d/x"], ["c"])
    # What is saved under a new name after all is moved there.
    moved = {**inside, "d2": file(3)}
    plan = outgoing(base, moved, {}, folders={"d": 30}, hidden={1, 30})
    assert (sorted(plan.kept), plan.moved) == (["a", "b", "d"], {"d/x": "d2"})
    told = {"\udcff": file(9, inode=2)}
    assert sorted(outgoing(base, inside, told, folders={"d": 30}, hidden={1, 30}).kept) == ["a", "b", "d", "d/x"]


def test_it_is_known_where_the_older_content_of_a_file_went() -> None:
    plan = outgoing(both(a=1, b=2), {"a": file(3), "old/a": file(4, inode=1), "b": file(2)}, {})
    assert plan.sources == {"a": ["old/a"]}
    assert plan.files == ["old/a", "a"]
    plan = outgoing(both(a=1), {"a": file(3, "p"), "b": file(4, inode=1)}, {})
    assert (plan.files, plan.sources, plan.special) == (["b"], {}, ["a"])
    # A chain is saved from its end, and a circle in any order: nothing of it is under a new name.
    moved = {"a": file(9), "b": file(5, inode=1), "c": file(6, inode=2), "d": file(7, inode=3)}
    plan = outgoing(both(a=1, b=2, c=3), moved, {})
    assert (plan.files, plan.sources) == (["d", "c", "b", "a"], {"a": ["b"], "b": ["c"], "c": ["d"]})
    moved = {"a": file(5, inode=2), "b": file(6, inode=3), "c": file(7, inode=1), "d": file(8)}
    plan = outgoing(both(a=1, b=2, c=3), moved, {})
    assert (plan.files, plan.sources) == (["d", "a", "b", "c"], {})


def test_folders_that_code_moved_are_known_by_their_inodes() -> None:
    before = {"a": 1, "a/b": 2, "c": 3, "same": 4}
    assert moved_folders(before, {"x": 1, "x/b": 2, "new": 5, "same": 4}) == {"a": "x", "a/b": "x/b"}
    assert moved_folders(before, before) == {}


def test_what_does_not_fit_waits_and_so_do_deletions() -> None:
    base = both(old=1, other=2, gone=3)
    inside = {"a": file(4, inode=1), "b": file(5, inode=2), "c": file(6)}
    plan = outgoing(base, inside, {})
    assert plan.limit(3) == 0
    assert plan.gone == ["gone"]
    assert plan.limit(1) == 2
    assert (plan.files, plan.moved, plan.gone) == (["a"], {"old": "a"}, [])


TREES = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3)).map(
    lambda found: {
        name: FOLDER if any(other.startswith(f"{name}/") for other in NAMES) else file(number)
        for name, number in found.items()
        if all(name.rpartition("/")[0] in found for _ in name.split("/")[1:])
    }
)


@given(TREES, TREES, TREES)
def test_no_name_goes_both_ways(known: Tree, host: Tree, inside: Tree) -> None:
    base = {name: Pair(entry, entry) for name, entry in known.items()}
    come, go = incoming(base, host, inside, {}, {}), outgoing(base, inside, {})
    files = {name for name in (*come.copied, *come.removed) if host.get(name) != FOLDER and known.get(name) != FOLDER}
    assert not files & {*go.files, *go.gone, *go.moved}
    # Whatever differs is in one of the two plans, or in conflict: then code's change goes out, and is settled there.
    for name in {*host, *known}:
        if host.get(name) != known.get(name):
            assert name in (*come.copied, *come.removed) or inside.get(name) != known.get(name) or "/" in name


@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1), st.integers(1, 999))
def test_a_name_beside_is_a_name(name: str, number: int) -> None:
    while len(name.encode()) > 255:
        name = name[:-1]
    found = beside(name, number)
    assert 0 < len(found.encode()) <= 255
    assert found != name
    assert "/" not in found
    assert f".from-code{'' if number == 1 else f'-{number}'}" in found
    assert name.startswith(".") or not found.startswith(".") or name[0] == "."


def test_a_name_beside_keeps_the_kind_of_the_file() -> None:
    assert [beside(name, 1) for name in ("notes.csv", "a.tar.gz", "Makefile", ".x")] == [
        *("notes.from-code.csv", "a.tar.from-code.gz", "Makefile.from-code", ".x.from-code"),
    ]
    assert beside("notes.csv", 2) == "notes.from-code-2.csv"
    assert NEVER.kind == "f"
    # The end is kept while it is half of the longest name or less.
    for suffix, kept in ((116, True), (117, False)):
        found = beside(f"{'a' * 100}.{'b' * suffix}", 1)
        assert (found == f"{'a' * 100}.from-code.{'b' * suffix}"[-255:]) == kept, found
        assert found.endswith("b" if kept else ".from-code")


def test_names_that_no_folder_should_get_are_never_saved() -> None:
    deep, long, odd = "a/" * 64 + "x", "/".join(["é" * 100] * 20), "\udcff"
    entry = Entry("f", 0o644, Stamp(1, 1, 1, 1))
    found = outgoing({}, dict.fromkeys((deep, deep[2:], long, long[101:], odd, "x"), entry), {})
    assert {*found.special} == {deep, long, odd}
    assert {*found.files} == {deep[2:], long[101:], "x"}


def test_the_topmost_of_some_names() -> None:
    assert [*topmost(["d/", "d/x", "e/y", "e/y/z/", "f"])] == ["d/", "e/y", "f"]
