"""Attack: locking and listing the environments of prepared libraries. Outcome: no server waits for such a lock, not even
one that builds an environment meanwhile, and code sees no environments but those of its own server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.libraries.prepared.builds import Environments
from llm_sandbox_mcp.libraries.prepared.environments import place_of
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder
from tests.hostile.conftest import Arena
from tests.local_index import LocalIndex, local_index, wheel

pytestmark = pytest.mark.anyio

LOCK = """
import fcntl, glob, os
top, seen, kept = '/opt/environments', set(), {}
def lock(path):
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return
    state = os.fstat(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass
    if kept.setdefault((state.st_dev, state.st_ino), file) != file:
        os.close(file)
def folders(place):
    try:
        return [entry.path for entry in os.scandir(place) if entry.is_dir()]
    except OSError:
        return []
for folder, _, files in os.walk(top):
    for name in ('', *files[:10]):
        lock(os.path.join(folder, name))
print('locking', flush=True)
while not glob.glob(top + '/**/site-packages/tiny*', recursive=True):
    for _ in range(100):
        for place in folders(top):
            seen.add(os.path.basename(place))
            for environment in (place, *folders(place)):
                lock(environment + '/.lock')
print(*sorted(seen))
print(open('/proc/self/mountinfo').read())
"""


@asynccontextmanager
async def serving(index: LocalIndex, folder: Path, library: str) -> AsyncIterator[Service]:
    """A server whose Python has one library, with a cache that it shares with other servers."""
    server = {"cache": str(folder / "cache"), "runtime": str(folder / "runtime")}
    languages = {"python": {"libraries": [library], "index": f"{index.url}/simple"}}
    profile = load_profile(over={"backend": {"name": "embedded"}, "server": server, "languages": languages})
    async with open_service(profile, environ={"PATH": "/usr/bin:/bin", "UV_CACHE_DIR": str(folder / "uv")}) as service:
        yield service


async def quiet(line: str) -> None:
    pass


async def test_no_server_waits_for_code_that_locks_environments_and_code_sees_only_its_own(arena: Arena) -> None:
    if arena.backend != "embedded":
        pytest.skip("the sandboxes of an engine have an environment in their image, and see no folder of the machine")
    with host_folder() as folder, local_index() as index, anyio.fail_after(60):
        async with serving(index, folder, "tiny") as service, Environments(folder / "cache") as other:
            # The index has nothing yet, so it runs without the library of the profile.
            session = (await execute(service, "1")).session_id
            index.add_project("other", wheel("other"), index)
            index.add_project("tiny", wheel("tiny"), index)
            python, locking, done = service.languages["python"], anyio.Event(), []

            async def see(stream: str, text: str) -> None:
                locking.set()

            async def attack() -> None:
                done.append(await execute(service, LOCK, session_id=session, on_output=see))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(attack)
                await locking.wait()
                for library in ("other", "tiny"):
                    await other.prepare(python, [library], quiet, index=f"{index.url}/simple")
            assert done[0].status == "ok", done
            _, seen, mounts = done[0].stdout.text.split("\n", 2)
            own, foreign = [
                {place_of(folder / "cache", python, libraries).name for libraries in sets}
                for sets in (((), ("tiny",)), (("other",),))
            ]
            assert set(seen.split()) == own
            assert all(name in mounts for name in own) and not any(name in mounts for name in foreign)
            # What was prepared meanwhile is there for the sandbox that runs.
            again = await execute(
                service, "import glob; print(len(glob.glob('/opt/environments/*/*/pyvenv.cfg')))", session_id=session
            )
            assert again.stdout.text == "2\n", again
