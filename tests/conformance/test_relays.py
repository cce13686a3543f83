"""Relays that fail or send wrong frames: listening through the relay fails, and nothing else."""

from collections.abc import Awaitable, Callable, Mapping

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.containers import relay
from llm_sandbox_mcp.backends.containers.settings import Mount
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.backends.listening import Listener
from llm_sandbox_mcp.base.errors import ListeningFailed, SandboxLost
from llm_sandbox_mcp.testing.listening import (  # noqa: F401  # they run on each backend, and here over a relay
    test_a_large_answer_arrives_whole,
    test_connections_at_once_do_not_get_in_each_others_way,
    test_what_nobody_reads_yet_stays_with_its_sender,
)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("elsewhere")]

ENV = {"PATH": PATH}
_LISTENS = "$| = 1; sub put { print pack 'aNN/a*', @_ } put('L', 0, pack 'N', 80); "
_WAITS = "sleep 1 while 1"


@pytest.fixture(params=["docker", "podman", "kubernetes"])
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def rest(_: Listener) -> None:
    await anyio.sleep_forever()


async def listen(sandbox: Sandbox, use: Callable[[Listener], Awaitable[object]]) -> None:
    """Listens until listening fails."""
    async with sandbox.listen() as listener:
        await use(listener)
        await anyio.sleep_forever()


async def fails(sandbox: Sandbox, said: str, use: Callable[[Listener], Awaitable[object]] = rest) -> None:
    """Checks that listening fails for this reason, and that the sandbox goes on."""
    with anyio.fail_after(30):
        with pytest.raises(ListeningFailed, match=said) as failure:
            await listen(sandbox, use)
        assert "\n" not in str(failure.value)
        assert (await sandbox.run(["echo", "on"], ENV)).stdout == b"on\n"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("exit", "it ended"),
        ("die qq(no luck\\ntoday)", "no luck today"),
        ("print 'A' x 1e8", "not a frame"),
        ("$| = 1; print 'L', pack('NN', 0, 1 << 31); " + _WAITS, "not a frame"),
        ("$| = 1; print pack 'aNN/a*', 'L', 0, pack 'N', 1 << 20; " + _WAITS, "a port that is not valid"),
        ("$| = 1; print pack 'aNN/a*', 'L', 0, 'x'; " + _WAITS, "without the number"),
        ("$| = 1; print pack 'aNN/a*', 'O', 0, ''; " + _WAITS, "its port exactly once"),
        (_LISTENS + "put('L', 0, pack 'N', 81); " + _WAITS, "its port exactly once"),
        (_LISTENS + "put('D', 7, 'x'); " + _WAITS, "not open"),
        (_LISTENS + "put('O', 1, ''), put('O', 1, ''); " + _WAITS, "twice"),
        (_LISTENS + "put('O', $_, '') for 1..65; " + _WAITS, "more than 64"),
        (_LISTENS + "put('O', 1, ''); put('D', 1, 'x' x 65536) for 1..5; " + _WAITS, "at once"),
        (_LISTENS + "put('O', 1, ''); put('T', 1, pack 'N', 1); " + _WAITS, "at once"),
        (_LISTENS + "put('O', 1, ''); put('E', 1, ''); put('D', 1, 'x'); " + _WAITS, "had ended"),
        (_LISTENS + "put('O', 1, ''); put('C', 1, ''); put('C', 1, ''); " + _WAITS, "had ended"),
        ("print STDERR 'x' x 1e7; exit 3", "x{300};"),
    ],
)
async def test_a_relay_that_sends_wrong_frames_is_detected(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    monkeypatch.setattr(relay, "_PROGRAM", program)
    await fails(sandbox, said)


async def test_a_silent_relay_is_not_awaited_forever(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_PROGRAM", _WAITS)
    monkeypatch.setattr(relay, "_START_SECONDS", 0.3)
    await fails(sandbox, "did not start in")


async def test_a_relay_that_opens_and_closes_but_never_reads_is_detected(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _LISTENS + "for my $id (1..1e6) { put('O', $id, ''); put('C', $id, '') }"
    monkeypatch.setattr(relay, "_PROGRAM", program)

    async def hang_up(listener: Listener) -> None:
        while True:
            await (await listener.accept()).aclose()

    await fails(sandbox, r"does not read|more than 64", hang_up)


async def test_a_relay_that_code_kills_is_reported_in_one_line(sandbox: Sandbox) -> None:
    async def end(_: Listener) -> None:
        code = "for id in $(grep -lx perl /proc/[0-9]*/comm | cut -d/ -f3); do kill -9 $id; done"
        await sandbox.run(["sh", "-c", code], ENV)

    await fails(sandbox, "the relay in the sandbox failed: it ended", end)
    with anyio.fail_after(30):
        async with sandbox.listen() as listener:
            assert listener.port


async def test_a_sandbox_that_ends_while_it_listens_is_lost(sandbox: Sandbox) -> None:
    with anyio.fail_after(30), pytest.raises(SandboxLost):
        await listen(sandbox, lambda _: sandbox.kill())


class TestWithoutPerl:
    @pytest.fixture(params=["docker", "podman"])
    def backend_name(self, request: pytest.FixtureRequest) -> str:
        name: str = request.param
        return name

    @pytest.fixture
    def changes(self) -> dict[str, Mapping[str, object]]:
        return {"containers": {"mounts": (Mount(source="/dev/null", target="/usr/bin/perl"),)}}

    async def test_an_image_without_perl_is_named(self, sandbox: Sandbox) -> None:
        await fails(
            sandbox, "image llm-sandbox-mcp-python on .* supports neither libraries .* no such program .* add Perl"
        )
