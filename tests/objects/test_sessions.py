"""Sessions whose place is an object store, with whole servers: saved, opened by another one, put aside, and encrypted."""

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp import Profile, Sandboxes
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service

from ..engines import changed, host_folder, small_profile
from .servers import ObjectServer

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("embedded")]

LIMIT = 100.0


@pytest.fixture
def prefix() -> str:
    return secrets.token_hex(4)


@pytest.fixture(params=["plain", "encrypted"])
def profile(
    request: pytest.FixtureRequest, on_rclone: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Profile]:
    for name, value in on_rclone.variables().items():
        monkeypatch.setenv(name, value)
    with host_folder() as folder:
        sessions: dict[str, object] = {"store": on_rclone.place(prefix), "keep": True}
        if request.param == "encrypted":
            key = folder / "key"
            key.write_text(f"{secrets.token_hex(32)}\n")
            sessions["key_file"] = str(key)
        yield small_profile("embedded", folder, sessions=sessions)
        assert not (folder / "saved").exists()


def stored(server: ObjectServer, prefix: str) -> Mapping[str, bytes]:
    """All that is there, by name."""
    return {path: Path(path).read_bytes() for path in server.there(prefix)}


async def test_a_saved_session_is_opened_by_another_server(profile: Profile) -> None:
    with anyio.fail_after(LIMIT):
        async with Sandboxes(profile) as first, first.session() as session:
            await session.run("import os; x = 6; data = os.urandom(9 << 20); open('f', 'w').write('content')")
            size = (await session.run("sum(data)")).result
            await session.save("a name")
        async with Sandboxes(profile) as second, second.open("a name") as session:
            assert (await session.run("x, open('f').read(), sum(data)")).result == f"(6, 'content', {size})"


async def test_a_session_that_was_put_aside_goes_on_in_the_next_server(profile: Profile) -> None:
    with anyio.fail_after(LIMIT):
        async with open_service(profile) as first:
            session_id = (await execute(first, "x = 6; open('f', 'w').write('content')")).session_id
        for number in range(2):
            async with open_service(profile) as another:
                ran = await execute(another, "x += 1; x, open('f').read()", session_id=session_id)
                assert ran.result == f"({7 + number}, 'content')", ran


async def test_what_a_store_holds_can_be_read_only_without_a_key(
    profile: Profile, on_rclone: ObjectServer, prefix: str
) -> None:
    # Random bytes stay as they are when they are compressed.
    variable, content, name = secrets.token_bytes(3000), secrets.token_bytes(3000), f"n{secrets.token_hex(8)}"
    code = f"{name}_x = bytes.fromhex('{variable.hex()}'); open('{name}.bin', 'wb').write(bytes.fromhex('{content.hex()}'))"
    with anyio.fail_after(LIMIT):
        async with Sandboxes(profile) as first, first.session() as session:
            assert [made.name for made in (await session.run(code)).artifacts] == [f"{name}.bin"]
            await session.save("geo")
        async with open_service(profile) as service:
            await execute(service, code)
    held = stored(on_rclone, prefix)
    assert len(held) >= 2
    marks = [part[at : at + 16] for part in (variable, content) for at in range(1000, 2000, 100)]
    marks += [name.encode(), variable.hex()[:64].encode(), content.hex()[:64].encode()]
    found = [mark for mark in marks if any(mark in path.encode() + content for path, content in held.items())]
    assert bool(found) is not bool(profile.sessions.key_file)


@pytest.mark.parametrize("profile", ["encrypted"], indirect=True)
async def test_without_the_key_a_session_is_not_opened_and_stays(profile: Profile) -> None:
    with anyio.fail_after(LIMIT):
        async with Sandboxes(profile) as first, first.session() as session:
            await session.run("x = 6")
            await session.save("geo")
        async with Sandboxes(changed(profile, sessions={"key_file": ""})) as second:
            with pytest.raises(Exception, match=r"is encrypted; the operator can set sessions\.key_file"):
                async with second.open("geo"):
                    pass
        async with Sandboxes(profile) as third, third.open("geo") as session:
            assert (await session.run("x")).result == "6"


@pytest.mark.parametrize("profile", ["plain"], indirect=True)
async def test_what_was_saved_before_there_was_a_key_is_not_opened_with_one_and_stays(
    profile: Profile, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text(f"{secrets.token_hex(32)}\n")
    with anyio.fail_after(LIMIT):
        async with Sandboxes(profile) as first, first.session() as session:
            await session.run("x = 6")
            await session.save("geo")
        async with Sandboxes(changed(profile, sessions={"key_file": str(key)})) as second:
            with pytest.raises(
                Exception, match=r"is not encrypted.*; the operator can set sessions\.key_file .* as it was"
            ):
                async with second.open("geo"):
                    pass
        async with Sandboxes(profile) as third, third.open("geo") as session:
            assert (await session.run("x")).result == "6"
