"""Folders that code renamed in its copy are renamed in the folder of the person's, with everything in them."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..backends.listing import FOLDER
from ..base.open_folders import OpenFolder
from .beneath import rename_new
from .merging import Pair, parents
from .places import Places


def rename_folders(folder: OpenFolder, base: dict[str, Pair], moves: Mapping[str, str]) -> dict[str, str]:
    """Renames folders as code did, with everything in them, also what code does not see; returns those renamed.

    Leaves the others to be moved file by file, such as those whose new names something else has.
    """
    places, done = Places(Path(folder.path)), dict[str, str]()
    for old, new in moves.items():
        if old not in base or base[old].host != FOLDER or any(above in done for above in parents(old)):
            continue
        with suppress(OSError):
            with places.open(old, make=False) as (at, last), places.open(new, detour=False) as target:
                if not stat.S_ISDIR(os.lstat(last, dir_fd=at).st_mode):
                    continue
                rename_new(at, last, *target)
            done[old] = new
    for name in [*base] if done else ():
        for above in (name, *parents(name)):
            if above in done:
                base[done[above] + name[len(above) :]] = base.pop(name)
                break
    return done
