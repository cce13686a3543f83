"""Attack: searching every file for secrets of the host. Outcome: there are none, and no folder of the host is
visible."""

import json

import pytest

from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

WALK = """
import json, os, stat
found, files = [], 0
for folder, folders, names in os.walk('/'):
    if folder == '/':
        # What processes show has cases of its own; the system's programs are those of everyone.
        folders[:] = [name for name in folders if name not in ('proc', 'sys', 'usr')]
    for name in [*folders, *names]:
        path = os.path.join(folder, name)
        if any(part in path for part in SECRET):
            found.append(path)
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, 'rb') as file:
                    files += 1
                    if MARK in file.read(1 << 20):
                        found.append(path)
        except OSError:
            pass
print(json.dumps([files, found]))
"""


async def test_no_file_that_can_be_read_is_a_secret_of_the_host(arena: Arena) -> None:
    # In two halves, so that the search does not find its own code.
    mark = "MARK = b'canary' + b'-'\n"
    secret = f"SECRET = {[arena.canaries.private.parent.name, arena.canaries.public.parent.name, '.ssh']!r}\n"
    files, found = json.loads(await arena.check(mark + secret + WALK, timeout=20))
    assert files > 10
    assert found == []
