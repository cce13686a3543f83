"""Sandboxes on bubblewrap that start with the files of one that has ended: what they have, and what they share."""

import ast
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from errno import EPERM
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from llm_sandbox_mcp.backends.base import Layer
from llm_sandbox_mcp.backends.embedded import keeping
from llm_sandbox_mcp.backends.embedded.backend import EmbeddedBackend
from llm_sandbox_mcp.backends.embedded.forking import BARE
from llm_sandbox_mcp.backends.embedded.keeping import EmbeddedLayer
from llm_sandbox_mcp.backends.embedded.launching import LauncherClient
from llm_sandbox_mcp.base.policy import Policy
from llm_sandbox_mcp.testing.profiles import small_profile
from tests import ordinary

from .forks import children, launcher, mapper, of_python, opened, profile, row, settled, value, waiting
from .forks import folder as folder
from .shared_files_program import look, python

pytestmark = pytest.mark.anyio

MIB = 1 << 20
PROGRAM = Path(__file__).with_name("shared_files_program.py").read_text()
PROFILE = """
[backend]
name = "embedded"
[server]
runtime = "{folder}/runtime"
cache = "{folder}/cache"
[languages.python]
libraries = []
"""


@pytest.fixture
async def backend(folder: Path) -> AsyncIterator[EmbeddedBackend]:
    async with opened(folder) as backend:
        yield backend


@pytest.fixture
def policy(folder: Path) -> Policy:
    return profile(folder).policy()


@asynccontextmanager
async def kept(backend: EmbeddedBackend, policy: Policy, fill: str) -> AsyncIterator[Layer]:
    """The files that this code leaves in a sandbox."""
    async with backend.sandbox(policy) as seed:
        assert await python(seed, fill) == ""
        async with backend.kept(seed) as layer:
            assert layer is not None and layer.alive
            yield layer


def mounts() -> list[str]:
    """The files that are kept now, as the process sees them that keeps them, each with the options of its file system."""
    lines = [line.split() for line in Path(f"/proc/{mapper()}/mountinfo").read_text().splitlines()]
    return [
        words[-1] for words in lines if words[4].startswith("/tmp/") and words[4].endswith(("sandbox", "home", "tmp"))
    ]


def check(found: Mapping[str, Any]) -> None:
    """What holds however sandboxes get their uids."""
    assert found["row"][0] == "ok", found
    assert found["filled"] == ""
    assert found["kept"] == [True, False]
    assert found["shared"] == [True, True]
    assert found["one"] == found["two"] == found["next"] == found["seed"]
    assert found["seed"]["/sandbox/plain"][:3] == ["0o100600", 1000, 1000]
    assert found["seed"]["/tmp"][0] == "0o41777"
    assert found["changed"] == "first plain second [] ['inner', 'new'] 1000"
    tried, flags = ast.literal_eval(found["attack"])
    assert tried == [EPERM] * 4
    assert [(place, *options.split(",")[1:3]) for place, options in flags] == [
        (place, "nosuid", "nodev") for place, _ in flags
    ]


async def test_sandboxes_start_with_the_same_files_and_none_sees_what_another_changes(
    backend: EmbeddedBackend, policy: Policy
) -> None:
    check(await look(backend, policy))


