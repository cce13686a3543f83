"""The system-call filter in the kernel: raw calls and ordinary programs inside bubblewrap."""

import errno
import json
import os
import shutil
import stat
import subprocess
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llm_sandbox_mcp.backends import bpf
from llm_sandbox_mcp.backends.calls import ALWAYS, CALLS
from tests.hostile.calls import EACH

BWRAP = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
PYTHON = "/usr/bin/python3"


def inside(*command: str, filtered: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a command in bubblewrap, as an ordinary user: started by root, bubblewrap would map uid 0 to 0."""
    arguments = [str(BWRAP), "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            arguments += ["--symlink", f"usr/{name}", f"/{name}"]
        elif Path("/", name).exists():
            arguments += ["--ro-bind", f"/{name}", f"/{name}"]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp"]
    identity: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    memory = os.memfd_create("filter")
    try:
        os.write(memory, bpf.program(os.uname().machine))
        os.lseek(memory, 0, os.SEEK_SET)
        if filtered:
            arguments += ["--seccomp", str(memory)]
        return subprocess.run(
            [*arguments, "--", *command],
            env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            pass_fds=[memory] if filtered else [],
            timeout=60,
            **identity,
        )
    finally:
        os.close(memory)


@cache
def reason_not_to_run() -> str | None:
    if BWRAP is None:
        return "bubblewrap is not installed"
    if os.uname().machine not in ("x86_64", "aarch64"):
        return f"no table for {os.uname().machine}"
    if not Path(PYTHON).exists():
        return f"{PYTHON} is not installed"
    plain = inside(PYTHON, "-I", "-c", "import ctypes", filtered=False)
    return f"bubblewrap cannot run here: {plain.stderr.strip()[-300:]}" if plain.returncode else None


@pytest.fixture
def real() -> None:
    if reason := reason_not_to_run():
        pytest.skip(reason)


RAW_CALLS = """
import ctypes, errno, json, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, arguments))
    return errno.errorcode[ctypes.get_errno()] if result == -1 else "done"
