"""Networks that the embedded backend opens: who gets one, how they end, and the errors if none can be opened.

Attacks through such a network are in `hostile/test_open_network.py`.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Backend
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.base.errors import ProfileError
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.containers.engines import until
from tests.engines import changed, small_profile
from tests.leftovers import look
from tests.outside import ANSWER, PORT, Outside, outside

from .test_pool import filled, opened, said

pytestmark = pytest.mark.anyio

OPEN: dict[str, Mapping[str, object]] = {"network": {"mode": "open"}}
REACH = "(exec 3<>/dev/tcp/{}/{} && cat <&3) 2>/dev/null || echo unreachable"
DEVICES = "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' ' | sort | tr '\\n' ' '"
GONE = 20.0
"""Seconds until nothing is left; a tenth of a second is usual."""


@pytest.fixture(params=["embedded"])
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def changes() -> dict[str, Mapping[str, object]]:
    return OPEN


@pytest.fixture
def world() -> Iterator[Outside]:
    with outside() as made:
        yield made


def openers() -> Sequence[int]:
    """The processes that open networks, of all servers below this process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text() == "slirp4netns\n" and _is_below(int(path.parent.name)):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def _is_below(process: int) -> bool:
    while process > 1 and process != os.getpid():
        process = parent(process)
    return process == os.getpid()


def parent(process: int) -> int:
    stat = Path(f"/proc/{process}/stat").read_text()
    return int(stat[stat.rindex(")") + 2 :].split()[1])


async def test_code_with_an_open_network_reaches_the_world_and_code_without_one_does_not(
    service: Service, world: Outside, folder: Path
) -> None:
    code = REACH.format(world.address, PORT)
    async with open_service(small_profile("embedded", folder / "closed")) as closed:
        ran = [(await execute(one, code, language="bash")).stdout.text for one in (service, closed)]
        devices = [(await execute(one, DEVICES, language="bash")).stdout.text.split() for one in (service, closed)]
    assert ran == [ANSWER, "unreachable\n"]
    assert [names.count("tap0") for names in devices] == [1, 0]


async def test_the_process_that_opens_a_network_has_no_rights_beyond_the_sandbox(
    service: Service, world: Outside
) -> None:
    await execute(service, "echo x", language="bash")
    (opener,) = openers()
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{opener}/status").read_text().splitlines())
    assert {int(number) >= 200_000 for number in (*status["Uid"].split(), *status["Gid"].split())} == {True}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    # It has only the capability to listen on ports below 1024, and only in its own user namespace.
    assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 1 << 10
    assert os.readlink(f"/proc/{opener}/ns/user") != os.readlink("/proc/self/ns/user")
    assert set(os.listdir(f"/proc/{opener}/root")) == {"etc", "run"}
    assert Path(f"/proc/{opener}/cgroup").read_text() != Path("/proc/self/cgroup").read_text()


async def test_a_network_opens_whatever_the_umask_of_the_server(folder: Path, open_network: None) -> None:
    before = os.umask(0o077)
    try:
        async with open_service(small_profile("embedded", folder / "made", **OPEN)) as service:
            assert "tap0" in (await execute(service, DEVICES, language="bash")).stdout.text.split()
    finally:
        os.umask(before)


async def test_a_network_ends_with_its_session(service: Service) -> None:
    ran = await execute(service, "echo x", language="bash")
    assert len(openers()) == 1
    await service.sessions.close(ran.session_id)
    await until(lambda: not openers(), GONE)


async def test_networks_that_end_with_their_sessions_are_not_reported_as_lost(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    # Several: which of a sandbox's processes ends first is up to the kernel.
    for _ in range(10):
        ran = await execute(service, "echo x", language="bash")
        await service.sessions.close(ran.session_id)
    await until(lambda: not openers(), GONE)
    assert "has lost its network" not in caplog.text


async def test_a_network_ends_with_a_launcher_that_is_killed(service: Service) -> None:
    await execute(service, "echo x", language="bash")
    (opener,) = openers()
    os.kill(parent(opener), signal.SIGKILL)
    # Orphans of the launcher become children of this process (`leftovers.py`), which can then wait for them.
    await until(lambda: parent(opener) == os.getpid(), GONE)
    with anyio.fail_after(GONE):
        _, status = await anyio.to_thread.run_sync(os.waitpid, opener, 0, abandon_on_cancel=True)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


async def test_a_server_that_is_killed_leaves_no_network(folder: Path, open_network: None) -> None:
    state = partial(look, folder / "runtime")
    before = state()
    profile = folder / "own.toml"
    profile.write_text(f'[network]\nmode = "open"\n[server]\nruntime = "{folder}/runtime"\n')
    code = "echo on; sleep 1000"
    argv = [sys.executable, "-m", "llm_sandbox_mcp", "run", "--profile", str(profile), "--language", "bash", "-c", code]
    async with await anyio.open_process(argv, stderr=None) as server:
        assert server.stdout is not None
        assert await server.stdout.receive() == b"on\n"
        assert len(openers()) == 1
        server.kill()
    # Removing the folder is the last thing that the launcher does; the launcher itself is left for this process to
    # collect.
    await until(lambda: not os.listdir(folder / "runtime"), GONE)
    assert openers() == []
    assert set(state().beyond(before)) <= {"processes"}


async def test_a_sandbox_that_loses_its_network_goes_on_without_it_and_a_warning_is_logged(
    service: Service, world: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    first = await execute(service, "n=20", language="bash")
    (opener,) = openers()
    os.kill(opener, signal.SIGKILL)
    await until(lambda: "has lost its network" in caplog.text, GONE)
    code = f"echo $((n + 1)); {REACH.format(world.address, PORT)}"
    ran = await execute(service, code, language="bash", session_id=first.session_id)
    assert ran.stdout.text == "21\nunreachable\n"
    await service.sessions.close(first.session_id)


async def test_a_warm_sandbox_with_an_open_network_serves_no_closed_request(backend: Backend, profile: Profile) -> None:
    closed, granted = profile.limits.policy(), profile.policy()
    async with opened(backend, min=1) as pool:
        await filled(pool, granted)
        lease = await pool.acquire("bash", closed)
        done = await lease.sandbox.run(["bash", "-c", DEVICES], {"PATH": PATH})
        assert b"lo" in done.stdout.split()
        assert b"tap0" not in done.stdout.split()
        lease.release()
        lease = await pool.acquire("bash", granted)
        assert "tap0" in (await said(lease, DEVICES)).split()
        lease.release()


async def test_the_profile_is_refused_if_the_program_is_missing(folder: Path) -> None:
    profile = small_profile("embedded", folder, **OPEN)
    with pytest.raises(ProfileError, match=r"network.mode: .* no-such-program is not on PATH; .* slirp4netns$"):
        async with open_service(changed(profile, embedded={"slirp4netns": "no-such-program"})):
            pass


async def test_doctor_shows_the_program_only_if_the_profile_opens_networks(folder: Path, backend: Backend) -> None:
    async with open_service(small_profile("embedded", folder / "closed")) as closed:
        rows = [await one.probe() for one in (backend, closed.backend)]
    assert [[row.state for row in checks if row.name == "slirp4netns"] for checks in rows] == [["ok"], []]
