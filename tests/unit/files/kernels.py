"""The calls of one thread: refused, as by file systems that are not at hand, or with something done just before them."""

import ctypes
import errno
import fcntl
import os
import platform
import select
import struct
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
_LINKAT = {"x86_64": 265, "aarch64": 37}
_OPENAT = {"x86_64": 257, "aarch64": 56}
_TMPFILE = 0o20000000
_UNLINKAT = {"x86_64": 263, "aarch64": 35}
_LISTXATTR = {"x86_64": 194, "aarch64": 11}
_FLISTXATTR = {"x86_64": 196, "aarch64": 13}
_RENAMEAT = {"x86_64": 264, "aarch64": 38}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_NO_NEW_PRIVS, _FILTER, _LISTENER = 38, 1, 8
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_ERROR, _NOTIFY, _ALLOW = 0x00050000, 0x7FC00000, 0x7FFF0000

CALLS = {
    "exchange": _RENAMEAT2,
    "rename": _RENAMEAT,
    "unlink": _UNLINKAT,
    "link": _LINKAT,
    "open": _OPENAT,
    "listxattr": _LISTXATTR,
    "flistxattr": _FLISTXATTR,
}

KERNELS = {
    "usual": (),
    "without files without a name": ("tmpfile",),
    "without names in addition": ("tmpfile", "link"),
    "without exchanging": ("renameat2",),
    "without all of it": ("tmpfile", "link", "renameat2"),
}
"""What each refuses."""


def on(kernel: str, act: Callable[[], T]) -> T:
    """Calls a function in a thread whose kernel is such, and returns or raises what it does."""
    return _in_thread(lambda: _refuse(KERNELS[kernel]) if KERNELS[kernel] else None, act)


def denied(calls: str, act: Callable[[], T], reason: int = errno.EACCES) -> T:
    """Calls a function in a thread that may not make such calls."""
    filters = b"".join(_when(CALLS[call], _ERROR | reason) for call in calls.split())
    return _in_thread(lambda: _install(filters), act)


def before(calls: str, person: Sequence[Callable[[], object]], act: Callable[[], T]) -> T:
    """Calls a function in a thread, and the others, one by one, each right before it makes the next of such calls."""
    filters = b"".join(_when(CALLS[call], _NOTIFY) for call in calls.split())
    listener: list[int] = []
    installed = threading.Event()
    left = [*person]

    def install() -> None:
        try:
            listener.append(_install(filters, _LISTENER))
        finally:
            installed.set()

    def attend() -> None:
        installed.wait()
        poll = select.poll()
        for each in listener:
            poll.register(each, select.POLLIN)
        while listener and poll.poll()[0][1] & select.POLLIN:
            notice = bytearray(80)
            fcntl.ioctl(listener[0], _RECEIVE, notice)
            if left:
                left.pop(0)()
            fcntl.ioctl(listener[0], _SEND, notice[:8] + struct.pack("<qiI", 0, 0, _CONTINUE))

    attendant = threading.Thread(target=attend)
    attendant.start()
    try:
        return _in_thread(install, act)
    finally:
        attendant.join()
        for each in listener:
            os.close(each)
        assert not (listener and left), f"so many calls were not made: {len(left)}"


def _in_thread(prepare: Callable[[], object], act: Callable[[], T]) -> T:
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            prepare()
            done.append(act())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


def _refuse(calls: Sequence[str]) -> None:
    code = b""
    if "renameat2" in calls:
        code += _when(_RENAMEAT2, _ERROR | errno.EINVAL)
    if "link" in calls:
        code += _when(_LINKAT, _ERROR | errno.EPERM)
    if "tmpfile" in calls:
        # The flags are the third argument.
        code += _step(0x15, 0, 3, _number(_OPENAT)) + _step(0x20, 0, 0, 32)
        code += _step(0x45, 0, 1, _TMPFILE) + _step(0x06, 0, 0, _ERROR | errno.EOPNOTSUPP)
    _install(code)


def _install(code: bytes, flags: int = 0) -> int:
    """Sets a filter for the calls of this thread until it ends."""
    code = _step(0x20, 0, 0, 0) + code + _step(0x06, 0, 0, _ALLOW)
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(kept))
    c = ctypes.CDLL(None, use_errno=True)
    c.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    result = int(c.syscall(_number(_SECCOMP), _FILTER, flags, program))
    if result < 0:
        pytest.skip(f"this kernel does not let a test filter calls: {os.strerror(ctypes.get_errno())}")
    return result


def _number(call: dict[str, int]) -> int:
    if platform.machine() not in call:
        pytest.skip(f"the numbers of calls on {platform.machine()} are not known")
    return call[platform.machine()]


def _when(call: dict[str, int], answer: int) -> bytes:
    return _step(0x15, 0, 1, _number(call)) + _step(0x06, 0, 0, answer)


def _step(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)
