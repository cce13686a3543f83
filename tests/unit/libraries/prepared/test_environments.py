"""Prepared environments, with real uv against an index on loopback, and the choice of an index."""

import fcntl
import os
import stat
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import InstallFailed, ProfileError, StartFailed
from llm_sandbox_mcp.languages.languages import Environment, Handler, Language, Libraries, Runner
from llm_sandbox_mcp.libraries.installed.indexes import index_of
from llm_sandbox_mcp.libraries.prepared.builds import Environments
from llm_sandbox_mcp.libraries.prepared.cache import clear, contents
from llm_sandbox_mcp.libraries.prepared.environments import changed, environment_path, place_of, prepare, stage_tool_uv
from llm_sandbox_mcp.libraries.prepared.keeping import hold, kept, lock_of, unfinished
from llm_sandbox_mcp.profile.profile import Profile, load_profile
from tests.local_index import LocalIndex, local_index, sdist, wheel

pytestmark = pytest.mark.anyio

BEGUN = "preparing Python's libraries"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def own_uv_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with local_index() as serving:
        serving.add_project("tiny", wheel("tiny"), serving)
        serving.add_project("other", wheel("other"), serving)
        yield serving
        for page in serving.pages.values():
            if page.gate is not None:
                page.gate.set()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def language(environment: bool = True, libraries: Libraries | None = None) -> Language:
    handler = Handler(
        name="python",
        title="Python",
        extension=".py",
        version_command=("python3", "--version"),
        stateful=True,
        runner=Runner(argv=("python3",)),
        environment=Environment(manager="uv", python=sys.executable) if environment else None,
        libraries=libraries,
    )
    return Language(Path("/handlers/python"), handler)


async def quiet(line: str) -> None:
    pass


def left(cache: Path) -> set[str]:
    """The keys of the environments that are there, and the names of what is not finished."""
    environments = {f"{path.parent.name}/{path.name}" for path in kept(cache / "environments")}
    return environments | {path.name for path in (cache / "unfinished").iterdir()}


async def test_an_environment_is_built_once_and_found_again(index: LocalIndex, cache: Path) -> None:
    lines: list[str] = []

    async def collect(line: str) -> None:
        lines.append(line)

    with anyio.fail_after(60):
        key = await prepare(language(), ["tiny", "other"], cache, collect, index=f"{index.url}/simple")
        requests = len(index.requests)
        again = await prepare(language(), ["other", "tiny", "tiny"], cache, collect, index=f"{index.url}/simple")
        python = environment_path(cache, key) / "bin" / "python"
        answer = await anyio.run_process([str(python), "-c", "import tiny; print(tiny.ANSWER)"])
    assert again == key
    assert len(index.requests) == requests
    assert answer.stdout == b"42\n"
    assert "+ tiny==1.0" in lines
    assert left(cache) == {key}


async def test_an_environment_is_readable_by_all_and_writable_only_by_its_owner_whatever_the_umask(
    index: LocalIndex, cache: Path
) -> None:
    before = os.umask(0o077)
    try:
        with anyio.fail_after(60):
            key = await prepare(language(), ["tiny"], cache, quiet, index=f"{index.url}/simple")
            staged = await stage_tool_uv(cache)
    finally:
        os.umask(before)
    built = environment_path(cache, key)
    for path in (cache, cache / "environments", built, *built.rglob("*"), staged.parent, staged):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode):
            wanted = 0o555 if stat.S_ISDIR(mode) or path == staged else 0o444
            assert mode & wanted == wanted, path
            assert not mode & 0o022, path


async def test_libraries_that_are_changed_after_they_were_prepared_are_named(index: LocalIndex, cache: Path) -> None:
    with anyio.fail_after(60):
        key = await prepare(language(), ["tiny"], cache, quiet, index=f"{index.url}/simple")
    built = environment_path(cache, key)
    assert changed(built) == []
    (packages,) = built.glob("lib/python*/site-packages")
    (packages / "other").mkdir()
    assert changed(built) == []
    (packages / "gone-1.0.dist-info").symlink_to("/nowhere")
    (packages / "tiny-1.0.dist-info").rename(packages / "tiny-2.0.dist-info")
    assert changed(built) == ["gone-1.0", "tiny-1.0", "tiny-2.0"]
    (built / "prepared.txt").unlink()
    assert changed(built) == []


