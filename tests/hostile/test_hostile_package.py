"""Attack: a package whose code runs while it is built. Outcome: it runs in the same sandbox with the same limits, and
cannot reach the index once the installation is over."""

import json
import re
import socket
from collections.abc import Mapping

import anyio
import pytest

from llm_sandbox_mcp.base.errors import InstallFailed, SandboxError
from llm_sandbox_mcp.testing.asking import install
from tests.engines import MIB
from tests.hostile.conftest import ANSWER, GONE, Arena
from tests.local_index import sdist

INDEX = """
import os, re
def index():
    for process in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{process}/cmdline', 'rb') as file:
                found = re.search(rb'http://127[.]0[.]0[.]1:(\\d+)', file.read())
        except OSError:
            continue
        if found:
            return int(found[1])
"""
REACH = """
import socket
def reached(host, port):
    try:
        with socket.create_connection((host, port), 0.3):
            return True
    except OSError:
        return False
"""
IGNORE_SIGNALS = "    import signal\n    for number in range(1, 65):\n        try: signal.signal(number, signal.SIG_IGN)\n        except (OSError, ValueError): pass\n"
DAEMON = f"""{INDEX}{REACH}
import time
port = index()
if os.fork() == 0:
    os.setsid()
{IGNORE_SIGNALS}
    for number in range(3): os.close(number)
    while True:
        # The last line is the present state.
        with open('/sandbox/.seen', 'a') as file:
            print(reached('127.0.0.1', port), file=file)
        time.sleep(0.02)
while not os.path.exists('/sandbox/.seen'): time.sleep(0.01)
"""
PACKAGES: Mapping[str, str] = {
    "loops": "while True: pass",
    "sleeps": "import time\ntime.sleep(1000)",
    "prints": "import os\nwhile True: os.write(1, b'x' * 65536)",
    "prints-errors": "import os\nwhile True: os.write(2, b'\\n\\x1b[2J' * 10000)",
    "fills": "import itertools\nfor number in itertools.count(): open(f'/home/{number}', 'wb').write(bytes(1 << 20))",
    "forks": "import os\nwhile True: os.fork()",
    "eats": "held = []\nwhile True: held.append(bytearray(1 << 20))",
    "kills": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "escapes": "import sys\nsys.exit('\\x1b]52;c;eA==\\x07\\u202e\\nforged line')",
    "daemon": DAEMON,
}
PROFILE: dict[str, Mapping[str, object]] = {
    "limits": {"memory": 384 * MIB, "disk": 64 * MIB, "install_timeout": 6.0},
    "packages": PACKAGES,
}
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("limits", [PROFILE], indirect=True, ids=["packages"])]


async def attack_by(arena: Arena, name: str, session: str = "") -> str:
    """Installs a package while the neighbour works; returns the error message, or an empty string."""
    said = []

    async def attack() -> None:
        try:
            await install(arena.service, [name], session_id=session)
        except SandboxError as error:
            said.append(str(error))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attack)
        with anyio.fail_after(ANSWER):
            await arena.neighbour_works()
    arena.outputs += said
    return "".join(said)


@pytest.mark.parametrize("name", ["loops", "sleeps", "prints", "prints-errors", "fills", "forks", "eats", "kills"])
async def test_a_build_has_the_limits_of_its_sandbox(arena: Arena, name: str) -> None:
    with anyio.fail_after(6 + 4 * ANSWER):
        said = await attack_by(arena, name)
    assert said, "it was installed"
    assert len(said) < 4000


async def test_the_session_of_a_build_that_fails_goes_on(arena: Arena) -> None:
    session = (await arena.attack("kept = 1")).session_id
    assert "took longer than 6s" in await attack_by(arena, "loops", session)
    assert await arena.check("print(kept)", session) == "1\n"
    with pytest.raises(InstallFailed):
        await install(arena.service, ["nosuchthing"], session_id=session)


async def test_the_error_of_a_build_is_one_line(arena: Arena) -> None:
    said = await attack_by(arena, "escapes")
    assert "forged line" in said
    assert "\n" not in said and "\x1b" not in said and "\u202e" not in said, said


async def test_a_daemon_of_a_build_has_no_way_to_the_index_afterwards(arena: Arena) -> None:
    session = (await arena.attack("1")).session_id
    assert await attack_by(arena, "daemon", session) == ""
    assert arena.index is not None
    requests = len(arena.index.requests)
    look = "import time\nbefore = len(open('/sandbox/.seen').readlines())\nwhile len(seen := open('/sandbox/.seen').readlines()) < before + 5: time.sleep(0.02)\nprint(seen[0], seen[-1])"
    assert re.findall(r"\w+", await arena.check(look, session)) == ["True", "False"]
    assert len(arena.index.requests) == requests


async def test_a_build_reaches_the_index_and_nothing_else(arena: Arena) -> None:
    assert arena.index is not None
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("0.0.0.0", 0)) as wide:
        places = [
            *(("127.0.0.1", one.getsockname()[1]) for one in (listener, wide)),
            *((host, port) for host in ("169.254.169.254", "10.0.0.1", "1.1.1.1") for port in (53, 80, 443)),
            ("127.0.0.1", arena.index.port),
        ]
        code = (
            f"{INDEX}{REACH}\nimport json, sys\nfrom concurrent.futures import ThreadPoolExecutor\nplaces = {places!r}\n"
            "with ThreadPoolExecutor(len(places)) as threads: answers = list(threads.map(lambda place: reached(*place), places))\n"
            "found = [place for place, answer in zip(places, answers) if answer and place[1] != index()]\n"
            "found += [reached('127.0.0.1', index())]\n"
            f"for path in ({str(arena.canaries.public)!r}, {str(arena.canaries.private)!r}, '/proc/1/environ'):\n"
            "    try: found += [path] if 'canary' in open(path).read() else []\n    except OSError: pass\n"
            "found += [value for value in os.environ.values() if 'canary' in value]\n"
            "with open('/sandbox/found.json', 'w') as file: json.dump(found, file)\n"
        )
        arena.index.add_project("reaches", sdist("reaches", code), arena.index)
        session = (await arena.attack("1")).session_id
        with anyio.fail_after(6 + GONE):
            assert await attack_by(arena, "reaches", session) == ""
        found = json.loads(await arena.check("print(open('found.json').read())", session))
    assert found == [True], found
