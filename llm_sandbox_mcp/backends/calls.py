"""The system calls that code in a sandbox may make: what `bpf.py` and `containers/seccomp.py` write out for the kernel.

An allow list. Namespaces, capabilities and control groups confine the code; the list leaves out the parts of the kernel
that ordinary programs do not need and that escapes use (mounts, namespaces, other processes' memory, keys, BPF, rare
socket families, modules loaded on demand).
"""

from collections.abc import Mapping
from errno import EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT
from typing import NamedTuple

MACHINES = ("x86_64", "aarch64")
"""Values of `os.uname().machine`."""
LOW_HALF = 0xFFFFFFFF
"""The bits of arguments that rules compare. The kernel takes each of these arguments as a 32-bit int or narrower, and
clone, whose flags are an unsigned long, uses only their low 32 bits (kernel/fork.c). If the high half were compared as
well, a caller could get past a rule by setting a bit there that the kernel then drops (CVE-2019-10063)."""


class Condition(NamedTuple):
    """Whether an argument, with a mask applied, has one of some values, or none of them."""

    argument: int
    values: tuple[int, ...]
    mask: int = LOW_HALF
    negated: bool = False
    error: int = EPERM
    """What the call returns if no case of its rule holds, and in the last of them this condition is the first that
    does not. Profiles of containers return EPERM for all."""


Rule = tuple[tuple[Condition, ...], ...]
"""The cases in which a call is allowed; in each, all conditions hold."""
Verdict = Rule | int
"""When a call is allowed, or the error that it always returns."""


class Call(NamedTuple):
    """A system call."""

    numbers: Mapping[str, int]
    """By machine; one that never had the call is missing."""
    verdict: Verdict


def _when(*conditions: Condition) -> Rule:
    return (conditions,)


def _is(argument: int, *values: int, mask: int = LOW_HALF, error: int = EPERM) -> Condition:
    return Condition(argument, values, mask, error=error)


def _is_not(argument: int, *values: int, mask: int = LOW_HALF) -> Condition:
    return Condition(argument, values, mask, negated=True)


ALWAYS = _when()

# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. CLONE_NEWTIME (0x80) is left out: in clone that bit is part
# of the exit signal; only unshare and clone3 take it as a flag.
_NEW_NAMESPACES = 0x7E020000
# The first two, TIOCSTI and TIOCLINUX, put keystrokes into a terminal that the sandbox shares. The third, TIOCSETD,
# loads kernel modules (line disciplines). The others load the modules bridge and 8021q for any caller that has a
# socket, before the kernel checks its rights (net/socket.c): SIOCGIFBR, SIOCSIFBR, SIOCGIFVLAN, SIOCSIFVLAN, and
# SIOCBRADDBR to SIOCBRDELIF.
_REQUESTS = (0x5412, 0x541C, 0x5423, 0x8940, 0x8941, 0x8982, 0x8983, 0x89A0, 0x89A1, 0x89A2, 0x89A3)
_FILE_TYPE, _DEVICES = 0o170000, (0o020000, 0o060000)
_PRIO_PROCESS, _PRIO_PGRP = 0, 1
# PID 1 of the sandbox, which may run as the same user as the code. If the code lowers its priority so that it waits for
# all other processes, it does not end in time when it is killed.
_FIRST_PROCESS = 1
_AF_UNIX, _INTERNET = 1, (2, 10)
_SOCK_TYPE, _SOCK_STREAM, _SOCK_DGRAM = 0xF, 1, 2
_ANY_PROTOCOL, _TCP, _UDP = 0, 6, 17
# Hands a connection over to a kernel module (tls) that is loaded on demand.
_TCP_ULP = 31


