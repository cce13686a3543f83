"""The system calls that code in a container can make, as a seccomp profile in JSON for Docker and Podman.

It allows by name what ordinary programs need, and refuses everything else. The engines' own profiles allow more:
keyrings, io_uring, every socket family, and on Podman user namespaces. The profile's format:
https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#seccomp.
"""

import errno
import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from ..system_calls import (
    AF_UNIX,
    ANY_PROTOCOL,
    DEVICES,
    FILE_TYPE,
    FIRST_PROCESS,
    INTERNET,
    NEW_NAMESPACES,
    PRIO_PGRP,
    PRIO_PROCESS,
    REFUSED_REQUESTS,
    SOCK_DGRAM,
    SOCK_STREAM,
    SOCK_TYPE_MASK,
    TCP,
    TCP_ULP,
    UDP,
    UNKNOWN,
)

_ALLOWED = """
accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_getres clock_gettime
clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64
fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr file_getattr file_setattr
flistxattr flock fork fremovexattr fsetxattr fstat fstatat fstatfs fsync ftruncate futex futex_requeue futex_wait
futex_waitv futex_wake futimesat get_mempolicy get_robust_list get_thread_area getcpu getcwd getdents getdents64
getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid
getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
io_submit ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr
link linkat listen listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lsm_get_self_attr lsm_list_modules
lstat madvise map_shadow_stack mbind membarrier memfd_create mincore mkdir mkdirat mlock mlock2 mlockall mmap mprotect
mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync
munlock munlockall munmap nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2
pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 process_madvise process_mrelease pselect6
pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages
removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending
rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
sched_setaffinity sched_setparam sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg
sendto set_mempolicy set_mempolicy_home_node set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid
setgroups setitimer setpgid setregid setresgid setresuid setreuid setrlimit setsid setuid setxattr setxattrat shmat
shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs statx symlink symlinkat sync
sync_file_range sync_file_range2 syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun
timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask uname unlink
unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write writev
""".split()  # noqa: SIM905  # a table of words

_LOW_HALF = 0xFFFFFFFF
"""The bits of most arguments that the kernel reads: a rule on all bits could be evaded by setting a higher one."""

_Rule = dict[str, Any]


@cache
def profile() -> str:
    """The profile, for both architectures."""
    rules = [
        {"names": _ALLOWED, "action": "SCMP_ACT_ALLOW"},
        {"names": [*UNKNOWN], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
        *_inspected(),
    ]
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
            "syscalls": rules,
        },
        separators=(",", ":"),
    )


def _inspected() -> Iterator[_Rule]:
    """Calls that are allowed depending on their arguments; each rule allows one case."""
    yield _allow("clone", (0, NEW_NAMESPACES, 0))
    for value in (0, 0xFFFFFFFF):
        # 0 is plain Linux, all ones only queries. Others turn off address randomisation, or emulate other systems.
        yield _allow("personality", (0, _LOW_HALF, value))
    yield _allow("prlimit64", (0, _LOW_HALF, 0))
    for mask, value in _all_but((FIRST_PROCESS,)):
        yield _allow("setpriority", (0, _LOW_HALF & ~PRIO_PGRP, PRIO_PROCESS), (1, mask, value))
        yield _allow("sched_setattr", (0, mask, value))
        yield _allow("sched_setscheduler", (0, mask, value))
    for mask, value in _all_but(REFUSED_REQUESTS):
        yield _allow("ioctl", (1, mask, value))
    for kind in range(0, FILE_TYPE + 1, 0o010000):
        if kind not in DEVICES:
            yield _allow("mknod", (1, FILE_TYPE, kind))
            yield _allow("mknodat", (2, FILE_TYPE, kind))
    for mask, value in _all_but((TCP,)):
        yield _allow("setsockopt", (1, mask, value))
    for mask, value in _all_but((TCP_ULP,)):
        yield _allow("setsockopt", (1, _LOW_HALF, TCP), (2, mask, value))
    for call in ("socket", "socketpair"):
        yield _allow(call, (0, _LOW_HALF, AF_UNIX))
        for family in INTERNET:
            for kind in (SOCK_STREAM, SOCK_DGRAM):
                for protocol in (ANY_PROTOCOL, TCP, UDP):
                    yield _allow(call, (0, _LOW_HALF, family), (1, SOCK_TYPE_MASK, kind), (2, _LOW_HALF, protocol))


def _allow(call: str, *conditions: tuple[int, int, int]) -> _Rule:
    """Allows a call if each argument, with its mask applied, has the value."""
    arguments = [
        {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
        for index, mask, value in conditions
    ]
    return {"names": [call], "action": "SCMP_ACT_ALLOW", "args": arguments}


def _all_but(refused: Iterable[int], prefix: int = 0, bits: int = 32) -> Iterator[tuple[int, int]]:
    """Masks and values that together match every 32-bit number except the refused ones: a condition cannot negate."""
    within = [value for value in refused if value >> bits == prefix]
    if not within:
        yield _LOW_HALF & ~((1 << bits) - 1), prefix << bits
    elif bits:
        yield from _all_but(within, prefix << 1, bits - 1)
        yield from _all_but(within, prefix << 1 | 1, bits - 1)
