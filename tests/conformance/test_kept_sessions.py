"""Sessions that are put aside, and opened again by their ids, on every backend."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp import Profile
from llm_sandbox_mcp.base.errors import UnknownSession
from llm_sandbox_mcp.base.principal import ANONYMOUS, TOKEN, USER
from llm_sandbox_mcp.service.ask import Ask
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.testing.profiles import MIB, changed

from .kept import lose_sandbox, notes, put_aside, saved, serving
from .test_saved_sessions import VARIABLES

pytestmark = pytest.mark.anyio


@pytest.fixture
def changes(folder: Path) -> dict[str, Mapping[str, object]]:
    return {"sessions": {"keep": True, "store": str(folder / "kept"), "save_timeout": 30.0}}


@pytest.mark.parametrize("language", VARIABLES)
@pytest.mark.in_turns
async def test_an_idle_session_is_put_aside_and_its_next_use_opens_it(profile: Profile, language: str) -> None:
    made, asked, answer = VARIABLES[language]
    async with serving(profile, idle_timeout=0.5) as service:
        first = await execute(service, made, language=language)
        assert first.status == "ok", first
        await put_aside(service, first.session_id)
        again = await execute(service, asked, language=language, session_id=first.session_id)
        assert (again.status, (again.result or again.stdout.text).strip()) == ("ok", answer), again
        assert (again.session_id, again.session_state) == (first.session_id, "kept")
        [note] = notes(again, "opened_again")
        assert note.startswith("the session was put aside ")
        assert f" of {language}, " in note
        await put_aside(service, first.session_id)
        assert not service.sessions.list()


async def test_another_server_goes_on_with_what_one_had_when_it_ended(profile: Profile) -> None:
    code = """
import os, socket
x = [1]
y = x
opened = socket.socket()
os.mkdir("deep")
with open("deep/file", "w") as file:
    file.write("content")
with open("/tmp/file", "w") as file:
    file.write("of tmp")
