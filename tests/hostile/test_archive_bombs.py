"""Attack: archives that unpack to far more than the disk limit. Outcome: the disk limit stops them."""

import pytest

from tests.hostile.conftest import Arena
from tests.hostile.deviations import PODS

pytestmark = pytest.mark.anyio

BOMBS = {
    "zip": """
import zipfile
with zipfile.ZipFile('/tmp/bomb.zip', 'w', zipfile.ZIP_DEFLATED) as bomb, bomb.open('zeros', 'w', force_zip64=True) as zeros:
    for _ in range(64):
        zeros.write(bytes(1 << 20))
zipfile.ZipFile('/tmp/bomb.zip').extractall('out')
""",
    "tar": """
import io, tarfile
info = tarfile.TarInfo('zeros')
info.size = 10 << 30
class Zeros(io.RawIOBase):
    def __init__(self): self.head = info.tobuf()
    def read(self, size=-1):
        head, self.head = self.head, b''
        return head or bytes(size)
tarfile.open(fileobj=Zeros(), mode='r|').extractall('out')
""",
    "gzip": "import gzip, shutil\nwith gzip.open('/tmp/z', 'wb') as f:\n    for _ in range(64): f.write(bytes(1 << 20))\n"
    "shutil.copyfileobj(gzip.open('/tmp/z'), open('out', 'wb'))",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
async def test_a_bomb_unpacks_to_the_size_of_the_disk_at_most(arena: Arena, bomb: str) -> None:
    result = await arena.attack(bomb)
    # Where folders have no size limit, the limit on one file applies.
    assert result.status in ("disk_limit", "error", *(["file_limit"] if arena.backend in PODS else [])), result
    assert "No space left" in result.stderr.text or "File too large" in result.stderr.text
    assert all(artifact.size <= 16 << 20 for artifact in result.artifacts)
