"""Sessions that are saved, opened again and branched, on every backend."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp import Profile, Sandboxes
from llm_sandbox_mcp.base.errors import BadState, InvalidArgument, PolicyDenied, SandboxLost, UnknownState
from llm_sandbox_mcp.base.principal import ANONYMOUS, TOKEN
from llm_sandbox_mcp.base.results import Missing
from llm_sandbox_mcp.testing.asking import session_of
from llm_sandbox_mcp.testing.profiles import MIB, changed
from tests.engines import need

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sandboxes(anyio_backend: str, backend_name: str, profile: Profile) -> AsyncIterator[Sandboxes]:
    await need(backend_name)
    with anyio.fail_after(90):
        async with Sandboxes(profile) as opened:
            yield opened


MAKE = """
import os
os.makedirs("deep/er")
with open("deep/er/data.txt", "w") as file:
    file.write("content")
os.chmod("deep", 0o750)
os.chmod("deep/er/data.txt", 0o640)
os.utime("deep/er/data.txt", ns=(1, 1_700_000_000_123_456_789))
os.link("deep/er/data.txt", "second")
os.symlink("deep/er", "link")
os.symlink("nowhere", "broken")
open("name with spaces, ü and \\n", "w").close()
with open("holes", "wb") as file:
    file.truncate(12 << 20)
    file.write(b"start")
with open(os.path.expanduser("~/.config"), "w") as file:
    file.write("at home")
with open("/tmp/not kept", "w") as file:
    file.write("")
