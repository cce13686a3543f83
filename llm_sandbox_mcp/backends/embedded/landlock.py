"""Landlock rules for everything in a sandbox: even if there were one mount too many, code can use only the paths here.

This is a second layer in addition to the mounts, which allow the same. It also keeps code from changing mounts and from
tracing processes outside, whatever other layers allow. PID 1 of each sandbox enforces these rules before it starts
anything. Kernel ABI: https://docs.kernel.org/userspace-api/landlock.html.
"""

import ctypes
from collections.abc import Iterable

from ..layout import DATA, HOME, WORKDIR

_CREATE = 444
_ASK_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICES = 1 << 6 | 1 << 11
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All access rights to files that the kernel knows since each version of the ABI."""
_SCOPES_SINCE, _SCOPES = 6, 0b11
"""Keeps abstract sockets and signals within the sandbox."""
_FLAGS_SINCE, _LOG_SUBDOMAINS_OFF = 7, 1 << 2
"""Code can restrict itself further; this keeps what its own rules deny out of the machine's audit log."""

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_CHANGE = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE
_ALL = _RIGHTS[5] & ~_MAKE_DEVICES
_PLACES = {
    "/": _READ_DIR,
    **dict.fromkeys(("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"), _READ),
    DATA: _READ,
    "/proc": _CHANGE,
    "/dev": _CHANGE | _IOCTL_DEVICE,
    **dict.fromkeys(("/dev/shm", WORKDIR, HOME, "/tmp"), _ALL),
}


def version() -> int:
    """The Landlock ABI of the running kernel; 0 if it has no Landlock or Landlock is switched off."""
    libc = ctypes.CDLL(None, use_errno=True)
    found: int = libc.syscall(_CREATE, None, 0, _ASK_VERSION)
    return max(0, found)


def rules(abi: int, writable: Iterable[str] = ()) -> str:
    """The rules for PID 1: the handled rights, the flags, and the rights of each path; empty without Landlock.

    `writable` are further folders that code can write to.
    """
    if not abi:
        return ""
    handled = max(rights for since, rights in _RIGHTS.items() if since <= abi)
    # The size of the structure shows the kernel which fields are present: file rights; network rights (none); scopes.
    words = [handled, 0, _SCOPES] if abi >= _SCOPES_SINCE else [handled]
    attributes = b"".join(word.to_bytes(8, "little") for word in words)
    flags = _LOG_SUBDOMAINS_OFF if abi >= _FLAGS_SINCE else 0
    granted = _PLACES | dict.fromkeys(writable, _ALL)
    places = (f"{path}={rights & handled}" for path, rights in granted.items())
    return ",".join((attributes.hex(), str(flags), *places))
