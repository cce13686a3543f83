"""Who changed what in a folder and in the copy of it that code has, and so what goes which way."""

from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp.backends.listing import FOLDER, Entry, Stamp, Tree
from llm_sandbox_mcp.files.merging import NEVER, Pair, beside, incoming, outgoing, topmost

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


def test_names_that_no_folder_should_get_are_never_saved() -> None:
    deep, long, odd = "a/" * 64 + "x", "/".join(["é" * 100] * 20), "\udcff"
    entry = Entry("f", 0o644, Stamp(1, 1, 1, 1))
    found = outgoing({}, dict.fromkeys((deep, deep[2:], long, long[101:], odd, "x"), entry), {})
    assert {*found.special} == {deep, long, odd}
    assert {*found.files} == {deep[2:], long[101:], "x"}


def test_the_topmost_of_some_names() -> None:
    assert [*topmost(["d/", "d/x", "e/y", "e/y/z/", "f"])] == ["d/", "e/y", "f"]