x = 41
"""
LOOK = """
import os
data, second, holes = os.stat("deep/er/data.txt"), os.stat("second"), os.stat("holes")
print(oct(os.stat("deep").st_mode), oct(data.st_mode), data.st_mtime_ns, data.st_ino == second.st_ino)
print(os.readlink("link"), os.readlink("broken"), open("link/data.txt").read())
print(sorted(os.listdir(".")), holes.st_size, holes.st_blocks < 100, open(os.path.expanduser("~/.config")).read())
print(os.listdir("/tmp"))
"""
SEEN = """\
0o40750 0o100640 1700000000123456789 True
deep/er nowhere content
['broken', 'deep', 'holes', 'link', 'name with spaces, ü and \\n', 'second'] 12582912 True at home
"""


async def test_a_saved_session_is_opened_with_its_files_links_modes_and_times(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        assert (await session.run(MAKE)).status == "ok"
        saved = await session.save("geo")
        assert (saved.name, saved.files >= 9, saved.problem) == ("geo", True, "")
        assert (await session.run("x")).result == "41"  # it goes on unchanged
        assert (await session.run(LOOK)).stdout.text == SEEN + "['not kept']\n"
        [artifact] = [one for one in session.artifacts() if one.name == "deep/er/data.txt"]
    async with sandboxes.open("geo") as again:
        assert again.opened is not None
        assert (again.opened.files, again.language) == (saved.files, "python")
        assert (await again.run(LOOK)).stdout.text == SEEN + "[]\n"
        assert artifact in again.artifacts()
        assert await again.artifact("deep/er/data.txt") == b"content"
    assert [one.name for one in await sandboxes.saved()] == ["geo"]
    await sandboxes.delete("geo")
    assert await sandboxes.saved() == ()
    with pytest.raises(UnknownState):
        await sandboxes.delete("geo")


async def test_another_server_opens_what_one_has_saved(sandboxes: Sandboxes, profile: Profile) -> None:
    async with sandboxes.session() as session:
        await session.run("open('kept', 'w').write('content')")
        await session.save("geo")
    async with Sandboxes(profile) as others, others.open("geo") as again:
        assert await again.read("kept") == b"content"


async def test_what_is_in_tmp_is_saved_if_asked(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        await session.run("open('/tmp/kept', 'w').write('content')")
        await session.save("geo", tmp=True)
    async with sandboxes.open("geo") as again:
        assert (
            await again.run("import os\nos.listdir('/tmp'), open('/tmp/kept').read()")
        ).result == "(['kept'], 'content')"


async def test_a_branch_starts_where_the_session_stands_and_both_go_on_separately(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        await session.run("open('kept', 'w').write('1'); open('/tmp/kept', 'w').write('2')")
        async with session.branch() as branch:
            assert branch.opened is not None
            assert branch.id != session.id
            assert await branch.read("kept") == b"1"
            assert (await branch.run("open('/tmp/kept').read()")).result == "'2'"
            await branch.run("open('kept', 'w').write('3')")
            assert [one.name for one in branch.artifacts()] == ["kept"]
        assert await session.read("kept") == b"1"


async def test_what_cannot_be_kept_is_named_when_it_is_saved_and_when_it_is_opened(sandboxes: Sandboxes) -> None:
    code = "import os, socket\nopened = socket.socket(socket.AF_UNIX)\nopened.bind('here')\nopen('shut', 'w').close()\n"
    async with sandboxes.session() as session:
        assert (await session.run(f"{code}os.chmod('shut', 0)")).status == "ok"
        saved = await session.save("geo")
    async with sandboxes.open("geo") as again:
        assert again.opened is not None
        for missing in (saved.missing, again.opened.missing):
            assert Missing("", "/sandbox/here", "", "it is a socket") in missing
            assert [one.name for one in missing if "Permission denied" in one.reason] == ["/sandbox/shut: Cannot open"]


VARIABLES = {
    "python": ("a = [1]; b = a\ndef f():\n    return sum(a)", "b.append(41); f()", "42"),
    "javascript": ("const a = [1]; let b = a; function f() { return a[0] + a[1] }", "b.push(41); f()", "42"),
    "bash": ("a=41; f() { echo $((a + 1)); }; mkdir below; cd below", 'printf %s "$(f)"; [[ $PWD == */below ]]', "42"),
    "ruby": ("a = [1]; b = a; def f(list) = list.sum", "b << 41; f(a)", "42"),
    "r": ("a <- new.env(); b <- a; a$x <- 41; f <- function() a$x + 1", "b$x <- 41; f()", "[1] 42"),
}


@pytest.mark.parametrize("language", VARIABLES)
@pytest.mark.in_turns
async def test_variables_and_functions_come_back_and_share_what_they_shared(
    sandboxes: Sandboxes, language: str
) -> None:
    made, asked, answer = VARIABLES[language]
    async with sandboxes.session(language) as session:
        assert (await session.run(made)).status == "ok"
        saved = await session.save("geo")
        async with session.branch() as branch:
            ran = await branch.run(asked)
            assert (ran.result or ran.stdout.text).strip() == answer, ran
    async with sandboxes.open("geo") as again:
        assert again.opened is not None
        assert (again.language, again.opened.missing, again.opened.notes) == (language, (), ())
        assert again.opened.variables == saved.variables
        assert saved.variables[language] > 0
        ran = await again.run(asked)
        assert (ran.status, (ran.result or ran.stdout.text).strip()) == ("ok", answer), ran


MANY = {
    "python": "a = list(range(300_000)); x = 41",
    "javascript": "let x = 41; const a = Array.from({length: 50_000}, (_, i) => ({i}))",
    "bash": "x=41; for i in {1..500}; do declare v$i=$i; done",
    "ruby": "x = 41; a = (1..100_000).map(&:to_s)",
    "r": "x <- 41; a <- as.list(1:100000)",
}


@pytest.mark.parametrize("language", MANY)
@pytest.mark.in_turns
async def test_a_save_that_is_broken_off_costs_no_variable(sandboxes: Sandboxes, language: str) -> None:
    asked = "printf $x" if language == "bash" else "x"
    async with sandboxes.session(language) as session:
        assert (await session.run(MANY[language])).status == "ok"
        for seconds in (0.005, 0.02, 0.08):
            with anyio.move_on_after(seconds):
                await session.save("geo")
            ran = await session.run(asked)
            assert ((ran.result or ran.stdout.text).strip(), ran.notes) == ("[1] 41" if language == "r" else "41", ())


async def test_a_session_without_variables_is_opened(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        await session.run("1")
        saved = await session.save("geo")
        assert (dict(saved.variables), saved.missing) == ({"python": 0}, ())
    async with sandboxes.open("geo") as again:
        assert again.opened is not None
        assert (dict(again.opened.variables), again.opened.missing) == ({"python": 0}, ())
        assert (await again.run("import os\nos.listdir('/tmp')")).result == "[]"


async def test_runs_are_counted_on(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        for _ in range(3):
            await session.run("1")
        await session.save("geo")
    async with sandboxes.open("geo") as again:
        assert 'File "<cell 4>", line 1' in (await again.run("1/0")).stderr.text


async def test_a_saved_session_opens_within_todays_limits_and_those_of_its_caller(
    sandboxes: Sandboxes, profile: Profile
) -> None:
    memory = "import os\nint(os.environ['SANDBOX_MEMORY'])"
    async with sandboxes.session(limits={"pids": 32, "timeout": 7}) as session:
        await session.run("1")
        await session.save("lowered")
    async with sandboxes.session() as session:
        await session.run("import os\nopen('large', 'wb').write(os.urandom(9 << 20))")
        await session.save("large")
    async with sandboxes.open("lowered") as again:
        assert (await again.run("1", timeout=7)).status == "ok"
        assert sandboxes.service.sessions.list()[0].id == again.id
        with pytest.raises(Exception, match="at most 7"):
            await again.run("1", timeout=8)
    narrower = changed(profile, limits={"disk": 4 * MIB, "memory": 100 * MIB})
    async with Sandboxes(narrower) as others:
        async with others.open("lowered") as again:
            assert (await again.run(memory)).result == str(100 * MIB)
        with pytest.raises(BadState, match=r"do not fit: a folder can have 4MiB \(limits.disk in the profile\)"):
            async with others.open("large"):
                pass
        assert others.service.sessions.list() == ()


async def test_what_cannot_be_unpacked_is_named_and_costs_nothing_else(sandboxes: Sandboxes) -> None:
    deep = "import os\nopen('kept', 'w').write('content')\nfor _ in range(30):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)"
    async with sandboxes.session() as session:
        assert (await session.run(f"{deep}\nos.chdir('/sandbox')")).status == "ok"
        saved = await session.save("geo")
    async with sandboxes.open("geo") as again:
        assert again.opened is not None
        assert saved.missing or again.opened.missing
        assert await again.read("kept") == b"content"


async def test_artifacts_for_which_there_is_no_room_are_announced(sandboxes: Sandboxes, profile: Profile) -> None:
    async with sandboxes.session() as session:
        await session.run("for i in range(6):\n    open(f'file{i}', 'w').close()")
        await session.save("geo")
    async with Sandboxes(changed(profile, artifacts={"store_files": 4})) as others, others.open("geo") as again:
        assert again.opened is not None
        assert [note.partition(";")[0] for note in again.opened.notes] == [
            "2 artifacts of the saved session are not back: there is no room for them"
        ]
        assert len(again.artifacts()) == 4


FORGED = """
import sys, types
forged = types.ModuleType("sandbox_state")
def save(folder):
    with open(folder + "/report", "w") as file:
        file.write("lost\\ta\\x1b[31m\\tb\\tc\\n" * 300_000 + "a\\n" * 1_000_000 + "x" * 10_000_000)
        file.write("\\t" * 100_000 + "\\nkept\\t7\\n")
