"""The system calls that code in a sandbox may make, as a BPF program for seccomp.

This is a deny list. Namespaces, capabilities and control groups confine the code; the filter removes the parts of the
kernel that ordinary programs do not need and that escapes use (mounts, namespaces, other processes' memory, keys, BPF,
rare socket families, modules loaded on demand). Calls that are newer than this list are refused as unknown.
"""

from __future__ import annotations

import errno
import struct

# Kernel ABI, https://docs.kernel.org/userspace-api/seccomp_filter.html: AUDIT_ARCH_* of linux/audit.h, and the offsets
# in struct seccomp_data. Both machines are little-endian, so the low half of an argument comes first.
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PRCTL = {"x86_64": 157, "aarch64": 167}
"""The number of `prctl`, the call by which a process sets a filter, on each supported machine."""

_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16

_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _AND, _RETURN, _GOTO = 0x20, 0x54, 0x06, 0x05
_EQUAL, _GREATER, _ANY_BIT = 0x15, 0x25, 0x45

_NEWEST = 469
"""The newest call in these lists (file_setattr, Linux 6.17). Later calls return ENOSYS, which programs that probe for
them expect.

On x86_64 the same comparison refuses the whole x32 table: its numbers have bit 30 set, and before Linux 5.4 the numbers
512-547 reach its handlers without that bit."""

# Each call: its number on x86_64 and on aarch64; None if the machine never had it. From 424 on, both are the same.
_Numbers = dict[str, tuple[int | None, int | None]]

UNKNOWN: _Numbers = {
    # C libraries fall back to clone. A filter can read the flags of clone, but clone3 takes them behind a pointer.
    "clone3": (435, 435),
    # Operations that are submitted to a ring bypass this filter.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Callers fall back to /proc/self/mountinfo.
    "statmount": (457, 457),
    "listmount": (458, 458),
    # The machine has a limited number of contexts for all users together; programs can use threads instead.
    "io_setup": (206, 0),
    # 16-bit segments: used only by emulators, and the source of many kernel bugs.
    "modify_ldt": (154, None),
}
"""Calls that return ENOSYS, as on a kernel without them: programs probe for them and have an alternative."""

DENIED: _Numbers = {
    # The file system tree.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    # Access to files by inode number, also outside of the directory tree that the sandbox sees.
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    # Namespaces: a new user namespace grants the capabilities that most kernel escapes start from.
    "unshare": (272, 97),
    "setns": (308, 268),
    # Other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # Keyrings have no namespace: they belong to a uid.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Kernel interfaces that exploits use.
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    # Pages that neither the kernel nor a memory dump can read.
    "memfd_secret": (447, 447),
    # The machine.
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "uselib": (134, None),
    # Clocks have no namespace.
    "settimeofday": (164, 170),
    "adjtimex": (159, 171),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
}
"""Calls that return EPERM."""

INSPECTED: _Numbers = {
    "clone": (56, 220),
    "ioctl": (16, 29),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "personality": (135, 92),
    "prlimit64": (302, 261),
    "sched_setattr": (314, 274),
    "sched_setscheduler": (144, 119),
    "setpriority": (141, 140),
    "setsockopt": (54, 208),
    "socket": (41, 198),
    "socketpair": (53, 199),
}
"""Calls that are allowed or refused depending on their arguments."""

# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. CLONE_NEWTIME (0x80) is left out: in clone that bit is part
# of the exit signal; only unshare and clone3 take it as a flag.
NEW_NAMESPACES = 0x7E020000
# The first two, TIOCSTI and TIOCLINUX, put keystrokes into a terminal that the sandbox shares. The third, TIOCSETD,
# loads kernel modules (line disciplines). The others load the modules bridge and 8021q for any caller that has a
# socket, before the kernel checks its rights (net/socket.c): SIOCGIFBR, SIOCSIFBR, SIOCGIFVLAN, SIOCSIFVLAN, and
# SIOCBRADDBR to SIOCBRDELIF.
REFUSED_REQUESTS = (0x5412, 0x541C, 0x5423, 0x8940, 0x8941, 0x8982, 0x8983, 0x89A0, 0x89A1, 0x89A2, 0x89A3)
FILE_TYPE, DEVICES = 0o170000, (0o020000, 0o060000)
PRIO_PROCESS, PRIO_PGRP, PRIO_USER = 0, 1, 2
FIRST_PROCESS = 1
"""PID 1 of the sandbox, which may run as the same user as the code. If the code lowers its priority so that it waits
for all other processes, it does not end in time when it is killed."""
AF_UNIX, INTERNET = 1, (2, 10)
SOCK_TYPE_MASK, SOCK_STREAM, SOCK_DGRAM = 0xF, 1, 2
ANY_PROTOCOL, TCP, UDP = 0, 6, 17
# Hands a connection over to a kernel module (tls) that is loaded on demand.
TCP_ULP = 31


def program(machine: str) -> bytes:
    """The filter for `machine` (a value of `os.uname().machine`): an array of struct sock_filter, 8 bytes each.

    ValueError for a machine that has no table here.
    """
    if machine not in _AUDIT_ARCH:
        raise ValueError(f"there is no system call filter for {machine!r}, only for {', '.join(_AUDIT_ARCH)}")
    column = list(_AUDIT_ARCH).index(machine)
    code = _Assembler()
    code.load(_ARCH_AT)
    code.test(_EQUAL, _AUDIT_ARCH[machine], otherwise="kill")
    code.load(_NUMBER_AT)
    code.test(_GREATER, _NEWEST, then="enosys")
    for numbers, answer in ((UNKNOWN, "enosys"), (DENIED, "eperm")):
        for pair in numbers.values():
            if (number := pair[column]) is not None:
                code.test(_EQUAL, number, then=answer)
    for name, pair in INSPECTED.items():
        if (number := pair[column]) is not None:
            code.test(_EQUAL, number, then=name)
    code.goto("allow")
    _inspect(code)
    for label, action in (
        ("allow", _ALLOW),
        ("eperm", _ERRNO | errno.EPERM),
        ("enosys", _ERRNO | errno.ENOSYS),
        ("no family", _ERRNO | errno.EAFNOSUPPORT),
        ("no protocol", _ERRNO | errno.EPROTONOSUPPORT),
        ("kill", _KILL_PROCESS),
    ):
        code.label(label)
        code.answer(action)
    return code.assemble()