# Names, each with its number on every machine, or "-".
_TABLE: tuple[tuple[Verdict, str], ...] = (
    (
        ALWAYS,
        """
        accept 43 202, accept4 288 242, access 21 -, alarm 37 -, arch_prctl 158 -, bind 49 200, brk 12 214,
        cachestat 451 451, capget 125 90, capset 126 91, chdir 80 49, chmod 90 -, chown 92 -, clock_getres 229 114,
        clock_gettime 228 113, clock_nanosleep 230 115, close 3 57, close_range 436 436, connect 42 203,
        copy_file_range 326 285, creat 85 -, dup 32 23, dup2 33 -, dup3 292 24, epoll_create 213 -,
        epoll_create1 291 20, epoll_ctl 233 21, epoll_pwait 281 22, epoll_pwait2 441 441, epoll_wait 232 -,
        eventfd 284 -, eventfd2 290 19, execve 59 221, execveat 322 281, exit 60 93, exit_group 231 94,
        faccessat 269 48, faccessat2 439 439, fadvise64 221 223, fallocate 285 47, fchdir 81 50, fchmod 91 52,
        fchmodat 268 53, fchmodat2 452 452, fchown 93 55, fchownat 260 54, fcntl 72 25, fdatasync 75 83,
        fgetxattr 193 10, file_getattr 468 468, file_setattr 469 469, flistxattr 196 13, flock 73 32, fork 57 -,
        fremovexattr 199 16, fsetxattr 190 7, fstat 5 80, fstatfs 138 44, fsync 74 82, ftruncate 77 46, futex 202 98,
        futex_requeue 456 456, futex_wait 455 455, futex_waitv 449 449, futex_wake 454 454, futimesat 261 -,
        get_mempolicy 239 236, get_robust_list 274 100, get_thread_area 211 -, getcpu 309 168, getcwd 79 17,
        getdents 78 -, getdents64 217 61, getegid 108 177, geteuid 107 175, getgid 104 176, getgroups 115 158,
        getitimer 36 102, getpeername 52 205, getpgid 121 155, getpgrp 111 -, getpid 39 172, getppid 110 173,
        getpriority 140 141, getrandom 318 278, getresgid 120 150, getresuid 118 148, getrlimit 97 163,
        getrusage 98 165, getsid 124 156, getsockname 51 204, getsockopt 55 209, gettid 186 178, gettimeofday 96 169,
        getuid 102 174, getxattr 191 8, getxattrat 464 464, inotify_add_watch 254 27, inotify_init 253 -,
        inotify_init1 294 26, inotify_rm_watch 255 28, io_cancel 210 3, io_destroy 207 1, io_getevents 208 4,
        io_pgetevents 333 292, io_submit 209 2, ioprio_get 252 31, ioprio_set 251 30, kill 62 129,
        landlock_add_rule 445 445, landlock_create_ruleset 444 444, landlock_restrict_self 446 446, lchown 94 -,
        lgetxattr 192 9, link 86 -, linkat 265 37, listen 50 201, listxattr 194 11, listxattrat 465 465,
        llistxattr 195 12, lremovexattr 198 15, lseek 8 62, lsetxattr 189 6, lsm_get_self_attr 459 459,
        lsm_list_modules 461 461, lstat 6 -, madvise 28 233, map_shadow_stack 453 453, mbind 237 235,
        membarrier 324 283, memfd_create 319 279, mincore 27 232, mkdir 83 -, mkdirat 258 34, mlock 149 228,
        mlock2 325 284, mlockall 151 230, mmap 9 222, mprotect 10 226, mq_getsetattr 245 185, mq_notify 244 184,
        mq_open 240 180, mq_timedreceive 243 183, mq_timedsend 242 182, mq_unlink 241 181, mremap 25 216,
        mseal 462 462, msgctl 71 187, msgget 68 186, msgrcv 70 188, msgsnd 69 189, msync 26 227, munlock 150 229,
        munlockall 152 231, munmap 11 215, nanosleep 35 101, newfstatat 262 79, open 2 -, openat 257 56,
        openat2 437 437, pause 34 -, pidfd_open 434 434, pidfd_send_signal 424 424, pipe 22 -, pipe2 293 59,
        pkey_alloc 330 289, pkey_free 331 290, pkey_mprotect 329 288, poll 7 -, ppoll 271 73, prctl 157 167,
        pread64 17 67, preadv 295 69, preadv2 327 286, process_madvise 440 440, process_mrelease 448 448,
        pselect6 270 72, pwrite64 18 68, pwritev 296 70, pwritev2 328 287, read 0 63, readahead 187 213,
        readlink 89 -, readlinkat 267 78, readv 19 65, recvfrom 45 207, recvmmsg 299 243, recvmsg 47 212,
        remap_file_pages 216 234, removexattr 197 14, removexattrat 466 466, rename 82 -, renameat 264 38,
        renameat2 316 276, restart_syscall 219 128, rmdir 84 -, rseq 334 293, rt_sigaction 13 134,
        rt_sigpending 127 136, rt_sigprocmask 14 135, rt_sigqueueinfo 129 138, rt_sigreturn 15 139,
        rt_sigsuspend 130 133, rt_sigtimedwait 128 137, rt_tgsigqueueinfo 297 240, sched_get_priority_max 146 125,
        sched_get_priority_min 147 126, sched_getaffinity 204 123, sched_getattr 315 275, sched_getparam 143 121,
        sched_getscheduler 145 120, sched_rr_get_interval 148 127, sched_setaffinity 203 122, sched_setparam 142 118,
        sched_yield 24 124, seccomp 317 277, select 23 -, semctl 66 191, semget 64 190, semop 65 193,
        semtimedop 220 192, sendfile 40 71, sendmmsg 307 269, sendmsg 46 211, sendto 44 206, set_mempolicy 238 237,
        set_mempolicy_home_node 450 450, set_robust_list 273 99, set_thread_area 205 -, set_tid_address 218 96,
        setfsgid 123 152, setfsuid 122 151, setgid 106 144, setgroups 116 159, setitimer 38 103, setpgid 109 154,
        setregid 114 143, setresgid 119 149, setresuid 117 147, setreuid 113 145, setrlimit 160 164, setsid 112 157,
        setuid 105 146, setxattr 188 5, setxattrat 463 463, shmat 30 196, shmctl 31 195, shmdt 67 197, shmget 29 194,
        shutdown 48 210, sigaltstack 131 132, signalfd 282 -, signalfd4 289 74, splice 275 76, stat 4 -,
        statfs 137 43, statx 332 291, symlink 88 -, symlinkat 266 36, sync 162 81, sync_file_range 277 84,
        syncfs 306 267, sysinfo 99 179, tee 276 77, tgkill 234 131, time 201 -, timer_create 222 107,
        timer_delete 226 111, timer_getoverrun 225 109, timer_gettime 224 108, timer_settime 223 110,
        timerfd_create 283 85, timerfd_gettime 287 87, timerfd_settime 286 86, times 100 153, tkill 200 130,
        truncate 76 45, umask 95 166, uname 63 160, unlink 87 -, unlinkat 263 35, utime 132 -, utimensat 280 88,
        utimes 235 -, vfork 58 -, vmsplice 278 75, wait4 61 260, waitid 247 95, write 1 64, writev 20 66
        """,
    ),
    # The kernel's own breakpoints make these calls; without them, a program ends that someone on the host traces.
    (ALWAYS, "uretprobe 335 -, uprobe 336 -"),
    # The flags are the first argument on both machines, which differ only in the order of the last two.
    (_when(_is(0, 0, mask=_NEW_NAMESPACES)), "clone 56 220"),
    (_when(_is_not(1, *_REQUESTS)), "ioctl 16 29"),
    (_when(_is_not(1, *_DEVICES, mask=_FILE_TYPE)), "mknod 133 -"),
    (_when(_is_not(2, *_DEVICES, mask=_FILE_TYPE)), "mknodat 259 33"),
    # 0 is standard Linux, and all ones only queries. The other values switch address randomisation off or emulate other
    # systems.
    (_when(_is(0, 0, 0xFFFFFFFF)), "personality 135 92"),
    # Only a process's own limits: processes that the server starts later inherit the limits of PID 1.
    (_when(_is(0, 0)), "prlimit64 302 261"),
    # A user's priority would include the first process.
    (
        _when(_is(0, _PRIO_PROCESS, mask=LOW_HALF & ~_PRIO_PGRP), _is_not(1, _FIRST_PROCESS)),
        "setpriority 141 140",
    ),
    (_when(_is_not(0, _FIRST_PROCESS)), "sched_setattr 314 274, sched_setscheduler 144 119"),
    (_when(_is_not(1, _TCP)) + _when(_is(1, _TCP), _is_not(2, _TCP_ULP)), "setsockopt 54 208"),
    # TCP and UDP only: SCTP, DCCP, MPTCP, L2TP and ping sockets are modules and attack surface. Both type and protocol
    # are checked, because protocol 0 with SOCK_SEQPACKET is SCTP. Go's runtime tries MPTCP and expects EPROTONOSUPPORT.
    # socketpair creates its sockets, and so loads the family's module, before it finds that the family has no pairs. So
    # it is restricted in the same way as socket.
    (
        _when(_is(0, _AF_UNIX))
        + _when(
            _is(0, *_INTERNET, error=EAFNOSUPPORT),
            _is(2, _ANY_PROTOCOL, _TCP, _UDP, error=EPROTONOSUPPORT),
            _is(1, _SOCK_STREAM, _SOCK_DGRAM, mask=_SOCK_TYPE),
        ),
        "socket 41 198, socketpair 53 199",
    ),
    # The file system tree.
    (
        EPERM,
        """
        mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428, move_mount 429 429,
        fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442,
        open_tree_attr 467 467
        """,
    ),
    # Access to files by inode number, also outside of the directory tree that the sandbox sees.
    (EPERM, "name_to_handle_at 303 264, open_by_handle_at 304 265, fanotify_init 300 262, fanotify_mark 301 263"),
    # Whole file systems and disks.
    (EPERM, "quotactl 179 60, quotactl_fd 443 443, swapon 167 224, swapoff 168 225, acct 163 89"),
    (EPERM, "lookup_dcookie 212 18, nfsservctl 180 42"),
    # Namespaces: a new user namespace grants the capabilities that most kernel escapes start from.
    (EPERM, "unshare 272 97, setns 308 268"),
    # Other processes.
    (EPERM, "ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, pidfd_getfd 438 438, kcmp 312 272"),
    (EPERM, "migrate_pages 256 238, move_pages 279 239"),
    # Keyrings have no namespace: they belong to a uid.
    (EPERM, "add_key 248 217, request_key 249 218, keyctl 250 219"),
    # Kernel interfaces that exploits use.
    (EPERM, "bpf 321 280, userfaultfd 323 282, perf_event_open 298 241"),
    # Pages that neither the kernel nor a memory dump can read.
    (EPERM, "memfd_secret 447 447"),
    # The machine.
    (EPERM, "kexec_load 246 104, kexec_file_load 320 294, reboot 169 142, syslog 103 116, vhangup 153 58"),
    (EPERM, "init_module 175 105, finit_module 313 273, delete_module 176 106"),
    (EPERM, "iopl 172 -, ioperm 173 -, uselib 134 -, sethostname 170 161, setdomainname 171 162"),
    # Clocks have no namespace.
    (EPERM, "settimeofday 164 170, adjtimex 159 171, clock_settime 227 112, clock_adjtime 305 266"),
    # C libraries fall back to clone. A rule can read the flags of clone, but clone3 takes them behind a pointer.
    (ENOSYS, "clone3 435 435"),
    # Operations that are submitted to a ring bypass every rule.
    (ENOSYS, "io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427"),
    # Callers fall back to /proc/self/mountinfo.
    (ENOSYS, "statmount 457 457, listmount 458 458"),
    # The machine has a limited number of contexts for all users together; programs can use threads instead.
    (ENOSYS, "io_setup 206 0"),
    # 16-bit segments: used only by emulators, and the source of many kernel bugs.
    (ENOSYS, "modify_ldt 154 -"),
)


def _numbers(words: list[str]) -> dict[str, int]:
    return {machine: int(word) for machine, word in zip(MACHINES, words, strict=True) if word != "-"}


CALLS: Mapping[str, Call] = {
    name: Call(_numbers(words), verdict)
    for verdict, rows in _TABLE
    for name, *words in (row.split() for row in rows.split(","))
}
"""Calls that code may make, and calls that return an error: EPERM, or ENOSYS as on a kernel without them, if programs
probe for them and have an alternative. A call that is not here, such as a newer one, does not exist."""

FOR_ZYGOTES: Mapping[str, Call] = {
    **CALLS,
    **{name: CALLS[name]._replace(verdict=ALWAYS) for name in ("clone", "mount", "move_mount", "umount2", "unshare")},
}
"""What an interpreter may do of which sandboxes are forks: it also makes namespaces and mounts for them. No code runs
in it, and each fork is under `CALLS` before it reads a request."""
