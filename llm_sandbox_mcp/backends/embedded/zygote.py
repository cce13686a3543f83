"""A process that waits in the posture of a sandbox: each new sandbox is a fork of it, with all that it has imported.

It is PID 1 of a bubblewrap of its own, either `python3 -I -S zygote.py` or an interpreter that calls `serve`. Its
descriptor `CONTROL` is a socket to the launcher. Each packet's fields are separated by NUL, and descriptors come along:

    the filter of the sandboxes, an array of struct sock_filter
    M modules...                                                    ->  R, or E reason
    F id disk limits rules shares...
        + control socket, log, socket, entrances of control groups  ->  P id  + its pidfd, or E reason id

Through its other socket, a fork is told `U count` as soon as it has its uid, with as many mounts of a layer, or `E
reason` if it does not get its layer.

A fork closes what is the launcher's and the zygote's, makes namespaces and mounts of its own, gives up all rights, and
is under the filter of sandboxes before it reads the first byte of a session. Nothing of a session ever gets here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

CONTROL = 3
UID = 1000
"""The uid in a sandbox. Outside it is the sandbox's own uid, or the server's if the server has none to assign."""

_PACKET = 1 << 16
_MOST_DESCRIPTORS = 16
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_PIDFD, _CLONE_NEWCGROUP = 0x1000, 0x2000000
_NAMESPACES = 0x20000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
"""CLONE_NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_MOVE_MOUNT, _AT_FDCWD, _MOVE_MOUNT_F_EMPTY_PATH, _MNT_DETACH = 429, -100, 0x4, 0x2
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 0x1, 0x2, 0x4, 0x8, 0x20, 0x1000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 4, 22, 23, 24
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION = 0x20080522
_MADV_COLLAPSE, _LARGE = 25, 1 << 21
_ST_NOEXEC, _ST_NOATIME, _ST_NODIRATIME = 0x8, 0x400, 0x800
"""Flags of mounts that one of another namespace must keep; the same numbers as for mount(2)."""

PLACES = {"/sandbox": "0755", "/home": "0755", "/tmp": "1777"}
"""The folders that code can write to, with their modes. World-readable: the server reads them from outside, and may not
be root there."""
FOLDERS = ("/home/figures", "/home/libraries")
_STEP = "/dev/shm"
"""Where a layer is mounted until its overlay is there."""
TERMINALS = "newinstance,ptmxmode=0666,mode=0620,max=64"
"""Options of a sandbox's own pseudo-terminals, with the most that it can have."""
SHM = 64 << 20
"""Bytes of /dev/shm."""
MASKED = (
    *("kallsyms", "kcore", "interrupts", "cmdline", "config.gz", "keys", "key-users", "sched_debug", "timer_list"),
    *("iomem", "ioports", "modules", "locks", "softirqs"),
)
MASKED_FOLDERS = ("acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi")
"""Devices, disks and interrupts of the machine; anyone may write to files in `pressure` to be woken by the kernel."""


def serve(prepare: Callable[[list[str]], str], changed: Callable[[], str]) -> None:
    """Answers the launcher; returns only in the interpreter of a sandbox, which is a fork of PID 1 of that sandbox.

    `prepare` imports modules. What it returns is the reason why this process must not be forked, or nothing; what
    `changed` returns is the same for each fork.
    """
    control = socket.socket(fileno=CONTROL)
    control.set_inheritable(False)
    os.closerange(CONTROL + 1, 64)
    rules = control.recv(_PACKET)
    _, *modules = control.recv(_PACKET).decode().split("\0")
    own = os.listdir("/proc/self/fd")
    reason = prepare(modules)
    if not reason and len(os.listdir("/proc/self/task")) > 1:
        reason = "it has started threads"
    if not reason and os.listdir("/proc/self/fd") != own:
        reason = "it keeps files open"
    if modules:
        _collapse()
    init = _module("/opt/init.py")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel then collects forks that have ended
    control.send(b"E\0" + reason.encode() if reason else b"R")
    zygote = _Zygote(control, rules, init, changed, _data() if modules else 0)
    try:
        while zygote.answer():
            pass
    except init.Itself:
        return
    os._exit(0)


