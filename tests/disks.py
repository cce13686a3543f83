"""File systems with little room, in the place of a folder, and how they are filled."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PART = bytes(1 << 14)


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A disk of a size, such as "4m", mounted at a folder; what others mount below it goes with it."""
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root can mount a small file system")
    place.mkdir(exist_ok=True)
    subprocess.run([mount, "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        # An engine's processes may look after its containers for some seconds more.
        subprocess.run(["umount", "--recursive", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Leaves no room; gives the file that takes it all."""
    path = disk / "filler"
    with pytest.raises(OSError, match="No space left"), path.open("wb", buffering=0) as file:  # noqa: PT012
        while True:
            file.write(_PART)
    return path
