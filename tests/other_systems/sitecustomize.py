"""Makes an interpreter lack what `OTHER_SYSTEM`, a value of `sys.platform`, does not have; see `__init__.py`.

It shows that this package does not need these things there. It does not show that the other system works.
"""

import asyncio  # noqa: F401 - it chooses the parts of the real system, as do the next ones
import builtins
import fcntl
import importlib.abc
import io
import os
import resource
import select
import selectors
import signal
import socket
import subprocess  # noqa: F401
import sys
import sysconfig
import types

sysconfig.get_config_vars()

SYSTEM = os.environ["OTHER_SYSTEM"]

ABSENT = {
    os: "eventfd eventfd_read eventfd_write getxattr listxattr setxattr removexattr memfd_create pidfd_open pipe2 "
    "posix_fadvise sched_getaffinity sched_setaffinity sendfile setns unshare splice copy_file_range getrandom "
    "setresuid setresgid getresuid getresgid O_PATH O_TMPFILE O_DIRECT P_PIDFD SPLICE_F_MOVE SPLICE_F_NONBLOCK "
    "SPLICE_F_MORE",
    select: "epoll EPOLLIN",
    selectors: "EpollSelector",
    signal: "pthread_sigqueue sigtimedwait sigwaitinfo SIGPWR SIGSTKFLT SIGRTMIN SIGRTMAX",
    fcntl: "F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_OFD_SETLK",
    resource: "prlimit RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_RTTIME RLIMIT_SIGPENDING",
    socket: "AF_NETLINK AF_PACKET AF_VSOCK SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED SO_DOMAIN SO_PASSCRED",
}
"""What Linux has in addition to macOS, as far as this package could use it."""

NOT_ON_WINDOWS = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog", "posix", "_posixsubprocess")
"""Modules that Python has on POSIX systems only."""


def lacking(path: object) -> bool:
    """Whether a path is one that only Linux has."""
    return isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(("/proc/", "/sys/"))


class Absent(importlib.abc.MetaPathFinder):
    """Finds none of the modules that do not exist there."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in NOT_ON_WINDOWS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


if SYSTEM == "darwin":
    for module, names in ABSENT.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[assignment, misc]
    really_open, really_open_file = os.open, io.open

    def open_descriptor(path, *arguments, **named):  # type: ignore[no-untyped-def]
        if lacking(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return really_open(path, *arguments, **named)

    def open_file(path, *arguments, **named):  # type: ignore[no-untyped-def]
        if lacking(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return really_open_file(path, *arguments, **named)

    os.open = open_descriptor
    builtins.open = io.open = open_file  # type: ignore[assignment]
    # urllib reads the system's proxies from it.
    proxies = types.ModuleType("_scproxy")
    proxies._get_proxy_settings = dict  # type: ignore[attr-defined]
    proxies._get_proxies = dict  # type: ignore[attr-defined]
    sys.modules["_scproxy"] = proxies
elif SYSTEM == "win32":
    for name in NOT_ON_WINDOWS:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Absent())
    del signal.SIGCHLD

sys.platform = SYSTEM
