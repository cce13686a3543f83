"""Sandboxes start and end, side by side and cancelled at any point, and leave nothing behind."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from anyio import wait_all_tasks_blocked

from llm_sandbox_mcp.backends.base import Backend
from llm_sandbox_mcp.backends.embedded.launching import LauncherClient, open_launcher
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.errors import EngineUnavailable
from llm_sandbox_mcp.base.policy import Policy
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.wiring import open_backend
from tests import ordinary
from tests.containers.engines import until
from tests.engines import surroundings
from tests.leftovers import look, nothing_beyond

pytestmark = pytest.mark.anyio

ENV = {"PATH": PATH}


async def test_sandboxes_do_not_see_each_other(backend: Backend, profile: Profile) -> None:
    policy = profile.limits.policy()
    with anyio.fail_after(30):
        async with backend.sandbox(policy) as one, backend.sandbox(policy) as other:
            await one.run(
                [
                    "sh",
                    "-c",
                    "for d in /sandbox /home /tmp /dev/shm; do echo x > $d/mine; done; sleep 1000 >/dev/null 2>&1 &",
                ],
                ENV,
            )
            seen = await other.run(
                ["sh", "-c", "ls /sandbox /home /tmp /dev/shm | grep mine; cat /proc/[0-9]*/comm | grep sleep"], ENV
            )
            assert seen.stdout == b""
            assert (await one.run(["cat", "/sandbox/mine"], ENV)).stdout == b"x\n"


async def test_closing_leaves_nothing(backend: Backend, profile: Profile, folder: Path) -> None:
    state = partial(look, folder / "runtime")
    async with backend.sandbox(profile.limits.policy()):
        pass
    before = state()
    with anyio.fail_after(30):
        async with backend.sandbox(profile.limits.policy()) as sandbox:
            await sandbox.run(
                ["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & mkdir -p /tmp/a/b; echo x > /tmp/a/b/c"], ENV
            )
            assert state().beyond(before)
        await nothing_beyond(before, state, 5)


async def test_an_error_in_the_scope_closes_it_too(backend: Backend, profile: Profile, folder: Path) -> None:
    state = partial(look, folder / "runtime")
    async with backend.sandbox(profile.limits.policy()):
        pass
    before = state()
    with anyio.fail_after(30):
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the end of the scope is tested
            async with backend.sandbox(profile.limits.policy()) as sandbox:
                await sandbox.spawn(["sleep", "1000"], ENV)
                raise ZeroDivisionError
        await nothing_beyond(before, state, 5)


@pytest.mark.parametrize("passed", range(12))
async def test_a_start_that_is_cancelled_at_any_point_leaves_nothing(
    backend: Backend, profile: Profile, folder: Path, passed: int
) -> None:
    """`passed` is the number of rounds of the event loop before the cancellation."""
    state = partial(look, folder / "runtime")
    async with backend.sandbox(profile.limits.policy()):
        pass
    before = state()

    async def start() -> None:
        async with backend.sandbox(profile.limits.policy()) as sandbox:
            await sandbox.run(["true"], ENV)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            for _ in range(passed):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await nothing_beyond(before, state, 5)
        async with backend.sandbox(profile.limits.policy()) as sandbox:
            assert (await sandbox.run(["true"], ENV)).exit_code == 0


async def test_ten_sandboxes_start_at_once(backend: Backend, profile: Profile) -> None:
    answers: list[bytes] = []

    async def one(number: int) -> None:
        async with backend.sandbox(profile.limits.policy()) as sandbox:
            answers.append((await sandbox.run(["echo", str(number)], ENV)).stdout)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(one, number)
    assert sorted(answers) == [b"%d\n" % number for number in range(10)]


async def test_a_runner_that_was_never_closed_leaves_no_descriptor_after_its_sandbox(
    backend: Backend, profile: Profile
) -> None:
    def held() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def cycle() -> None:
        async with backend.sandbox(profile.limits.policy()) as sandbox:
            await sandbox.spawn(["sleep", "1000"], ENV)

    # Docker's package keeps up to 25 connections, and reaches that number only after a while.
    for _ in range(8):
        await cycle()
    before = held()
    for _ in range(3):
        await cycle()
    with anyio.fail_after(30):
        while held() > before:
            await anyio.lowlevel.checkpoint()


ORDINARY = """
import anyio, anyio.lowlevel, os, pathlib, sys
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from llm_sandbox_mcp.profile.profile import load_profile

async def given_up(service, passed):
    async def start():
        async with service.backend.sandbox(service.profile.limits.policy()):
            pass
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        for _ in range(passed):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

async def main():
    base = pathlib.Path(sys.argv[1])
    profile = load_profile(over={
        "backend": {"name": sys.argv[2]},
        "server": {"cache": str(base / "cache"), "runtime": str(base / "runtime")},
        "limits": {"pids": 64, "memory": "128MiB", "disk": "16MiB"},
        "languages": {"python": {"libraries": []}},
    })
    with anyio.fail_after(30):
        async with open_service(profile) as service:
            checks = {check.name: check.state for check in await service.backend.probe()}
            first = await execute(service, "x=41; echo $(id -u)", language="bash")
            second = await execute(service, "echo $((x + 1))", language="bash", session_id=first.session_id)
            stubborn = await execute(service, "trap '' INT; while :; do :; done", language="bash", timeout=0.3)
            for passed in range(60):
                await given_up(service, passed)
            async with anyio.create_task_group() as tasks:
                async def close(stream, text):
                    tasks.start_soon(service.sessions.close, first.session_id)
                closed = await execute(service, "echo x; while :; do :; done", language="bash", session_id=first.session_id, on_output=close)
            statuses = stubborn.status, closed.status
            print(os.geteuid(), checks["limits"], checks["user of the machine"], first.stdout.text.strip(), second.stdout.text.strip(), *statuses)