class _Zygote:
    """The socket, and what each fork gets."""

    def __init__(
        self, control: socket.socket, rules: bytes, init: ModuleType, changed: Callable[[], str], data: int
    ) -> None:
        """`data` are the bytes that forks share, which do not count towards a limit of their own."""
        self._control = control
        self._data = data
        self._changed = changed
        self._filter = rules
        self._init = init
        self._libc = ctypes.CDLL(None, use_errno=True)

    def answer(self) -> bool:
        """Makes one fork; False once the launcher is gone."""
        packet, descriptors, _, _ = socket.recv_fds(self._control, _PACKET, _MOST_DESCRIPTORS)
        if not packet:
            return False
        _, name, *fields = packet.split(b"\0")
        reason, pid = self._changed(), -1
        pidfd = ctypes.c_int(-1)
        if not reason:
            pid = self._fork(pidfd)
            reason = os.strerror(ctypes.get_errno())
        if pid == 0:
            self._become_sandbox(fields, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid < 0:
            self._control.send(b"\0".join((b"E", reason.encode(), name)))
        else:
            socket.send_fds(self._control, [b"P\0" + name], [pidfd.value])
            os.close(pidfd.value)
        return True

    def _fork(self, pidfd: ctypes.c_int) -> int:
        """A raw call, since the C library's own knows neither these flags nor Python's part of a fork."""
        flags = _NAMESPACES | _CLONE_PIDFD | signal.SIGCHLD
        ctypes.pythonapi.PyOS_BeforeFork()
        pid: int = self._libc.syscall(_CLONE[os.uname().machine], flags, None, ctypes.byref(pidfd), None, None)
        if pid:
            ctypes.pythonapi.PyOS_AfterFork_Parent()
        else:
            ctypes.pythonapi.PyOS_AfterFork_Child()
        return pid

    def _become_sandbox(self, fields: list[bytes], descriptors: list[int]) -> None:
        """The rest of a fork's life, as PID 1 of its sandbox."""
        try:
            sandbox, log, mapping, *entrances = descriptors
            null = os.open("/dev/null", os.O_RDWR)
            for target, descriptor in enumerate((null, log, log)):
                os.dup2(descriptor, target)
            self._control.detach()
            disk, limits, rules, *shares = (field.decode() for field in fields)
            os.setsid()
            for entrance in entrances:
                os.write(entrance, b"0")
            layer = self._take_user(mapping)
            self._mount(int(disk), shares, layer)
            os.dup2(sandbox, CONTROL)
            os.closerange(CONTROL + 1, _MOST_DESCRIPTORS * 4)
            control = socket.socket(fileno=CONTROL)
            control.set_inheritable(False)
            self._libc.unshare(_CLONE_NEWCGROUP)
            _raise_loopback()
            self._give_up_rights()
            self._init.serve(control, self._raised(limits), rules)
            os._exit(0)
        except self._init.Itself:
            raise
        except BaseException as error:  # every one: this process must not go on as a second zygote
            os.write(2, f"{error}".encode())
            os._exit(1)

    def _raised(self, limits: str) -> str:
        """The limits of a sandbox, plus the data that it shares, which control groups do not count either."""
        words = (word.partition("=") for word in limits.split(","))
        return ",".join(f"{name}={int(most) + self._data * (name == 'DATA')}" for name, _, most in words)

    def _take_user(self, mapping: int) -> list[int]:
        """Waits until the user namespace has its uid; returns the mounts of the layer, none if it has no layer."""
        with socket.socket(fileno=mapping) as told:
            packet, layer, _, _ = socket.recv_fds(told, _PACKET, len(PLACES))
        if not packet:
            raise OSError("its user namespace got no uid")
        kind, _, rest = packet.decode().partition(" ")
        if kind != "U":
            raise OSError(f"its files cannot be shared: {rest}")
        if len(layer) != int(rest):
            raise OSError("its files cannot be shared: too many descriptors are open")
        os.setresgid(UID, UID, UID)
        os.setresuid(UID, UID, UID)
        self._prctl(_PR_SET_DUMPABLE, 1)  # changing the uid has cleared it
        return layer

    def _mount(self, disk: int, shares: list[str], layer: list[int]) -> None:
        """Covers every folder that is the zygote's own with one of the sandbox's."""
        self._cover("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        for share in shares:
            name, most = share.split("=")
            # Refused in some containers, where sandboxes can then take these resources from each other.
            with contextlib.suppress(PermissionError):
                _write(f"/proc/sys/user/{name}", most)
        self._mask("/proc/sys", "/proc/sys")
        for name in MASKED:
            self._mask("/dev/null", f"/proc/{name}")
        for name in MASKED_FOLDERS:
            self._mask("/sandbox", f"/proc/{name}")  # that of the zygote is empty
        self._cover("devpts", "/dev/pts", "devpts", _MS_NOSUID | _MS_NOEXEC, TERMINALS)
        for place, mode in PLACES.items():
            self._cover("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={disk},mode={mode}")
            if layer:
                self._lay(layer.pop(0), place)
        self._cover("tmpfs", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={SHM},mode=1777")
        for folder in FOLDERS:
            if not os.path.lexists(folder):  # a layer has what its code has left there
                os.mkdir(folder, 0o755)

    def _lay(self, mount: int, place: str) -> None:
        """Shows the files of a layer at a place, where what changes is written to what is mounted there."""
        for name in ("upper", "work"):
            os.mkdir(f"{place}/{name}")
        os.chmod(f"{place}/upper", os.stat(place).st_mode & 0o7777)  # the place gets its mode
        # The layer has no place of its own: for a moment, it is at one that is covered later. Only mounts that are in
        # its own namespace can be named by a process that has no other rights.
        empty_path = ctypes.c_char_p(b"")
        if self._libc.syscall(_MOVE_MOUNT, mount, empty_path, _AT_FDCWD, _STEP.encode(), _MOVE_MOUNT_F_EMPTY_PATH):
            raise OSError(f"cannot mount the layer of {place}: {os.strerror(ctypes.get_errno())}")
        options = f"lowerdir={_STEP},upperdir={place}/upper,workdir={place}/work,userxattr,xino=on"
        self._cover("overlay", place, "overlay", _MS_NOSUID | _MS_NODEV, options)
        if self._libc.umount2(_STEP.encode(), _MNT_DETACH):
            raise OSError(f"cannot unmount the layer of {place}: {os.strerror(ctypes.get_errno())}")

    def _mask(self, source: str, place: str) -> None:
        if os.path.lexists(place):
            kept = os.statvfs(source).f_flag & (_ST_NOEXEC | _ST_NOATIME | _ST_NODIRATIME)
            self._cover(source, place, None, _MS_BIND)
            only = _MS_RDONLY | _MS_NOSUID | _MS_NODEV
            self._cover("", place, None, _MS_BIND | _MS_REMOUNT | only | kept)

    def _cover(self, source: str, place: str, kind: str | None, flags: int, options: str = "") -> None:
        named = kind.encode() if kind is not None else None
        if self._libc.mount(source.encode(), place.encode(), named, flags, options.encode() or None):
            raise OSError(f"cannot mount {place}: {os.strerror(ctypes.get_errno())}")

    def _give_up_rights(self) -> None:
        capability = 0
        while self._libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) >= 0:
            self._prctl(_PR_CAPBSET_DROP, capability)
            capability += 1
        if self._libc.capset(struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)):
            raise OSError(f"cannot give up capabilities: {os.strerror(ctypes.get_errno())}")
        code = ctypes.create_string_buffer(self._filter, len(self._filter))
        program = struct.pack("HxxxxxxP", len(self._filter) // 8, ctypes.addressof(code))
        self._prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program)

    def _prctl(self, option: int, value: int, structure: bytes | int = 0) -> None:
        if self._libc.prctl(option, value, structure, 0, 0):
            raise OSError(f"cannot set property {option}: {os.strerror(ctypes.get_errno())}")


def _collapse() -> None:
    """Puts memory into large pages, as far as the kernel can: to fork and to end a process then takes half as long."""
    libc = ctypes.CDLL(None)
    with open("/proc/self/maps") as file:
        own = [line.split() for line in file]
    for place, rights, *_, inode in (words[:5] for words in own):
        if rights == "rw-p" and inode == "0":
            first, last = (int(address, 16) for address in place.split("-"))
            first, last = -(-first // _LARGE) * _LARGE, last // _LARGE * _LARGE
            if first < last:
                libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _MADV_COLLAPSE)


def _data() -> int:
    """The bytes that the limit DATA counts in this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")


def _raise_loopback() -> None:
    from fcntl import ioctl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _module(path: str) -> ModuleType:
    """A module from a file, without its folder among those that are searched."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(os.path.basename(path).removesuffix(".py"), path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    serve(lambda modules: "", lambda: "")
