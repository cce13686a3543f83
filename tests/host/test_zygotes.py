"""Sandboxes on bubblewrap as forks of processes that wait: what they have, and what happens when that fails."""

import os
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.backends.embedded.backend import EmbeddedBackend
from llm_sandbox_mcp.backends.embedded.forking import BARE
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.errors import SandboxLost
from llm_sandbox_mcp.testing.asking import execute, open_session
from llm_sandbox_mcp.wiring import open_service

from .forks import LANGUAGES, mapper, of_python, opened, profile, row, settled, value, waiting
from .forks import folder as folder

pytestmark = pytest.mark.anyio

LISTS = {
    "python": "import os\nfor n in os.listdir('/proc/self/fd'): print(n, os.path.realpath(f'/proc/self/fd/{n}'))",
    "bash": 'for f in /proc/$$/fd/*; do echo "${f##*/} $(readlink "$f")"; done',
    "javascript": """
        const fs = require('fs');
        for (const n of fs.readdirSync('/proc/self/fd'))
            try { console.log(n, fs.readlinkSync('/proc/self/fd/' + n)) } catch {}
        undefined
    """,
    "ruby": "Dir.children('/proc/self/fd').each { |n| puts \"#{n} #{File.readlink(\"/proc/self/fd/#{n}\") rescue ''}\" }; nil",
    "r": "for (n in list.files('/proc/self/fd')) cat(n, Sys.readlink(file.path('/proc/self/fd', n)), '\\n')",
    "cpp": """
        #include <filesystem>
        #include <iostream>
        namespace fs = std::filesystem;
        int main() {
            for (auto &e : fs::directory_iterator("/proc/self/fd")) {
                std::error_code error;
                std::cout << e.path().filename().string() << " " << fs::read_symlink(e, error).string() << "\\n";
            }
        }
    """,
    "go": """
        package main
        import ("fmt"; "os")
        func main() {
            entries, _ := os.ReadDir("/proc/self/fd")
            for _, e := range entries {
                target, _ := os.Readlink("/proc/self/fd/" + e.Name())
                fmt.Println(e.Name(), target)
            }
        }
    """,
    "java": """
        import java.nio.file.*;
        public class Main {
            public static void main(String[] a) throws Exception {
                for (var f : Files.list(Path.of("/proc/self/fd")).toList())
                    try { System.out.println(f.getFileName() + " " + Files.readSymbolicLink(f)); } catch (Exception e) {}
            }
        }
    """,
}
"""Code that prints each descriptor of its own process, and where it leads."""


@pytest.mark.parametrize("language", LISTS)
async def test_a_process_in_a_fork_has_the_descriptors_of_one_in_any_other_sandbox(folder: Path, language: str) -> None:
    if not all(map(shutil.which, LANGUAGES[language].handler.requires.commands)):
        pytest.skip(f"{language} is not installed")
    found = []
    for zygotes in (True, False):
        async with open_service(profile(folder, zygotes=zygotes)) as service:
            await service.backend.probe()
            ran = await execute(service, LISTS[language], language=language)
            assert ran.status == "ok", ran
            lines = [line.split(" ", 1) for line in ran.stdout.text.splitlines() if " " in line]
            found.append({(number, re.sub("[0-9]+", "*", target)) for number, target in lines})
    forked, usual = found
    assert forked == usual


async def test_a_loaded_interpreter_is_forked_once_in_a_sandbox_and_a_restarted_one_is_new(folder: Path) -> None:
    zygote = of_python("decimal")
    async with opened(folder) as backend:
        assert await settled(backend, zygote)
        async with backend.sandbox(profile(folder).policy(), zygote=zygote) as sandbox:
            assert sandbox.zygote == zygote
            loaded = "import sys\n'decimal' in sys.modules, [name for name in globals() if name[0] != '_']"
            assert await value(sandbox, loaded) == "(True, ['sys'])"
            assert await value(sandbox, loaded) == "(False, ['sys'])"


async def test_siblings_share_nothing_that_one_of_them_makes(folder: Path) -> None:
    zygote, policy = of_python("decimal"), profile(folder).policy()
    async with opened(folder) as backend:
        assert await settled(backend, zygote)
        async with (
            backend.sandbox(policy, zygote=zygote) as one,
            backend.sandbox(policy, zygote=zygote) as other,
        ):
            assert one.zygote and other.zygote
            code = """
import decimal, os, time
decimal.left = 1
for place in ("/sandbox", "/home", "/tmp", "/dev/shm"):
    open(place + "/left", "w").close()
os.listdir("/proc").count("1")
"""
            assert await value(one, code) == "1"
            code = """
import decimal, os
hasattr(decimal, "left"), [p for p in ("/sandbox", "/home", "/tmp", "/dev/shm") if os.path.exists(p + "/left")]
"""
            assert await value(other, code) == "(False, [])"


async def test_a_zygote_that_is_killed_ends_its_sandboxes_and_the_next_ones_are_forks_of_another(folder: Path) -> None:
    async with open_service(profile(folder)) as service:
        backend = service.backend
        assert isinstance(backend, EmbeddedBackend)
        await backend.probe()
        lost = open_session(service)
        await execute(service, "x=1", language="bash", session_id=lost)
        (zygote,) = waiting()
        os.kill(zygote, signal.SIGKILL)
        printed = "1\n"
        while printed == "1\n":  # it may still live for a moment, and may end while it has the code
            with suppress(SandboxLost):
                after = await execute(service, "echo ${x-gone}", language="bash", session_id=lost)
                printed = after.stdout.text
        assert printed == "gone\n"
        assert await settled(backend, BARE)
        assert waiting() != [zygote]
        assert (await row(backend)).state == "ok"


