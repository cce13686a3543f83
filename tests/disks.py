"""Small file systems that are mounted over a folder, and a function that fills them."""

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
    """Mounts a disk of a size, such as "4m", at a folder; unmounts it and everything mounted below it at the end."""
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root can mount a small file system")
    place.mkdir(exist_ok=True)
    subprocess.run([mount, "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        # Lazily: processes of an engine may use the disk for a few more seconds, while they clean up containers.
        subprocess.run(["umount", "--recursive", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Fills the disk completely; returns the file that takes up the space."""
    path = disk / "filler"
    with pytest.raises(OSError, match="No space left"), path.open("wb", buffering=0) as file:  # noqa: PT012
        while True:
            file.write(_PART)
    return path
