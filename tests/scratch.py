"""A folder for temporary files that is removed together with its contents, and the folder of servers in memory."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llm_sandbox_mcp.host.folders import host_folders

_IN_MEMORY = "/dev/shm"
_BYTES = 4 * 2**30
"""Bytes that must be free there: the contents of sandbox disks also need this space."""

_OWN_RUN = """
if [ "$(stat -f -c %T /run)" != tmpfs ]; then
    mkdir -p "$1" && mount -t tmpfs -o mode=755 tmpfs "$1"
fi
shift
exec "$@"
"""
"""Run as root, in a separate mount namespace."""


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


def with_run_in_memory() -> Sequence[str]:
    """The start of a command line that runs the rest with the default folder of root's servers in memory; or nothing.

    It is below /run, which is in memory on most machines. On a disk each of the 345 files that a server makes there takes
    up to a millisecond, since the files of the servers before it were deleted seconds ago. Only what the command starts
    sees this folder: no engine that runs already can mount from it.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return ()
    separate = ("unshare", "--mount")
    possible = subprocess.run([*separate, "true"], capture_output=True, check=False).returncode == 0
    return (*separate, "sh", "-c", _OWN_RUN, "sh", str(host_folders().runtime)) if possible else ()