async def test_where_nothing_gives_uids_any_more_sandboxes_are_forks_again_soon(folder: Path) -> None:
    policy = profile(folder).policy()
    async with opened(folder) as backend:
        (zygote,) = waiting()
        os.kill(mapper(), signal.SIGKILL)
        while Path(f"/proc/{zygote}").exists():
            async with backend.sandbox(policy) as sandbox:
                assert (await sandbox.run(["true"], {"PATH": PATH})).exit_code == 0
        command = b""
        while not command.endswith(b"/opt/zygote.py\0"):  # the server may hear a moment later that its zygote has ended
            assert await settled(backend, BARE)
            async with backend.sandbox(policy) as sandbox:
                command = (await sandbox.run(["cat", "/proc/1/cmdline"], {"PATH": PATH})).stdout


@pytest.mark.parametrize("kind", ["loaded", "bare"])
async def test_where_a_zygote_does_not_start_sandboxes_start_without_it(
    folder: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A bubblewrap that refuses stands for a system that gives no capabilities to its children."""
    which = "/opt/zygote.py" if kind == "bare" else "runner.py"
    program = folder / "bwrap"
    program.write_text(f'#!/bin/sh\ncase "$*" in *bin/env*{which}*) echo refused >&2; exit 1;; esac\nexec bwrap "$@"\n')
    program.chmod(0o755)
    zygote = of_python("decimal")
    async with opened(folder, bwrap=str(program)) as backend:
        found = await row(backend)
        if kind == "bare":
            assert (found.state, "refused" in found.detail, bool(found.fix)) == ("degraded", True, True)
        else:
            assert found.state == "ok"
            assert not await settled(backend, zygote)
        async with backend.sandbox(profile(folder).policy(), zygote=zygote) as sandbox:
            assert sandbox.zygote is None
            assert await value(sandbox, "import sys\n'decimal' in sys.modules") == "False"
    assert "refused" in caplog.text


MODULES = {
    "threads": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        "thread",
    ),
    "children": ("import os\nif not os.fork():\n    import time; time.sleep(1000)", "processes"),
    "connections": ("import socket\nkept = socket.create_server(('127.0.0.1', 0))", "connections"),
    "open_files": ("kept = open('/etc/passwd')", "keeps files open"),
    "fails": ("1 / 0", "division by zero"),
    "prints": ("print('much ' * 100_000, flush=True)", "much much"),
    "exits": ("import os\nos._exit(3)", "ended at its start"),
}


@pytest.mark.parametrize("name", MODULES)
async def test_an_interpreter_is_not_forked_if_a_module_leaves_more_than_memory(folder: Path, name: str) -> None:
    """Modules are tried in a sandbox before; this is about one that did not do it then."""
    text, reason = MODULES[name]
    small = profile(folder)
    (Path(small.handlers.folders[0]) / "python/importlib_bootstrap/lib" / f"own_{name}.py").write_text(text)
    zygote = of_python(f"own_{name}")
    async with opened(folder) as backend:
        assert not await settled(backend, zygote)
        assert reason in await backend.unforked(zygote)
        async with backend.sandbox(small.policy(), zygote=zygote) as sandbox:
            assert sandbox.zygote is None


@pytest.mark.parametrize(
    "answers", ["b'R', b'P\\0nosuch'", "b'P\\0nosuch', b'R'", "b'\\xff\\xfe\\0\\xff'", "b'R', b'R'"]
)
async def test_an_interpreter_that_answers_what_ours_would_not_ends_alone(folder: Path, answers: str) -> None:
    module = f"""
        import os, socket
        if os.getpid() == 1:
            control = socket.socket(fileno=os.dup(3))
            for answer in [{answers}]:
                control.send(answer)
            control.detach()
    """
    small = profile(folder)
    lib = Path(small.handlers.folders[0]) / "python/importlib_bootstrap/lib"
    (lib / "liar.py").write_text(dedent(module))
    async with opened(folder) as backend, backend.sandbox(small.policy()) as other:
        await settled(backend, of_python("liar"))
        for _ in range(3):
            async with backend.sandbox(small.policy(), zygote=of_python("liar")) as sandbox:
                assert await value(sandbox, "6 * 7") == "42"
        assert await value(other, "6 * 7") == "42"


async def test_libraries_that_change_on_disk_are_named_and_sandboxes_start_with_the_new_ones(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    zygote, policy = of_python("decimal"), profile(folder).policy()
    async with opened(folder) as backend:
        assert await settled(backend, zygote)
        async with backend.sandbox(policy, zygote=zygote) as sandbox:
            assert sandbox.zygote == zygote
        searched = backend._surroundings.runtime / "stage/handlers/python/importlib_bootstrap/lib"
        (searched / "bytecode").mkdir()
        async with backend.sandbox(policy, zygote=zygote) as sandbox:
            assert sandbox.zygote == zygote
        (searched / "thing-2.0.dist-info").mkdir()
        async with backend.sandbox(policy, zygote=zygote) as sandbox:
            assert sandbox.zygote is None
            assert await value(sandbox, "import sys\n'decimal' in sys.modules") == "False"
    assert "libraries have changed on disk: thing-2.0" in caplog.text


async def test_a_call_that_is_cancelled_anywhere_leaves_no_sandbox(folder: Path) -> None:
    policy = profile(folder).policy()
    async with opened(folder) as backend:

        async def start() -> None:
            async with backend.sandbox(policy):
                pass

        for passed in range(40):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(start)
                for _ in range(passed):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        (zygote,) = waiting()
        while Path(f"/proc/{zygote}/task/{zygote}/children").read_text():
            await anyio.lowlevel.checkpoint()
        assert backend._launcher is not None and len(backend._launcher._launched) == 1  # the zygote
