"""Landlock for everything in a sandbox: even a mount too many would give code nothing but the places named here.

A second layer beside the mounts, which say the same. It also keeps code from every change of mounts and from tracing
processes outside, whatever other layers allow. What is said here is put into force by PID 1 of each sandbox, before it
starts anything. Kernel ABI: https://docs.kernel.org/userspace-api/landlock.html.
"""

import ctypes

from ..layout import HOME, WORKDIR

_CREATE = 444
_ASK_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICES = 1 << 6 | 1 << 11
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All that can be done with files, by the version of the ABI that it is known since."""
_SCOPES_SINCE, _SCOPES = 6, 0b11
"""Abstract sockets and signals stay within."""
_FLAGS_SINCE, _LOG_NOTHING_OF_THEIRS = 7, 1 << 2
"""Code can take more from itself; the machine's audit log would say so each time that it then tries."""

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_CHANGE = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE
_ALL = _RIGHTS[5] & ~_MAKE_DEVICES
_PLACES = {
    "/": _READ_DIR,
    **dict.fromkeys(("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"), _READ),
    "/proc": _CHANGE,
    "/dev": _CHANGE | _IOCTL_DEVICE,
    **dict.fromkeys(("/dev/shm", WORKDIR, HOME, "/tmp"), _ALL),
}


def version() -> int:
    """The ABI of the running kernel; 0 where it has no Landlock, or has it switched off."""
    libc = ctypes.CDLL(None, use_errno=True)
    found: int = libc.syscall(_CREATE, None, 0, _ASK_VERSION)
    return max(0, found)


def rules(abi: int) -> str:
    """What PID 1 is told: what is handled, with which flags, and what may be done where; empty without Landlock."""
    if not abi:
        return ""
    handled = max(rights for since, rights in _RIGHTS.items() if since <= abi)
    # The size tells the kernel how much of the structure is meant: files; networks, of which nothing; scopes.
    words = [handled, 0, _SCOPES] if abi >= _SCOPES_SINCE else [handled]
    attributes = b"".join(word.to_bytes(8, "little") for word in words)
    flags = _LOG_NOTHING_OF_THEIRS if abi >= _FLAGS_SINCE else 0
    places = (f"{path}={rights & handled}" for path, rights in _PLACES.items())
    return ",".join((attributes.hex(), str(flags), *places))