forged.save = save
sys.modules["sandbox_state"] = forged
"""


async def test_a_forged_report_is_bounded_and_printable(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        assert (await session.run(FORGED)).status == "ok"
        saved = await session.save("geo")
    assert len(saved.missing) <= 2000
    assert all(str(one).isprintable() and len(str(one)) < 700 for one in saved.missing)


PIPE = """
class Pipe:
    def __reduce__(self):
        code = "__import__('os').mkfifo('/tmp/.sandbox-state/python/report'), __import__('os')._exit(0)"
        return eval, (code,)
pipe = Pipe()
x = 41
"""


async def test_a_report_that_code_has_replaced_by_a_pipe_is_not_waited_for(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        assert (await session.run(PIPE)).status == "ok"
        await session.save("geo")
    async with sandboxes.open("geo") as again:
        assert again.opened is not None
        assert [one.name for one in again.opened.missing] == ["pipe"]
        assert (await again.run("x")).result == "41"


INSTALLED = """
import os
os.makedirs(folder := os.path.join(os.environ["SANDBOX_LIBRARIES"], "evil-1.0.dist-info"))
for name, text in ("METADATA", "Metadata-Version: 2.1\\nName: evil\\nVersion: 1.0\\n"), ("RECORD", ""), ("INSTALLER", "uv\\n"):
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)
"""


async def test_a_library_that_the_profile_denies_today_is_not_opened(sandboxes: Sandboxes, profile: Profile) -> None:
    async with sandboxes.session() as session:
        assert (await session.run(INSTALLED)).status == "ok"
        await session.save("geo")
    for denied in ("other", "evil"):
        async with Sandboxes(changed(profile, languages={"python": {"deny": (denied,)}})) as others:
            if denied == "other":
                async with others.open("geo"):
                    pass
                continue
            with pytest.raises(PolicyDenied, match=r"'evil' '1\.0' was installed, which the profile denies"):
                async with others.open("geo"):
                    pass
            assert others.service.sessions.list() == ()


async def test_a_damaged_one_is_refused_by_name_and_leaves_no_session(sandboxes: Sandboxes, folder: Path) -> None:
    async with sandboxes.session() as session:
        await session.run("import os\nopen('large', 'wb').write(os.urandom(5 << 20))")
        await session.save("geo")
    (file,) = (folder / "saved").rglob("*.state")
    whole = file.read_bytes()
    for at in (100, len(whole) // 2, len(whole) - 1000, len(whole) - 1):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BadState, match=r"'geo' is damaged: .*; delete it, and save the session again"):
            async with sandboxes.open("geo"):
                pass
    assert sandboxes.service.sessions.list() == ()


async def test_each_caller_has_their_own_and_one_that_nobody_knows_has_none(sandboxes: Sandboxes) -> None:
    states = sandboxes.service.states
    async with sandboxes.session() as session:
        await session.run("x = 1")
        await session.save("geo")
        assert await states.saved(TOKEN) == ()
        with pytest.raises(UnknownState):
            await states.open(TOKEN, "geo")
        await states.save(TOKEN, session.id, "geo")
        await states.delete(TOKEN, "geo")
        assert [one.name for one in await sandboxes.saved()] == ["geo"]
        for work in (
            states.save(ANONYMOUS, session.id, "geo"),
            states.open(ANONYMOUS, "geo"),
            states.saved(ANONYMOUS),
            states.delete(ANONYMOUS, "geo"),
        ):
            with pytest.raises(PolicyDenied, match="only for callers that the server knows; the operator can set http"):
                await work


async def test_nothing_is_saved_of_a_session_that_has_nothing(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        with pytest.raises(InvalidArgument, match="has no state that could be saved; run code in it first"):
            await session.save("geo")
        await session.run("1")
        await session.save("geo")
        await session.reset()
        with pytest.raises(InvalidArgument, match="has no state"):
            await session.save("geo")
        with pytest.raises(InvalidArgument, match="has no state"):
            async with session.branch():
                pass
        with pytest.raises(InvalidArgument, match="cannot be the name"):
            await session.save("../geo")
    assert len(await sandboxes.saved()) == 1
    assert sandboxes.service.sessions.list() == ()


async def test_a_sandbox_that_is_gone_never_replaces_what_was_saved(sandboxes: Sandboxes) -> None:
    async with sandboxes.session() as session:
        await session.run("open('kept', 'w').write('content')")
        await session.save("geo")
        await (await (await session_of(sandboxes.service, session.id)).sandbox()).kill()
        with pytest.raises((InvalidArgument, SandboxLost)):  # before the engine has noticed, and afterwards
            await session.save("geo")
    async with sandboxes.open("geo") as again:
        assert await again.read("kept") == b"content"


@pytest.fixture
def changes() -> Mapping[str, Mapping[str, object]]:
    return {"limits": {"disk": 16 * MIB, "memory": 192 * MIB}}


async def test_a_caller_that_leaves_in_the_middle_leaves_the_session_as_it_is(
    sandboxes: Sandboxes, folder: Path
) -> None:
    async with sandboxes.session() as session:
        await session.run("x = 1; open('large', 'wb').write(os.urandom(12 << 20) if (os := __import__('os')) else b'')")
        for seconds in (0.001, 0.01, 0.03, 0.1):
            with anyio.move_on_after(seconds):
                await session.save("geo")
            with anyio.move_on_after(seconds):
                async with session.branch():
                    pass
        assert (await session.run("x")).result == "1"
        await session.save("geo")
        async with sandboxes.open("geo") as again:
            assert len(await again.pack("large")) > 12 << 20
        assert [info.id for info in sandboxes.service.sessions.list()] == [session.id]
    assert [path.suffix for path in (folder / "saved").rglob("*") if path.is_file()] == [".state"]
