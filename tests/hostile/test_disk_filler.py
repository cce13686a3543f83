"""Attack: writing endless files. Outcome: `disk_limit`, or an error inside the sandbox, and nothing on the host's
disk."""

import pytest

from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio


@pytest.mark.in_turns
@pytest.mark.parametrize("folder", ["/sandbox", "/home", "/tmp"])
@pytest.mark.parametrize(
    "write",
    [
        "    with open(f'{folder}/one', 'ab') as file:\n        file.write(b'x' * (1 << 20))",
        "    open(f'{folder}/{number}', 'wb').write(b'x' * 10_000)",
    ],
    ids=["one file", "many files"],
)
async def test_a_disk_filler_meets_the_limit(arena: Arena, folder: str, write: str) -> None:
    result = await arena.attack(f"import itertools\nfolder = '{folder}'\nfor number in itertools.count():\n{write}")
    assert result.status == "disk_limit", result
    assert any("the disk limit of 16MiB was reached" in note for note in result.notes)
    assert result.session_state == "kept"
    await arena.check(
        "import os, shutil\n"
        "for name in os.listdir(folder):\n"
        "    path = os.path.join(folder, name)\n"
        "    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)",
        result.session_id,
    )
    assert await arena.check("print(open('after', 'w').write('fits'))", result.session_id) == "4\n"


async def test_a_filler_that_stops_at_the_limit_succeeds(arena: Arena) -> None:
    result = await arena.attack("""
try:
    with open('file', 'wb') as file:
        while True:
            file.write(b'x' * (1 << 20))
except OSError as error:
    print(error.strerror)
""")
    assert result.status == "ok"
    assert result.stdout.text in ("No space left on device\n", "File too large\n")


@pytest.mark.usefixtures("control_groups")  # only they limit what the kernel itself needs for files
@pytest.mark.parametrize(
    "make", ["open(str(number), 'x').close()", "os.mkdir(str(number))", "os.symlink('x', str(number))"]
)
async def test_empty_files_reach_a_limit_too(arena: Arena, make: str) -> None:
    result = await arena.attack(f"import os, itertools\nfor number in itertools.count():\n    {make}", timeout=20)
    assert result.status in ("inode_limit", "disk_limit", "out_of_memory"), result


@pytest.mark.parametrize("size", [1 << 30, 1 << 40, (1 << 63) - 1])
async def test_a_file_larger_than_the_disk_cannot_be_made_even_if_it_is_sparse(arena: Arena, size: int) -> None:
    result = await arena.attack(f"open('sparse', 'wb').truncate({size})")
    assert result.status == "error"
    assert "File too large" in result.stderr.text


async def test_shared_memory_has_its_own_size(arena: Arena) -> None:
    result = await arena.attack("""
with open('/dev/shm/file', 'wb') as file, open('/dev/shm/other', 'wb') as other:
    while True:
        file.write(b'x' * (1 << 20)) if file.tell() < 15 << 20 else other.write(b'x' * (1 << 20))
""")
    assert result.status in ("error", "disk_limit"), result
    assert "No space left" in result.stderr.text or "File too large" in result.stderr.text