print(json.dumps([call(*one) for one in json.loads(sys.argv[1])]))
"""


def errors_of(calls: list[list[int]], filtered: bool = True) -> list[str]:
    run = inside(PYTHON, "-I", "-c", RAW_CALLS, json.dumps(calls), filtered=filtered)
    assert run.returncode == 0, run.stderr
    answers: list[str] = json.loads(run.stdout)
    return answers


def number_of(name: str) -> int:
    """The number of a call on this machine, -1 if its architecture does not have the call."""
    return CALLS[name].numbers.get(os.uname().machine, -1)


@pytest.mark.usefixtures("real")
def test_the_kernel_refuses_every_denied_call() -> None:
    # Also reboot and vhangup: without capabilities they do nothing, even if the filter is wrong.
    expected = {
        name: errno.errorcode[call.verdict]
        for name, call in CALLS.items()
        if isinstance(call.verdict, int) and number_of(name) >= 0
    }
    answers = errors_of([[number_of(name)] for name in expected])
    assert dict(zip(expected, answers, strict=True)) == expected


@pytest.mark.usefixtures("real")
def test_the_filter_changes_no_answer_to_an_allowed_call() -> None:
    numbers = json.dumps({n: number_of(n) for n, c in CALLS.items() if c.verdict == ALWAYS and number_of(n) >= 0})
    with_filter, without = (inside(PYTHON, "-I", "-c", EACH, numbers, filtered=filtered) for filtered in (True, False))
    # Not that nothing is on standard error: on some kernels a child notices that a call has overwritten its stack.
    assert with_filter.returncode == 0, with_filter.stderr
    answers = json.loads(without.stdout)
    assert len(answers) > 200
    assert json.loads(with_filter.stdout) == answers


@pytest.mark.usefixtures("real")
def test_the_kernel_checks_the_arguments() -> None:
    new_user, sigchld = 0x10000000, 17
    cases: list[tuple[str, list[int]]] = [
        ("EPERM", [number_of("clone"), new_user | sigchld]),
        ("EPERM", [number_of("clone"), 0xABCD << 32 | new_user | sigchld]),
        ("EPERM", [number_of("unshare"), new_user]),
        ("EPERM", [number_of("unshare"), 0]),
        ("EPERM", [number_of("ioctl"), 0, 0x5412]),
        ("EPERM", [number_of("ioctl"), 0, 1 << 32 | 0x5412]),
        ("EPERM", [number_of("ioctl"), 0, 0x541C]),
        ("EBADF", [number_of("ioctl"), 999, 0x5401]),
        ("EPERM", [number_of("personality"), 0x40000]),
        ("done", [number_of("personality"), 0xFFFFFFFF]),
        ("EPERM", [number_of("mknodat"), 0, 0, stat.S_IFCHR | 0o666]),
        ("EPERM", [number_of("mknodat"), 0, 0, stat.S_IFBLK | 0o666]),
        ("EPERM", [number_of("setsockopt"), 0, 6, 31]),
        ("done", [number_of("socket"), 1, 1, 0]),
        ("done", [number_of("socket"), 2, 1, 6]),
        ("done", [number_of("socket"), 10, 2, 17]),
        ("EPERM", [number_of("socket"), 2, 3, 0]),
        ("EPERM", [number_of("socket"), 2, 3 | 0o2000000, 17]),
        ("EPROTONOSUPPORT", [number_of("socket"), 2, 1, 262]),
        *[
            ("EAFNOSUPPORT", [number_of(call), family, 3, 0])
            for call in ("socket", "socketpair")
            for family in (16, 17, 38)
        ],
        ("EAFNOSUPPORT", [number_of("socket"), 40, 1, 0]),
        ("ENOSYS", [470]),
    ]
    if os.uname().machine == "x86_64":
        cases += [("ENOSYS", [0x40000000 | 39]), ("EPERM", [number_of("mknod"), 0, stat.S_IFCHR])]
    answers = errors_of([call for _, call in cases])
    assert list(zip(answers, [call for _, call in cases], strict=True)) == cases


@pytest.mark.usefixtures("real")
def test_without_the_filter_the_calls_work() -> None:
    without = errors_of(
        [[number_of("unshare"), 0], [number_of("socket"), 16, 3, 0], [number_of("personality"), 0x40000]], False
    )
    assert without == ["done", "done", "done"]


WORKS = {
    "threads": """
        import threading
        seen = []
        threads = [threading.Thread(target=seen.append, args=(n,)) for n in range(20)]
        [t.start() for t in threads]; [t.join() for t in threads]
        assert sorted(seen) == list(range(20))
    """,
    "a process pool": """
        import multiprocessing
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
    """,
    "a loopback connection": """
        import socket
        for family, address in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"):
            with socket.create_server((address, 0), family=family) as server:
                with socket.create_connection(server.getsockname()[:2]) as client, server.accept()[0] as other:
                    client.sendall(b"hello"); assert other.recv(5) == b"hello"
        a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
        assert socket.getaddrinfo("127.0.0.1", 80)
    """,
    "asyncio with a child process": """
        import asyncio
        async def main():
            child = await asyncio.create_subprocess_exec("/bin/echo", "hello", stdout=asyncio.subprocess.PIPE)
            assert (await child.communicate())[0] == b"hello\\n"
        asyncio.run(main())
    """,
    "a named pipe": """
        import os, stat
        os.mkfifo("pipe"); assert stat.S_ISFIFO(os.stat("pipe").st_mode)
        os.mknod("file"); os.mknod("socket", stat.S_IFSOCK | 0o600)
    """,
    "a child process": """
        import subprocess
        assert subprocess.run(["/bin/sh", "-c", "echo $((6*7)) | cat"], capture_output=True).stdout == b"42\\n"
    """,
    "a pseudo-terminal": """
        import os, pty
        master, slave = pty.openpty(); os.write(master, b"x\\n"); assert os.read(slave, 2) == b"x\\n"
    """,
    "shared memory and locks": """
        import fcntl, mmap, tempfile
        from multiprocessing import shared_memory
        shared = shared_memory.SharedMemory(create=True, size=10); shared.close(); shared.unlink()
        with tempfile.TemporaryFile() as file: fcntl.flock(file, fcntl.LOCK_EX)
    """,
}


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("what", WORKS)
def test_ordinary_programs_work(what: str) -> None:
    run = inside(PYTHON, "-I", "-c", textwrap.dedent(WORKS[what]))
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.usefixtures("real")
def test_node_runs_with_a_worker_thread_and_files() -> None:
    node = shutil.which("node", path="/usr/bin")
    if node is None:
        pytest.skip("node is not installed under /usr/bin")
    code = """
        const { Worker } = require("worker_threads"), fs = require("fs"), { execSync } = require("child_process");
        fs.writeFileSync("a", "1");
        new Worker(`require("worker_threads").parentPort.postMessage(42)`, { eval: true }).on("message", (value) =>
            fs.promises.readFile("a", "utf8").then((text) => console.log(value, text, `${execSync("echo x")}`.trim())));
    """
    assert inside(node, "--version").stdout.startswith("v")
    assert inside(node, "-e", code).stdout == "42 1 x\n"


@pytest.mark.usefixtures("real")
def test_a_java_virtual_machine_starts() -> None:
    java = next(Path("/usr/lib/jvm").glob("*/bin/java"), None)
    if java is None:
        pytest.skip("no Java under /usr/lib/jvm")
    run = inside(str(java), "-Xmx64m", "-XX:+UseG1GC", "-version")
    assert run.returncode == 0, run.stderr
