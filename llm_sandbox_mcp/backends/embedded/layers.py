"""The files of sandboxes that have ended, as mounts that others start with: what the mapper's process does with them.

Only the mapper has rights over the mounts of all forks. It keeps copies of a fork's mounts at a place that only it can
see, which outlive the fork. A later fork gets copies of these: read-only, and with its own uid as the files' owner.
"""

from __future__ import annotations

import contextlib
import errno
import os

from .. import libc
from .zygote import PLACES

_KEPT = "/tmp"
"""Where the mounts are kept, each layer's in a folder with its id. Every system has this folder, and nothing that is
in it is of use to this process."""
_FOR_FORKS = libc.MOUNT_ATTR_RDONLY | libc.MOUNT_ATTR_NOSUID | libc.MOUNT_ATTR_NODEV


class Layers:
    """What is kept, by the ids of layers. Methods raise OSError."""

    def __init__(self) -> None:
        self._own = -1
        """A descriptor of the mount namespace of this process, once it has its own."""
        self._frozen: dict[str, bool] = {}
        """What is kept, and whether forks can have it."""

    def keep(self, layer: str, mounts: int) -> None:
        """Keeps the folders of the fork with this mount namespace."""
        if self._own < 0:
            self._own = _own_mounts()
        self._frozen[layer] = False
        copies = list[int]()
        try:
            self._copy(mounts, copies)
            for place, copy in zip(PLACES, copies, strict=True):
                os.makedirs(_kept(layer, place))
                libc.attach_mount(copy, _kept(layer, place))
        finally:
            _close(copies)

    def freeze(self, layer: str) -> None:
        """Makes the files read-only for everybody, from when on forks can have them; `EBUSY` if somebody could write.

        To be called when all processes of the fork have ended: files that change below an overlay break it.
        """
        if layer not in self._frozen:
            raise _gone()
        for place in PLACES:
            libc.make_read_only(_kept(layer, place))
        self._frozen[layer] = True

    def forget(self, layer: str) -> bool:
        """From now on, no fork can have a layer. Returns whether there is something to remove."""
        return self._frozen.pop(layer, None) is not None

    def remove(self, layer: str) -> None:
        """Removes what is kept of a layer that was forgotten before; takes long if nobody else has these files.

        If keeping it had failed halfway, there are folders without mounts, and some are missing.
        """
        for name in os.listdir(_kept(layer)):
            folder = _kept(layer, f"/{name}")
            with contextlib.suppress(OSError):  # of a mount that stays, the folder cannot be removed
                libc.unmount(folder)
            os.rmdir(folder)
        os.rmdir(_kept(layer))

    def of_fork(self, layer: str, users: int = -1) -> list[int]:
        """Mounts of a layer for a fork, which the caller closes; `users` is the fork's user namespace, if it has
        another uid than the one that made the files."""
        # Looked up here: where a mount is missing, there could be an empty folder of this process.
        if not self._frozen.get(layer):
            raise _gone()
        copies = list[int]()
        try:
            for place in PLACES:
                copies.append(libc.clone_mount(_kept(layer, place)))
                if users >= 0:
                    libc.change_mount(copies[-1], _FOR_FORKS | libc.MOUNT_ATTR_IDMAP, users)
                else:
                    libc.change_mount(copies[-1], _FOR_FORKS)
        except OSError:
            _close(copies)
            raise
        return copies

    def _copy(self, mounts: int, copies: list[int]) -> None:
        """Enters the mount namespace of a fork, where it does no more than this: code has made all that is below."""
        libc.setns(mounts, libc.CLONE_NEWNS)
        try:
            for place in PLACES:
                copies.append(libc.clone_mount(place))
        finally:
            self._return()

    def _return(self) -> None:
        try:
            libc.setns(self._own, libc.CLONE_NEWNS)
        except OSError as error:  # no OSError, of which the caller would only tell: this process must not go on there
            raise RuntimeError("the mapper cannot leave the mounts of a sandbox") from error


def _own_mounts() -> int:
    """Gives this process its own mounts.

    They follow those of the launcher, as in any other user namespace: nothing that is unmounted there stays busy.
    """
    libc.unshare(libc.CLONE_NEWNS)
    libc.mount("tmpfs", _KEPT, "tmpfs", libc.MS_NOSUID, "size=1m,mode=0700")
    return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def _gone() -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "they are not kept any more")


def _kept(layer: str, place: str = "") -> str:
    return f"{_KEPT}/{layer}{place}"


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
