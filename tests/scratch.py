"""A folder for temporary files that is removed together with its contents."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_IN_MEMORY = "/dev/shm"
_BYTES = 4 * 2**30
"""Bytes that must be free there: the contents of sandbox disks also need this space."""


@contextmanager
def scratch() -> Iterator[str]:
    """Makes this process, and those it starts, use a separate folder for temporary files; removes it at the end.

    The folder is in memory if there is enough space and programs there can be run: tests make and delete so many files
    that some disks need milliseconds to find space for the next file.
    """
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    # The name is short: these folders are nested, and the path of a socket in them has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="t-", dir=_in_memory(), ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # sandboxes run as other users
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        try:
            yield folder
        finally:
            variable, tempfile.tempdir = before
            os.environ.pop("TMPDIR")
            if variable is not None:
                os.environ["TMPDIR"] = variable


def _in_memory() -> str | None:
    if "TMPDIR" in os.environ or not os.access(_IN_MEMORY, os.W_OK):
        return None
    there = os.statvfs(_IN_MEMORY)
    roomy = there.f_bavail * there.f_frsize >= _BYTES and not there.f_flag & os.ST_NOEXEC
    return _IN_MEMORY if roomy else None
