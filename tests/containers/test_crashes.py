"""However a server ends, none of its containers outlives it for long, and no container of another owner is touched."""

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import docker
import pytest
from docker.errors import APIError, NotFound

from llm_sandbox_mcp.backends.containers.backend import LABEL
from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.cli.command import command
from tests.effort import EFFORT
from tests.engines import host_folder, need, small_profile
from tests.mcp.talking import Talk, server
from tests.mcp.wire import CLIENT, message

from .engines import ENGINES, Watched, address, client, profile_file, until
from .proxy import proxy

KILLS = 10 * EFFORT
"""Number of servers killed on each engine; each takes a second or two."""
LIMIT = 120 + 20 * KILLS
"""Seconds for a test."""

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(LIMIT + 60)]

AT_ONCE = 2
GONE = 30.0
"""Seconds until the containers of a killed server are gone, without a sweep."""


@pytest.fixture(params=ENGINES)
async def engine(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[str]:
    await need(request.param)
    with anyio.fail_after(LIMIT):
        yield request.param


@pytest.fixture
def folder() -> Iterator[Path]:
    with host_folder() as made:
        yield made


@asynccontextmanager
async def running(profile: Path) -> AsyncIterator[Talk]:
    """A server in the middle of a run."""
    async with server("--profile", str(profile)) as talk:
        await talk.start_endless_run()
        yield talk


async def test_servers_killed_in_the_middle_of_a_run_leave_no_container(engine: str, folder: Path) -> None:
    profile = profile_file(engine, address(engine), folder)
    watched = Watched(address(engine), folder / "runtime")
    turns = anyio.CapacityLimiter(AT_ONCE)

    async def kill_one() -> None:
        async with turns, running(profile) as talk:
            assert watched.now()
            talk.process.kill()
            await talk.process.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(KILLS):
            tasks.start_soon(kill_one)
    await until(lambda: not watched.now(), GONE)


async def test_a_server_that_was_stopped_before_it_was_killed_leaves_no_container(engine: str, folder: Path) -> None:
    watched = Watched(address(engine), folder / "runtime")
    async with running(profile_file(engine, address(engine), folder)) as talk:
        talk.process.send_signal(signal.SIGSTOP)
        assert len(watched.now()) == 1
        talk.process.kill()
        await talk.process.wait()
    await until(lambda: not watched.now(), GONE)


@pytest.mark.parametrize("by", ["sweep", "serve"])
async def test_a_container_whose_server_died_while_making_it_is_swept(engine: str, folder: Path, by: str) -> None:
    watched = Watched(address(engine), folder / "runtime")
    place = folder / "engine.sock"
    async with proxy(address(engine), place, holds="/start") as way:
        profile = profile_file(engine, f"unix://{place}", folder)
        async with server("--profile", str(profile)) as talk:
            await talk.send(message("initialize", CLIENT, 1))
            await talk.receive()
            await talk.send(message("notifications/initialized"))
            await talk.send(message("tools/call", {"name": "execute_code", "arguments": {"code": "print(1)"}}, 2))
            assert way.stdout is not None
            assert await way.stdout.receive() == b"+"
            talk.process.kill()
            await talk.process.wait()
    assert len(watched.now()) == 1
    profile = profile_file(engine, address(engine), folder)
    if by == "sweep":
        done = await anyio.to_thread.run_sync(partial(command, "sweep", "--profile", str(profile)))
        assert "removed" in done.stdout + done.stderr, done
        assert not watched.now()
    else:
        async with server("--profile", str(profile)):
            await until(lambda: not watched.now(), GONE)


OTHERS = {
    "without our label": ({"another": "label"}, "", True),
    "of a server that is gone": ({LABEL: "{mark}gone", "llm-sandbox-mcp.machine": "{machine}"}, "", False),
    "of a server below another root": ({LABEL: "0-0-other", "llm-sandbox-mcp.machine": "{machine}"}, "", True),
    "of another machine, with a fresh heartbeat": (
        {LABEL: "other", "llm-sandbox-mcp.machine": "other", "llm-sandbox-mcp.expires": "{later}"},
        "now",
        True,
    ),
    "of another machine, silent": (
        {LABEL: "other", "llm-sandbox-mcp.machine": "other", "llm-sandbox-mcp.expires": "{later}"},
        "10 minutes ago",
        False,
    ),
    "of another machine, with a fresh heartbeat, older than a day": (
        {LABEL: "other", "llm-sandbox-mcp.machine": "other", "llm-sandbox-mcp.expires": "1"},
        "now",
        True,
    ),
    "of another machine, which has ended, younger than a day": (
        {LABEL: "other", "llm-sandbox-mcp.machine": "other", "llm-sandbox-mcp.expires": "{later}"},
        "",
        True,
    ),
    "of another machine, which has ended, older than a day": (
        {LABEL: "other", "llm-sandbox-mcp.machine": "other", "llm-sandbox-mcp.expires": "1"},
        "",
        False,
    ),
}


def beats(api: docker.APIClient, container: str) -> bool:
    """Whether a container has its heartbeat file, or is gone."""
    try:
        check = api.exec_create(container, ["test", "-e", "/opt/handlers/.beat"])["Id"]
        api.exec_start(check)
        return bool(api.exec_inspect(check)["ExitCode"] == 0)
    except APIError:
        return True


async def test_a_sweep_removes_containers_without_an_owner_and_no_others(engine: str, folder: Path) -> None:
    api = client(address(engine))
    made: dict[str, str] = {}
    async with open_service(small_profile(engine, folder)) as service:
        live = await execute(service, "x = 1")
        runtime = os.stat(folder / "runtime")
        values = {
            "mark": f"{runtime.st_dev:x}-{runtime.st_ino:x}-",
            "machine": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "later": str(int(time.time()) + 600),
        }
        try:
            for name, (labels, beat, _) in OTHERS.items():
                made[name] = api.create_container(
                    "llm-sandbox-mcp-python",
                    command=["sh", "-c", f"touch -d '{beat}' /opt/handlers/.beat; exec sleep 1000"],
                    labels={key: value.format(**values) for key, value in labels.items()},
                    user="0:0",
                    host_config=api.create_host_config(
                        tmpfs={"/opt/handlers": "rw,mode=1777"}, network_mode="none", init=True
                    ),
                    network_disabled=True,
                )["Id"]
                # A server that starts meanwhile sweeps too, and may remove it first.
                with suppress(NotFound):
                    if "ended" not in name:
                        api.start(made[name])
            silent = made["of another machine, silent"]
            await until(lambda: beats(api, silent), 10)
            await service.backend.sweep()
            left = {found["Id"] for found in api.containers(all=True)}
            assert {name: made[name] in left for name in OTHERS} == {
                name: stays for name, (*_, stays) in OTHERS.items()
            }
            again = await execute(service, "x + 1", session_id=live.session_id)
            assert again.result == "2"
        finally:
            for container in made.values():
                with suppress(NotFound):
                    api.remove_container(container, force=True)


# The engines' packages leave a socket that could not connect to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_container_whose_engine_was_away_when_its_session_closed_is_removed_later(
    engine: str, folder: Path
) -> None:
    watched = Watched(address(engine), folder / "runtime")
    place = folder / "engine.sock"
    profile = small_profile(engine, folder, **{engine: {"host": f"unix://{place}"}})
    async with open_service(profile) as service:
        async with proxy(address(engine), place):
            # Its agent is stopped, so that it does not end by itself when it loses the server.
            session = (await execute(service, "import os, signal\nos.kill(-1, signal.SIGSTOP)")).session_id
        with suppress(SandboxError):
            await service.sessions.close(session)
        assert len(watched.now()) == 1
        async with proxy(address(engine), place):
            await until(lambda: not watched.now(), GONE)


@pytest.mark.alone
@pytest.mark.only_in_all
async def test_fifty_sessions_opened_at_once_all_answer_and_close_at_once(engine: str, folder: Path) -> None:
    watched = Watched(address(engine), folder / "runtime")
    ids: list[str] = []
    async with open_service(small_profile(engine, folder, sessions={"max": 50}, pool={"min": 0, "max": 50})) as service:

        async def one() -> None:
            result = await execute(service, "print(1)")
            assert (result.status, result.stdout.text) == ("ok", "1\n"), result
            ids.append(result.session_id)

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(one)
        assert len(set(ids)) == 50
        for session in ids:
            with anyio.fail_after(1):
                await service.sessions.close(session)
        await until(lambda: not watched.now(), 60)