async def test_a_package_that_needs_its_set_up_script_is_not_built_on_the_host(index: LocalIndex, cache: Path) -> None:
    index.add_project("source", sdist("source"), index)
    with anyio.fail_after(60), pytest.raises(StartFailed, match=r"source.*languages\.python\.libraries") as failure:
        await prepare(language(), ["source"], cache, quiet, index=f"{index.url}/simple")
    assert "\n" not in str(failure.value)
    assert left(cache) == set()


async def test_credentials_of_the_index_are_not_in_errors_or_progress(index: LocalIndex, cache: Path) -> None:
    lines: list[str] = []

    async def collect(line: str) -> None:
        lines.append(line)

    upstream = index.url.replace("://", "://someone:hunter2@") + "/simple"
    with anyio.fail_after(60), pytest.raises(StartFailed) as failure:
        await prepare(language(), ["missing"], cache, collect, index=upstream)
    assert "hunter2" not in str(failure.value) + "".join(lines)


async def test_a_cancelled_build_leaves_nothing_and_the_next_one_succeeds(index: LocalIndex, cache: Path) -> None:
    gate = index.pages["/simple/tiny/"].gate = threading.Event()
    build = partial(prepare, language(), ["tiny"], cache, quiet, index=f"{index.url}/simple")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(build)
            await anyio.to_thread.run_sync(index.asked.wait, 20)
            tasks.cancel_scope.cancel()
        assert left(cache) == set()
        gate.set()
        assert left(cache) | {await build()} == left(cache)


async def test_nothing_is_where_sandboxes_look_until_it_is_finished(index: LocalIndex, cache: Path) -> None:
    """Code could lock it, and uv waits for a lock in an environment that it changes."""
    gate = index.pages["/simple/tiny/"].gate = threading.Event()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(prepare, language(), ["tiny"], cache, quiet, index=f"{index.url}/simple"))
            await anyio.to_thread.run_sync(index.asked.wait, 20)
            place = place_of(cache, language(), ["tiny"])
            assert [*(cache / "environments").iterdir()] == [place]
            assert not [*place.iterdir()]
            hidden = [path for path in cache.iterdir() if path.name not in ("environments", "tools")]
            assert {path.stat().st_mode & 0o777 for path in hidden} == {0o700}
            gate.set()
    assert [*place.iterdir()] == kept(cache / "environments") != []


async def test_after_a_killed_build_the_environment_is_built_again(index: LocalIndex, cache: Path) -> None:
    with anyio.fail_after(60):
        key = await prepare(language(), ["tiny"], cache, quiet, index=f"{index.url}/simple")
        environment_path(cache, key).rename(unfinished(environment_path(cache, key)))
        assert await prepare(language(), ["tiny"], cache, quiet, index=f"{index.url}/simple") == key
    assert left(cache) == {key}