"""
    async with serving(profile) as service:
        first = await execute(service, code)
        assert first.status == "ok", first
    look = 'y.append(2); x, open("deep/file").read(), open("/tmp/file").read()'
    async with serving(profile) as service:
        assert not service.sessions.list()
        again = await execute(service, look, session_id=first.session_id)
        assert again.result == "([1, 2], 'content', 'of tmp')", again
        assert notes(again, "not_kept") == [
            "not kept: python: opened (socket.socket): cannot pickle 'socket' object",
        ]
        assert service.files.artifacts(first.session_id)[0].name == "deep/file"
        assert (await execute(service, "x", session_id=first.session_id)).notes == ()
    async with serving(profile) as service:
        once_more = await execute(service, "x", session_id=first.session_id)
        assert once_more.result == "[1, 2]"
        await service.sessions.close(first.session_id)
    async with serving(profile) as service:
        with pytest.raises(UnknownSession):
            await execute(service, "x", session_id=first.session_id)
    assert not [path for path in Path(profile.sessions.store).rglob("*") if path.is_file()]


async def test_nobody_else_gets_it_and_nothing_is_kept_of_callers_that_nobody_knows(profile: Profile) -> None:
    async with serving(profile) as service:
        first = await execute(service, "x = 1")
        unknown = await service.run(Ask(caller=ANONYMOUS, code="x = 2"))
    async with serving(profile) as service:
        for caller, session in ((TOKEN, first), (ANONYMOUS, first), (ANONYMOUS, unknown), (USER, unknown)):
            with pytest.raises(UnknownSession):
                await service.run(Ask(caller=caller, code="x", session_id=session.session_id))
        assert (await execute(service, "x", session_id=first.session_id)).result == "1"


async def test_a_session_that_is_used_while_it_is_put_aside_goes_on(profile: Profile) -> None:
    async with serving(profile, idle_timeout=0.3) as service:
        session_id = (await execute(service, "import os\nbig = os.urandom(4 << 20)\nn = 0")).session_id
        for number in range(1, 7):
            # At another moment each time: before, while and after it is put aside.
            await anyio.sleep(0.24 + 0.03 * number)
            assert (await execute(service, "n += 1; n", session_id=session_id)).result == str(number)


CHANGES = (
    "import os; os.makedirs('a/b'); open('a/b/c', 'w').write('1'); open('kept', 'w').write('kept'); x = [1]; y = x",
    "y.append(2)",
    "open('a/b/c', 'w').write('22'); open('a/new', 'w').close(); os.chmod('kept', 0o600)",
    "os.remove('a/b/c'); os.rmdir('a/b'); open('a/b', 'w').write('a file now'); os.link('kept', 'linked')",
    "os.remove('a/new'); os.makedirs('a/new/deep'); os.rename('a', 'moved'); z = y; del x",
    "os.symlink('moved/b', 'link'); open('/tmp/t', 'w').write('t')",
)
STATE = """
import os
found = sorted(os.path.join(place, name) for place, folders, files in os.walk(".") for name in [*folders, *files])
(found, open("link").read(), oct(os.stat("kept").st_mode), os.stat("linked").st_nlink, open("/tmp/t").read(), y, z is y)
"""


async def test_after_each_run_what_changed_is_saved_and_a_lost_sandbox_returns_to_it(profile: Profile) -> None:
    async with serving(profile, checkpoint="run") as service:
        session_id = ""
        for number, code in enumerate(CHANGES, 1):
            run = await execute(service, code, session_id=session_id)
            assert (run.status, notes(run, "started_fresh")) == ("ok", []), run
            session_id = run.session_id
            await saved(service.profile, session_id, number)
        before = (await execute(service, STATE, session_id=session_id)).result
        assert before is not None
        assert "a file now" in before
        await saved(service.profile, session_id, len(CHANGES) + 1)
        await lose_sandbox(service, session_id)
        again = await execute(service, STATE, session_id=session_id)
        assert again.result == before
        [note] = notes(again, "opened_again")
        assert f"after run {len(CHANGES) + 1}, " in note
        assert "what came after that is lost" in note
        assert not notes(again, "started_fresh")


async def test_a_session_that_does_not_fit_todays_profile_is_refused_by_name_and_stays(profile: Profile) -> None:
    async with serving(profile) as service:
        session_id = (await execute(service, "import os\nopen('large', 'wb').write(os.urandom(9 << 20))")).session_id
    async with serving(changed(profile, limits={"disk": 4 * MIB})) as service:
        for _ in range(2):
            with pytest.raises(Exception, match="the session cannot be opened again: the files do not fit"):
                await execute(service, "1", session_id=session_id)
    async with serving(profile) as service:
        size = await execute(service, "import os\nos.stat('large').st_size", session_id=session_id)
        assert size.result == str(9 << 20)


HARD = {
    "a folder that is closed to writing": (
        "import os; os.mkdir('d'); [open(f'd/{n}', 'w').write(n) for n in 'abc']; os.chmod('d', 0o555)",
        "os.chmod('d', 0o755); os.remove('d/a'); open('d/b', 'w').write('new'); os.chmod('d', 0o555)",
        "sorted(os.listdir('d')), open('d/b').read(), oct(os.stat('d').st_mode)",
    ),
    "a file that is written through memory": (
        "import mmap; f = open('f', 'wb+'); f.write(b'1'); f.flush(); m = mmap.mmap(f.fileno(), 0)",
        "m[0:1] = b'2'",
        "open('f').read()",
    ),
    "the mode of the working directory": (
        "import os",
        "os.chmod('/sandbox', 0o700)",
        "oct(os.stat('/sandbox').st_mode)",
    ),
    "a folder that takes the place of a file": (
        "import os; open('x', 'w').close(); os.mkdir('y'); open('y/z', 'w').close()",
        "os.remove('x'); os.makedirs('x/deep'); os.remove('y/z'); os.rmdir('y'); os.symlink('x', 'y')",
        "os.path.isdir('x/deep'), os.readlink('y')",
    ),
    "names that look like something else": (
        "import os; names = ['-rf', '--help', ' lead', 'new\\nline', '*', 'back\\\\slash', '@f', 'q\"']",
        "[open(name, 'w').write(name) for name in names]; open(b'\\xff\\xfe', 'w').close()",
        "[open(name).read() == name for name in names], os.path.exists(b'\\xff\\xfe')",
    ),
    "what the server needs is removed": ("x = 1", "import shutil; x = 2; shutil.rmtree('/tmp/.sandbox-state')", "x"),
    "what the server needs is another thing": (
        "import os, shutil; x = 1; p = '/tmp/.sandbox-state'",
        "x = 2; shutil.rmtree(p); os.mkdir('/tmp/other'); os.symlink('/tmp/other', p)",
        "x",
    ),
    "a large value that is another one each time": (
        "import os; x = os.urandom(1)",
        "x = os.urandom(1 << 20)",
        "import hashlib; hashlib.sha1(x).hexdigest()",
    ),
}


@pytest.mark.parametrize("what", HARD)
@pytest.mark.only_in_all(but={"backend_name": "embedded"})
async def test_the_last_state_has_what_is_hard_to_see(profile: Profile, backend_name: str, what: str) -> None:
    if backend_name == "kubernetes" and what == "the mode of the working directory":
        pytest.skip("there it is a volume of root's, whose mode the code cannot change")
    first, change, look = HARD[what]
    async with serving(profile, checkpoint="run") as service:
        session_id = (await execute(service, first)).session_id
        await saved(service.profile, session_id, 1)
        for number in range(12 if "large" in what else 1):
            assert (await execute(service, change, session_id=session_id)).status == "ok"
            await saved(service.profile, session_id, number + 2)
        before = (await execute(service, look, session_id=session_id)).result
        assert before is not None
        await lose_sandbox(service, session_id)
        again = await execute(service, look, session_id=session_id)
        assert again.result == before, again
        assert notes(again, "opened_again")


async def test_code_that_stops_the_saving_of_its_own_session_stops_that_of_no_other(profile: Profile) -> None:
    code = """
import os
place = "/tmp/.sandbox-state/python/known"
os.path.exists(place) and os.remove(place)
os.makedirs(os.path.dirname(place), exist_ok=True)
os.mkfifo(place)
"""
    async with serving(changed(profile, sessions={"max": 8}), checkpoint="run") as service:
        for _ in range(4):
            hostile = (await execute(service, "1")).session_id
            await saved(service.profile, hostile, 1)
            await execute(service, code, session_id=hostile)
        other = (await execute(service, "x = 1")).session_id
        await saved(service.profile, other, 1)


async def test_two_servers_that_have_the_same_session_never_mix_it(profile: Profile) -> None:
    async with serving(profile, checkpoint="run") as one, serving(profile, checkpoint="run") as two:
        session_id = (await execute(one, "x = ['one']; open('f', 'w').write('one')")).session_id
        await saved(one.profile, session_id, 1)
        await execute(two, "x.append('two'); open('f', 'w').write('two')", session_id=session_id)
        await saved(two.profile, session_id, 2)
        await execute(one, "x.append('one'); open('f', 'a').write('one')", session_id=session_id)
        await execute(one, "y = 1", session_id=session_id)
        await saved(one.profile, session_id, 3)
        await lose_sandbox(two, session_id)
        again = await execute(two, "x, open('f').read()", session_id=session_id)
        assert again.result == "(['one', 'one'], 'oneone')"