def _inspect(code: _Assembler) -> None:
    """One block for each call of INSPECTED.

    Only the low halves of arguments are compared. The kernel takes each of these arguments as a 32-bit int or narrower,
    and clone, whose flags are an unsigned long, uses only their low 32 bits (kernel/fork.c). If the high half were
    compared as well, a caller could get past the filter by setting a bit there that the kernel then drops
    (CVE-2019-10063). The flags are clone's first argument on both machines, which differ only in the order of its last
    two arguments.
    """
    code.label("clone")
    code.load_argument(0)
    code.test(_ANY_BIT, NEW_NAMESPACES, then="eperm", otherwise="allow")

    code.label("ioctl")
    code.load_argument(1)
    for request in REFUSED_REQUESTS:
        code.test(_EQUAL, request, then="eperm")
    code.goto("allow")

    code.label("mknod")
    code.load_argument(1)
    code.goto("file type")
    code.label("mknodat")
    code.load_argument(2)
    code.label("file type")
    code.mask(FILE_TYPE)
    for device in DEVICES:
        code.test(_EQUAL, device, then="eperm")
    code.goto("allow")

    # 0 is standard Linux, and all ones only queries. The other values switch address randomisation off or emulate other
    # systems.
    code.label("personality")
    code.load_argument(0)
    code.test(_EQUAL, 0, then="allow")
    code.test(_EQUAL, 0xFFFFFFFF, then="allow", otherwise="eperm")

    # Only a process's own limits: processes that the server starts later inherit the limits of PID 1.
    code.label("prlimit64")
    code.load_argument(0)
    code.test(_EQUAL, 0, then="allow", otherwise="eperm")

    # If the first process waits for all others, it ends too late when it is killed. PRIO_USER would include it as well.
    code.label("setpriority")
    code.load_argument(0)
    code.test(_EQUAL, PRIO_USER, then="eperm")
    code.load_argument(1)
    code.test(_EQUAL, FIRST_PROCESS, then="eperm", otherwise="allow")
    code.label("sched_setattr")
    code.label("sched_setscheduler")
    code.load_argument(0)
    code.test(_EQUAL, FIRST_PROCESS, then="eperm", otherwise="allow")

    code.label("setsockopt")
    code.load_argument(1)
    code.test(_EQUAL, TCP, otherwise="allow")
    code.load_argument(2)
    code.test(_EQUAL, TCP_ULP, then="eperm", otherwise="allow")

    # socketpair creates its sockets, and so loads the family's module, before it finds that the family has no pairs. So
    # it is restricted in the same way as socket.
    code.label("socket")
    code.label("socketpair")
    code.load_argument(0)
    code.test(_EQUAL, AF_UNIX, then="allow")
    for family in INTERNET:
        code.test(_EQUAL, family, then="internet")
    code.goto("no family")
    # TCP and UDP only: SCTP, DCCP, MPTCP, L2TP and ping sockets are modules and attack surface. Both type and protocol
    # are checked, because protocol 0 with SOCK_SEQPACKET is SCTP. Go's runtime tries MPTCP and expects EPROTONOSUPPORT.
    code.label("internet")
    code.load_argument(2)
    code.test(_EQUAL, ANY_PROTOCOL, then="type")
    code.test(_EQUAL, TCP, then="type")
    code.test(_EQUAL, UDP, otherwise="no protocol")
    code.label("type")
    code.load_argument(1)
    code.mask(SOCK_TYPE_MASK)
    code.test(_EQUAL, SOCK_STREAM, then="allow")
    code.test(_EQUAL, SOCK_DGRAM, then="allow", otherwise="eperm")


class _Assembler:
    """Instructions with named jump targets; a target of None is the next instruction."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, str | None, str | None]] = []
        self._labels: dict[str, int] = {}

    def label(self, name: str) -> None:
        self._labels[name] = len(self._code)

    def load(self, offset: int) -> None:
        self._code.append((_LOAD, offset, None, None))

    def load_argument(self, index: int) -> None:
        self.load(_ARGUMENTS_AT + 8 * index)

    def mask(self, bits: int) -> None:
        self._code.append((_AND, bits, None, None))

    def test(self, comparison: int, value: int, then: str | None = None, otherwise: str | None = None) -> None:
        self._code.append((comparison, value, then, otherwise))

    def goto(self, label: str) -> None:
        self._code.append((_GOTO, 0, label, None))

    def answer(self, action: int) -> None:
        self._code.append((_RETURN, action, None, None))

    def assemble(self) -> bytes:
        """BPF jumps only forward, and a test at most 255 instructions; `struct` raises an error for other distances."""
        assembled = bytearray()
        for position, (operation, value, then, otherwise) in enumerate(self._code):
            if operation == _GOTO:
                assembled += struct.pack("<HBBI", operation, 0, 0, self._distance(position, then))
            else:
                distances = self._distance(position, then), self._distance(position, otherwise)
                assembled += struct.pack("<HBBI", operation, *distances, value)
        return bytes(assembled)

    def _distance(self, position: int, label: str | None) -> int:
        return 0 if label is None else self._labels[label] - position - 1