anyio.run(main)
"""


@pytest.mark.parametrize(("lent", "uids"), [(True, "ok"), (False, "degraded")], ids=["own uids", "shared uid"])
@pytest.mark.parametrize("backend_name", ["embedded"])
async def test_it_works_for_an_ordinary_user_without_control_groups_and_says_so(
    backend_name: str,
    backend: Backend,
    profile: Profile,
    folder: Path,
    ordinary_packages: Path,
    lent: bool,
    uids: str,
) -> None:
    async with backend.sandbox(profile.limits.policy()):
        pass
    home = folder / "home"
    home.mkdir()
    os.chown(home, ordinary.USER, ordinary.USER)
    argv = ("-c", ORDINARY, str(home), backend_name)
    run = partial(ordinary.run, ordinary_packages, *argv, env={"HOME": str(home)}, lent=lent)
    state = partial(look, folder / "runtime")
    before = state()
    done = await anyio.to_thread.run_sync(run)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(ordinary.USER), "degraded", uids, "1000", "42", "timeout", "cancelled"], (
        done.stdout
    )
    await nothing_beyond(before, state, 5)


@pytest.mark.parametrize("backend_name", ["embedded"])
async def test_a_request_while_a_killed_launcher_is_replaced_waits_for_the_next_launcher(
    backend_name: str, profile: Profile, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = anyio.Event()
    opened: list[LauncherClient] = []

    @asynccontextmanager
    async def open_slowly() -> AsyncIterator[LauncherClient]:
        async with open_launcher() as launcher:
            opened.append(launcher)
            yield launcher
        await replaced.wait()

    async def ask(policy: Policy) -> None:
        async with backend.sandbox(policy) as sandbox:
            printed.append((await sandbox.run(["echo", "x"], ENV)).stdout)

    monkeypatch.setattr("llm_sandbox_mcp.backends.embedded.backend.open_launcher", open_slowly)
    printed: list[bytes] = []
    others = _launchers()
    with anyio.fail_after(60):
        async with open_backend(profile, surroundings(folder)) as backend, anyio.create_task_group() as tasks:
            await ask(profile.limits.policy())
            (launcher,) = _launchers() - others
            os.kill(launcher, signal.SIGKILL)
            await until(lambda: opened[0].gone, 30)
            tasks.start_soon(ask, profile.limits.policy())
            await wait_all_tasks_blocked()
            assert printed == [b"x\n"]
            replaced.set()
    assert printed == [b"x\n"] * 2
    assert len(opened) == 2


@pytest.mark.parametrize("backend_name", ["embedded"])
async def test_a_request_that_waits_for_a_sandbox_when_the_launcher_ends_gets_an_error(
    backend_name: str, profile: Profile, folder: Path
) -> None:
    errors: list[str] = []

    async def ask() -> None:
        with pytest.raises(EngineUnavailable) as raised:
            async with backend.sandbox(profile.limits.policy()):
                pytest.fail("there is a sandbox")
        errors.append(str(raised.value))

    others = _launchers()
    with anyio.fail_after(60):
        async with open_backend(profile, surroundings(folder)) as backend:
            assert (await backend.limits()).name == "limits"  # the launcher has started
            (launcher,) = _launchers() - others
            os.kill(launcher, signal.SIGSTOP)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await wait_all_tasks_blocked()
                os.kill(launcher, signal.SIGKILL)
    assert errors == ["the sandbox launcher has just ended; try again"]


@pytest.mark.parametrize("backend_name", ["embedded"])
async def test_a_server_that_ends_right_after_its_launcher_was_killed_leaves_nothing(
    backend_name: str, profile: Profile, folder: Path
) -> None:
    others = _launchers()
    with anyio.fail_after(60):
        async with open_backend(profile, surroundings(folder)) as backend:
            assert (await backend.limits()).name == "limits"  # the launcher has started
            (launcher,) = _launchers() - others
            os.kill(launcher, signal.SIGKILL)


@pytest.mark.parametrize("backend_name", ["embedded"])
async def test_a_launcher_that_is_killed_while_it_starts_is_replaced_too(
    backend_name: str, profile: Profile, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[LauncherClient] = []

    @asynccontextmanager
    async def open_and_kill() -> AsyncIterator[LauncherClient]:
        others = _launchers()
        async with open_launcher() as launcher:
            opened.append(launcher)
            if len(opened) == 1:
                (pid,) = _launchers() - others
                os.kill(pid, signal.SIGKILL)
            yield launcher

    monkeypatch.setattr("llm_sandbox_mcp.backends.embedded.backend.open_launcher", open_and_kill)
    with anyio.fail_after(60):
        async with (
            open_backend(profile, surroundings(folder)) as backend,
            backend.sandbox(profile.limits.policy()) as sandbox,
        ):
            assert (await sandbox.run(["echo", "x"], ENV)).stdout == b"x\n"
    assert len(opened) == 2


def _launchers() -> set[int]:
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_launcher(path)}


def _is_launcher(process: Path) -> bool:
    # Not by the lists of children in /proc, which can leave some out while processes come and go.
    with suppress(OSError):
        parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        return parent == os.getpid() and b"embedded.launcher" in (process / "cmdline").read_bytes()
    return False
