"""A container that someone else started is used as it is, and keeps running afterwards."""

from collections.abc import Iterator

import anyio
import docker
import pytest

from llm_sandbox_mcp.base.errors import CapacityReached, EngineUnavailable, StartFailed
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import absent, changed, docker_host, host_folder, podman_host, small_profile

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, docker.APIClient]]:
    host = {"docker": docker_host, "podman": podman_host}[request.param]()
    if host is None:
        absent(request.param, "the tests' own engine is not up")
    client = docker.APIClient(base_url=host, version="1.41")
    yield request.param, client
    client.close()


@pytest.fixture
def container(engine: tuple[str, docker.APIClient]) -> Iterator[str]:
    """A container that was started without the server; it only sleeps."""
    _, client = engine
    made = str(client.create_container("llm-sandbox-mcp-python", ["sleep", "600"], user="1000:1000")["Id"])
    try:
        client.start(made)
        yield made
    finally:
        client.remove_container(made, force=True)


@pytest.fixture
def profile(engine: tuple[str, docker.APIClient], container: str) -> Iterator[Profile]:
    with host_folder() as folder:
        yield small_profile(engine[0], folder, containers={"join": container})


async def test_code_runs_in_it_and_it_keeps_running(
    engine: tuple[str, docker.APIClient], container: str, profile: Profile
) -> None:
    with anyio.fail_after(60):
        async with open_service(profile) as service:
            first = await execute(service, "x = 6\nopen('kept', 'w').write('yes')")
            assert (await execute(service, "x * 7", session_id=first.session_id)).result == "42"
            stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)"
            stopped = await execute(service, stubborn, session_id=first.session_id, timeout=0.5)
            assert (stopped.status, stopped.session_state) == ("timeout", "fresh")
            assert (await execute(service, "open('kept').read()", session_id=first.session_id)).result == "'yes'"
    _, client = engine
    assert client.inspect_container(container)["State"]["Running"]
    look = client.exec_create(container, ["sh", "-c", "cat /proc/[0-9]*/cmdline"])["Id"]
    assert b"runner.py" not in client.exec_start(look)


async def test_it_serves_one_session_at_a_time(profile: Profile) -> None:
    with anyio.fail_after(60):
        async with open_service(profile) as service:
            first = await execute(service, "1")
            with pytest.raises(CapacityReached, match="one session at a time; close the other"):
                await execute(service, "2")
            await service.sessions.close(first.session_id)
            await service.pool_until(lambda pool: pool.leased == pool.closing == 0)
            assert (await execute(service, "3")).result == "3"


async def test_a_container_that_is_missing_or_does_not_run_is_named(
    engine: tuple[str, docker.APIClient], container: str, profile: Profile
) -> None:
    name, client = engine
    with anyio.fail_after(60):
        async with open_service(changed(profile, containers={"join": "no-such-container"})) as service:
            with pytest.raises(StartFailed, match=f"{name} at .* has no container no-such-container"):
                await execute(service, "1")
        client.kill(container)
        async with open_service(profile) as service:
            with pytest.raises(StartFailed, match=f"container {container} is not running on {name}; start it"):
                await execute(service, "1")


async def test_no_container_is_joined_if_all_limits_are_required(profile: Profile) -> None:
    with anyio.fail_after(60):
        async with open_service(changed(profile, backend={"require_limits": True})) as service:
            with pytest.raises(
                EngineUnavailable, match=r"require_limits is set, and container .* has its own limits, not"
            ):
                await execute(service, "1")
            assert (await service.backend.limits()).state == "missing"
