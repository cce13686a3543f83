"""Where code's files get when something else has their names: beside it, under the first of a thousand names."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llm_sandbox_mcp.files.beneath import open_folder
from llm_sandbox_mcp.files.drafts import new_file
from llm_sandbox_mcp.files.merging import beside
from llm_sandbox_mcp.files.places import KeptOut, Places

MOST = 1000

Put = Callable[[Path, list[str]], str]


def on_a_detour(top: Path, taken: list[str]) -> str:
    """A file in a folder whose name a file has."""
    places = Places(top, taken)
    with places.open("x/in"):
        pass
    assert places.is_detour("x/in") and not places.is_detour("x")
    return places.path("x/in").removesuffix("/in")


def aside(top: Path, taken: list[str]) -> str:
    """A folder that is to replace a file."""
    places = Places(top, taken)
    name = places.set_aside("x")
    assert places.path("x/in") == f"{name}/in" and not places.is_detour("x/in")
    return name


def version(top: Path, taken: list[str]) -> str:
    """Another version of a file."""
    with open_folder(top) as folder, new_file(folder) as draft:
        draft.write(b"from code")
        return draft.create_beside("x", taken=taken.__contains__)[0]


@pytest.mark.parametrize("put", [on_a_detour, aside, version])
def test_of_a_thousand_names_the_first_that_nothing_has_is_chosen(tmp_path: Path, put: Put) -> None:
    (tmp_path / "x").write_text("theirs")
    names = [beside("x", number) for number in range(1, MOST + 2)]
    for count in (0, 1, 2, MOST - 1):
        assert put(tmp_path, names[:count]) == names[count]
        assert (tmp_path / names[count]).exists()
    with pytest.raises(OSError, match=r"there are 1000|Not a directory"):
        put(tmp_path, names[:MOST])
    assert not (tmp_path / names[MOST]).exists()
    assert (tmp_path / "x").read_text() == "theirs"


@pytest.mark.parametrize("name", [".x", "a/.x/b", "HEAD", "a/head", "a/.git"])
def test_what_other_programs_obey_is_kept_out(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeptOut), Places(tmp_path).open(name):
        pass


def test_a_folder_that_was_set_aside_gets_its_name_once_nothing_has_it(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("theirs")
    places = Places(tmp_path)
    places.set_aside("x")
    with pytest.raises(FileExistsError):
        places.give_name("x")
    (tmp_path / "x").unlink()
    places.give_name("x")
    assert (tmp_path / "x").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert places.path("x/in") == "x/in"