async def test_two_servers_share_one_build(index: LocalIndex, cache: Path) -> None:
    gate = index.pages["/simple/tiny/"].gate = threading.Event()
    waited = anyio.Event()
    keys: list[str] = []

    async def first() -> None:
        keys.append(await prepare(language(), ["tiny"], cache, quiet, index=f"{index.url}/simple"))

    async def second() -> None:
        async def on_progress(line: str) -> None:
            if "another server" in line:
                waited.set()

        keys.append(await prepare(language(), ["tiny"], cache, on_progress, index=f"{index.url}/simple"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await anyio.to_thread.run_sync(index.asked.wait, 20)
            tasks.start_soon(second)
            await waited.wait()
            gate.set()
    assert keys[0] == keys[1]
    assert [path for path, _ in index.requests].count("/simple/tiny/") == 1


async def test_callers_of_one_server_share_a_build_and_a_cancelled_caller_does_not_stop_it(
    index: LocalIndex, cache: Path
) -> None:
    gate = index.pages["/simple/tiny/"].gate = threading.Event()
    keys: list[str] = []
    first: list[str] = []
    seen: list[str] = []

    async def read(line: str) -> None:
        first.append(line)

    async def collect(line: str) -> None:
        seen.append(line)

    with anyio.fail_after(60):
        async with Environments(cache) as environments:
            ask = partial(environments.prepare, language(), ["tiny"], index=f"{index.url}/simple")

            async def wait_for_it() -> None:
                keys.append(await ask(collect))

            async with anyio.create_task_group() as quitter:
                quitter.start_soon(ask, read)
                await anyio.to_thread.run_sync(index.asked.wait, 20)
                assert environments.progress() == {"python": BEGUN}
                quitter.cancel_scope.cancel()
            async with anyio.create_task_group() as patient:
                patient.start_soon(wait_for_it)
                patient.start_soon(wait_for_it)
                gate.set()
            assert environments.progress() == {}
    assert len(set(keys)) == 1
    assert len(keys) == 2
    # Whoever comes later learns how far it is.
    assert first == [BEGUN]
    assert seen == [BEGUN, BEGUN, f"{BEGUN}, 99 %", f"{BEGUN}, 99 %"]
    assert [path for path, _ in index.requests].count("/simple/tiny/") == 1


async def test_every_caller_gets_the_failure_and_the_next_caller_tries_again(index: LocalIndex, cache: Path) -> None:
    with anyio.fail_after(60):
        async with Environments(cache) as environments:
            ask = partial(environments.prepare, language(), ["late"], quiet, index=f"{index.url}/simple")
            failures: list[StartFailed] = []

            async def fail() -> None:
                with pytest.raises(StartFailed) as failure:
                    await ask()
                failures.append(failure.value)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fail)
                tasks.start_soon(fail)
            assert len(failures) == 2
            index.add_project("late", wheel("late"), index)
            assert environments.path(await ask()).is_dir()


async def test_a_cache_that_cannot_be_written_is_an_error_and_the_next_caller_tries_again(
    index: LocalIndex, cache: Path
) -> None:
    cache.touch()
    with anyio.fail_after(60):
        async with Environments(cache) as environments:
            ask = partial(environments.prepare, language(), ["tiny"], quiet, index=f"{index.url}/simple")
            with pytest.raises(NotADirectoryError):
                await ask()
            cache.unlink()
            assert environments.path(await ask()).is_dir()


async def test_closing_stops_a_build_and_leaves_nothing(index: LocalIndex, cache: Path) -> None:
    index.pages["/simple/tiny/"].gate = threading.Event()
    with anyio.fail_after(60):
        async with Environments(cache) as environments, anyio.create_task_group() as tasks:
            tasks.start_soon(partial(environments.prepare, index=f"{index.url}/simple"), language(), ["tiny"], quiet)
            await anyio.to_thread.run_sync(index.asked.wait, 20)
            tasks.cancel_scope.cancel()
    assert left(cache) == set()


async def test_an_environment_is_used_before_its_bytecode_is_there_which_sandboxes_then_see(
    index: LocalIndex, cache: Path
) -> None:
    """Whoever compiles the same environment has its lock, as a server that was killed may have left it half done."""
    further = {"tested/tests/test_it.py": b"1", "tested/broken.py": b"2 +"}
    index.add_project("tested", wheel("tested", further=further), index)
    libraries, source = ["tiny", "tested"], f"{index.url}/simple"
    with anyio.fail_after(60):
        target = environment_path(cache, await prepare(language(), libraries, cache, quiet, index=source))
        assert not [*target.rglob("*.pyc")]
        with lock_of(target).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            async with Environments(cache) as environments:
                await environments.prepare(language(), libraries, quiet, index=source)
            assert not [*target.rglob("*.pyc")]
        async with Environments(cache) as environments:
            await environments.prepare(language(), libraries, quiet, index=source)
            await environments.compiled()
            found = {path.name.split(".")[0]: path for path in target.rglob("*.pyc")}
            assert "tiny" in found and not {"test_it", "broken"} & {*found}
            assert all(path.stat().st_mode & 0o777 == 0o644 for path in found.values())
        (target / ".compiled").unlink()
        found["tiny"].unlink()
        cached = found["tiny"].parent
        cached.rename(cached.with_name("other"))
        cached.touch()
        async with Environments(cache) as environments:
            await environments.prepare(language(), libraries, quiet, index=source)
            await environments.compiled()
        assert not (target / ".compiled").exists()  # what cannot be written is tried again
        cached.unlink()
        async with Environments(cache) as environments:
            await environments.prepare(language(), libraries, quiet, index=source)
            await environments.compiled()
        assert found["tiny"].exists()
        found["tiny"].unlink()
        async with Environments(cache) as environments:
            await environments.prepare(language(), libraries, quiet, index=source)
            await environments.compiled()
    assert not found["tiny"].exists()
    assert kept(cache / "environments") == [target]


async def test_a_language_without_an_environment_is_refused(cache: Path) -> None:
    with pytest.raises(ProfileError, match=r"handler\.toml: environment"):
        await prepare(language(environment=False), [], cache, quiet)


async def test_an_environment_that_is_removed_while_it_is_looked_up_is_built_again(
    index: LocalIndex, cache: Path
) -> None:
    ask = partial(prepare, language(), ["tiny"], cache, quiet, index=f"{index.url}/simple")
    key = await ask()
    path = environment_path(cache, key)
    with (cache / "locks" / f"{key.replace('/', '-')}.used").open() as removing:
        fcntl.flock(removing, fcntl.LOCK_EX)
        with pytest.raises(FileNotFoundError):
            hold(path)
    async with Environments(cache) as environments:
        assert await environments.prepare(language(), ["tiny"], quiet, index=f"{index.url}/simple") == key
        await environments.tools()
        clear(cache)
        assert [each.number for each in contents(cache)] == [1, 1, 0]
    clear(cache)
    assert [each.number for each in contents(cache)] == [0, 0, 0]


async def test_uv_is_staged_once_and_runs(cache: Path) -> None:
    with anyio.fail_after(30):
        staged = await stage_tool_uv(cache)
        before = staged.stat().st_ino
        assert (await stage_tool_uv(cache)).stat().st_ino == before
        assert (await anyio.run_process([str(staged), "--version"])).stdout.startswith(b"uv ")
    assert [path.name for path in staged.parent.iterdir()] == ["uv"]


async def test_uv_can_be_staged_many_times_at_once(cache: Path) -> None:
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(40):
                tasks.start_soon(stage_tool_uv, cache)
    [folder] = kept(cache / "tools")
    assert [path.name for path in folder.iterdir()] == ["uv"]


def libraries(index: str = "", *command: str) -> Libraries:
    return Libraries(
        manager="uv",
        name_pattern=".*",
        install=("true",),
        installed=("true",),
        installed_pattern="(?P<name>.+)=(?P<version>.+)",
        index=index,
        default_index=command,
        default_index_pattern=r"^registry = (\S+)",
    )


@pytest.fixture
def profile() -> Profile:
    return load_profile()


async def test_the_index_of_the_profile_comes_before_that_of_the_handler_and_the_package_manager(
    profile: Profile, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    file.write_text('[languages.python]\nindex = "http://operator.example/simple"\n')
    asked = libraries("", sys.executable, "-c", "print('registry = http://manager.example/')")
    handled = libraries("http://handler.example/simple", "false")
    assert await index_of(language(libraries=handled), load_profile(str(file))) == "http://operator.example/simple"
    assert await index_of(language(libraries=handled), profile) == "http://handler.example/simple"
    assert await index_of(language(libraries=asked), profile) == "http://manager.example/"


@pytest.mark.parametrize("command", [[], ["/nonexistent/manager"], [sys.executable, "-c", "print('nothing')"]])
async def test_an_unknown_index_is_an_error_that_names_the_key_to_set(profile: Profile, command: list[str]) -> None:
    with pytest.raises(InstallFailed, match=r"set languages\.python\.index in the profile"):
        await index_of(language(libraries=libraries("", *command)), profile)
    with pytest.raises(ProfileError, match="libraries"):
        await index_of(language(), profile)