@pytest.mark.parametrize("lent", [True, False], ids=["own uids", "shared uid"])
async def test_they_do_so_too_where_the_server_is_not_root(ordinary_packages: Path, folder: Path, lent: bool) -> None:
    os.chown(folder, ordinary.USER, ordinary.USER)
    settings = folder / "profile.toml"
    settings.write_text(PROFILE.format(folder=folder))
    argv, env = ("-c", PROGRAM, str(settings)), {"HOME": str(folder)}
    done = await anyio.to_thread.run_sync(
        partial(ordinary.run, ordinary_packages, *argv, cwd=folder, env=env, lent=lent)
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["user"].startswith("each sandbox has its own" if lent else "shared uid"), found
    check(found)


async def test_no_process_of_the_first_is_left_and_nothing_can_write_its_files(
    backend: EmbeddedBackend, policy: Policy
) -> None:
    linger = """
import os, socket, subprocess, time
written = os.open("/sandbox/written", os.O_RDWR | os.O_CREAT)
for _ in range(3):
    null = subprocess.DEVNULL
    subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=null, stderr=null)
one, other = socket.socketpair()
# A circle in which the kernel finds that nobody can receive it, some time after the last process has ended.
socket.send_fds(one, [b"1"], [written, other.fileno()])
socket.send_fds(other, [b"1"], [one.fileno()])
"""
    (zygote,) = waiting()
    async with kept(backend, policy, linger) as layer:
        assert children(zygote) == []
        assert mounts() and all(options.startswith("ro,") for options in mounts())
        async with backend.sandbox(policy, layer=layer) as sandbox:
            assert await python(sandbox, "print(open('/sandbox/written', 'a').write('now'))") == "3"
    assert mounts() == []


async def test_what_is_removed_and_made_again_is_counted_and_limited(backend: EmbeddedBackend, policy: Policy) -> None:
    """The limits are those of what a sandbox writes itself."""
    fill = "open('/sandbox/large', 'w').write('1' * (12 << 20))"
    async with kept(backend, policy, fill) as layer, backend.sandbox(policy, layer=layer) as sandbox:
        assert (await sandbox.fullness(thorough=False)).entries == 0
        await python(sandbox, "for n in range(10): open(f'/sandbox/{n}', 'w').close()")
        assert (await sandbox.fullness(thorough=False)).entries == 10
        assert {*await sandbox.list_files()} == {"large", *map(str, range(10))}
        write = "for name in ('new', 'newer'): open(f'/sandbox/{name}', 'wb', buffering=0).write(b'1' * (15 << 20))"
        await python(sandbox, write)  # the second file only in part
        size = "import os; print(sum(os.path.getsize(f'/sandbox/{name}') for name in ('new', 'newer')) <= 16 << 20)"
        assert await python(sandbox, size) == "True"
        full = await sandbox.fullness(thorough=True)
        assert full.disk
        assert "No space left" in await python(sandbox, "open('/sandbox/large', 'a').write('2')")
        assert (
            await python(sandbox, "import os; os.unlink('/sandbox/new'); open('/sandbox/large', 'a').write('2')") == ""
        )
        assert not (await sandbox.fullness(thorough=True)).disk


async def test_processes_have_no_more_descriptors_than_in_any_other_sandbox(
    backend: EmbeddedBackend, policy: Policy
) -> None:
    loaded = of_python("decimal")
    assert await settled(backend, loaded)
    descriptors = """
import os
[(n, os.path.realpath(f"/proc/self/fd/{n}").split(":")[0]) for n in os.listdir("/proc/self/fd")]
"""
    async with (
        kept(backend, policy, "") as layer,
        backend.sandbox(policy, zygote=loaded, layer=layer) as one,
        backend.sandbox(policy, zygote=loaded) as other,
    ):
        assert (one.layer, other.layer) == (layer, None)
        assert one.zygote == other.zygote == loaded
        for _ in range(2):  # a fork, then a new interpreter
            assert await value(one, descriptors) == await value(other, descriptors)


async def test_after_the_files_are_let_go_sandboxes_that_have_them_go_on_and_others_start_empty(
    backend: EmbeddedBackend, policy: Policy, caplog: pytest.LogCaptureFixture
) -> None:
    read, write = "print(open('/sandbox/file').read())", "open('/sandbox/file', 'w').write('kept')"
    async with AsyncExitStack() as scope:
        async with kept(backend, policy, write) as layer:
            before = await scope.enter_async_context(backend.sandbox(policy, layer=layer))
        assert not layer.alive
        assert mounts() == []
        for _ in range(2):
            async with backend.sandbox(policy, layer=layer) as after:
                assert after.layer is None
                assert await python(after, "import os; print(os.listdir('/sandbox'))") == "[]"
        assert await python(before, read) == "kept"
        assert (await before.fullness(thorough=False)).entries == 0
    assert caplog.text.count("starts without the files") == 1


@pytest.mark.parametrize("which", ["mapper", "launcher"])
async def test_files_are_lost_with_the_process_that_keeps_them(
    backend: EmbeddedBackend, policy: Policy, which: str
) -> None:
    async with kept(backend, policy, "") as layer:
        os.kill(mapper() if which == "mapper" else launcher(), signal.SIGKILL)
        while layer.alive:
            await anyio.lowlevel.checkpoint()
        await backend.probe()
        async with backend.sandbox(policy, layer=layer) as sandbox:
            assert sandbox.layer is None
            assert await python(sandbox, "print(6 * 7)") == "42"
    assert await settled(backend, BARE)
    async with kept(backend, policy, "") as layer, backend.sandbox(policy, layer=layer) as sandbox:
        assert sandbox.layer is layer


async def test_a_fork_that_cannot_have_its_files_is_made_without_and_is_no_failure_of_what_it_is_forked_from(
    backend: EmbeddedBackend, policy: Policy, caplog: pytest.LogCaptureFixture
) -> None:
    assert backend._launcher is not None and backend._zygotes is not None
    unknown = EmbeddedLayer(backend._launcher, "unknown")
    backend._launcher.layers.add("unknown")
    for _ in range(5):
        async with backend.sandbox(policy, layer=unknown) as sandbox:
            assert sandbox.layer is None
            assert await python(sandbox, "print(open('/proc/1/cmdline').read())") != ""
    assert not backend._zygotes._failures[BARE]
    assert caplog.text.count("its files cannot be shared: they are not kept any more") == 1


async def test_only_a_fork_with_files_of_its_own_can_be_kept_and_any_other_sandbox_goes_on(
    folder: Path, policy: Policy
) -> None:
    async with opened(folder, zygotes=False) as backend, backend.sandbox(policy) as usual:
        assert [row.name for row in await backend.probe() if row.name == "shared files"] == []
        async with backend.kept(usual) as layer:
            assert (layer, await python(usual, "print(1)")) == (None, "1")
    async with (
        opened(folder) as backend,
        kept(backend, policy, "") as layer,
        backend.sandbox(policy, layer=layer) as second,
        backend.kept(second) as again,
    ):
        assert (again, await python(second, "print(1)")) == (None, "1")


async def test_where_files_cannot_be_shared_doctor_says_why(
    folder: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_CHANGE", "echo mkdir: Operation not supported >&2; exit 1")
    async with opened(folder) as backend:
        found = await row(backend, "shared files")
        assert (found.state, found.fix) == ("degraded", "use Linux 6.6 or newer")
        assert "Operation not supported" in found.detail
        async with backend.sandbox(policy) as sandbox, backend.kept(sandbox) as layer:
            assert (layer, await python(sandbox, "print(1)")) == (None, "1")
        assert mounts() == []


async def test_twenty_sandboxes_have_the_same_files_only_once_in_memory(folder: Path) -> None:
    size, count = 50 * MIB, 20
    large = small_profile("embedded", folder, limits={"disk": 2 * size, "memory": 4 * size}).policy()
    fill = f"open('/sandbox/large', 'wb').write(b'1' * {size})"
    read = f"print(len(open('/sandbox/large', 'rb').read()) == {size})"
    async with opened(folder) as backend, kept(backend, large, fill) as layer, AsyncExitStack() as scope:
        before = shared_memory()
        for _ in range(count):
            sandbox = await scope.enter_async_context(backend.sandbox(large, layer=layer))
            assert sandbox.layer is layer
            assert await python(sandbox, read) == "True"
        assert shared_memory() - before < count * size / 4  # others use this memory, too


def shared_memory() -> int:
    """Bytes in files that are in memory, of all processes of the machine."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Shmem:"))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["keep", "freeze", "drop"])
async def test_a_call_that_is_cancelled_while_files_are_kept_leaves_nothing(
    backend: EmbeddedBackend, policy: Policy, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    change = LauncherClient.change_layer

    async def cancelling(self: LauncherClient, what: Any, name: str) -> int:
        if (what, when) == (step, "before"):
            scope.cancel()
        done = await change(self, what, name)
        if (what, when) == (step, "after"):
            scope.cancel()
        return done

    (zygote,) = waiting()
    with anyio.CancelScope() as scope:
        async with backend.sandbox(policy) as seed:
            monkeypatch.setattr(LauncherClient, "change_layer", cancelling)
            async with backend.kept(seed):
                await anyio.lowlevel.checkpoint()
    while children(zygote):
        await anyio.lowlevel.checkpoint()
    assert mounts() == []
    assert backend._launcher is not None and not backend._launcher.layers and not backend._launcher._changes
    assert len(backend._launcher._launched) == 1  # the zygote
