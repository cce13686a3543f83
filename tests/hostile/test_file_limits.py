"""Attack: files that are too large, and too many files. Outcome: each has its own status, and the host keeps its
inodes."""

import pytest

from tests.engines import MIB
from tests.hostile import deviations
from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

SIZE = {"limits": {"file_size": MIB, "disk": 16 * MIB}}
FILES = {"limits": {"files": 1000}}
TOO_LARGE = {
    "python": "open('{folder}/large', 'wb').write(bytes(2 << 20))",
    "python, small writes": "with open('{folder}/.large', 'wb', 0) as file:\n    while file.write(bytes(1000)): pass",
    "python, preallocated": "import os\nfile = os.open('{folder}/large', os.O_CREAT | os.O_RDWR)\n"
    "os.ftruncate(file, 1 << 20)\nos.posix_fallocate(file, 0, 2 << 20)",
    "a child": "import subprocess\nsubprocess.run('head -c 2000000 /dev/zero > {folder}/large', shell=True, check=True)",
}


@pytest.mark.parametrize("limits", [SIZE], indirect=True)
@pytest.mark.parametrize("folder", ["/sandbox", "/home", "/tmp"])
@pytest.mark.parametrize("code", TOO_LARGE.values(), ids=TOO_LARGE)
async def test_a_file_over_the_limit_has_its_own_status(arena: Arena, folder: str, code: str) -> None:
    result = await arena.attack(code.replace("{folder}", folder))
    assert (result.status, result.session_state) == ("file_limit", "kept"), result
    assert any("the limit of 1MiB for one file was reached; write less" in note for note in result.notes), result
    await arena.check(
        f"import os\nfor name in ('large', '.large'):\n    if os.path.exists(f'{folder}/{{name}}'): os.unlink(f'{folder}/{{name}}')",
        result.session_id,
    )
    again = await arena.execute("1 / 0", session_id=result.session_id)
    assert again.status == "error", again


@pytest.mark.parametrize("limits", [SIZE], indirect=True)
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("bash", "head -c 2000000 /dev/zero > large"),
        (
            "cpp",
            """
#include <cstdio>
#include <vector>
int main() { std::vector<char> data(2 << 20); FILE *file = fopen("large", "w"); fwrite(data.data(), 1, data.size(), file); }
""",
        ),
    ],
)
async def test_a_file_over_the_limit_has_the_same_status_in_other_languages(
    arena: Arena, language: str, code: str
) -> None:
    result = await arena.attack(code, language=language)
    assert result.status == "file_limit", result


@pytest.mark.parametrize("limits", [SIZE], indirect=True)
async def test_many_files_that_are_each_below_the_limit_are_fine(arena: Arena) -> None:
    await arena.check("for number in range(8): open(f'/tmp/{number}', 'wb').write(bytes(1 << 20))")


MAKE = {
    "files": "open(f'{folder}/{number}', 'x').close()",
    "folders": "os.mkdir(f'{folder}/{number}')",
    "links": "os.symlink('x', f'{folder}/{number}')",
    "hidden files": "open(f'{folder}/.{number}', 'x').close()",
}


@pytest.mark.parametrize("limits", [FILES], indirect=True)
@pytest.mark.parametrize("folder", ["/sandbox", "/home", "/tmp"])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
async def test_more_files_than_allowed_have_their_own_status(arena: Arena, folder: str, make: str) -> None:
    result = await arena.attack(f"import os\nfolder = '{folder}'\nfor number in range(2000):\n    {make}\n1 / 0")
    assert result.status == "inode_limit", result
    assert any("the limit of 1000 files and folders was reached" in note for note in result.notes), result
    # If the engine refuses the files, the session goes on; elsewhere the files already exist, and the sandbox ends.
    assert result.session_state == ("kept" if arena.backend in deviations.FILES_BOUNDED else "fresh"), result
    assert await arena.check("print(6 * 7)", result.session_id if result.session_state == "fresh" else "") == "42\n"


@pytest.mark.parametrize("limits", [FILES], indirect=True)
async def test_a_run_that_makes_too_many_files_and_succeeds_does_not_keep_them(arena: Arena) -> None:
    result = await arena.attack(
        "import contextlib\nfor number in range(2000):\n    with contextlib.suppress(OSError): open(f'{number}', 'x').close()"
    )
    if arena.backend in deviations.FILES_UNSEEN:
        assert (result.status, result.session_state) == ("ok", "kept"), result
    elif arena.backend in deviations.FILES_BOUNDED:
        assert (result.status, result.session_state) == ("ok", "kept"), result
        assert await arena.check("import os\nprint(len(os.listdir()))", result.session_id) == "1000\n"
    else:
        assert (result.status, result.session_state) == ("inode_limit", "fresh"), result


@pytest.mark.parametrize("limits", [FILES], indirect=True)
async def test_as_many_files_as_allowed_are_fine(arena: Arena) -> None:
    result = await arena.attack("for number in range(990): open(f'{number}', 'x').close()")
    assert (result.status, result.session_state) == ("ok", "kept"), result
