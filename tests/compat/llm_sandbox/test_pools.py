"""Pools: many threads, each with a sandbox that no other session used before."""

import threading
from math import inf

import pytest

from llm_sandbox_mcp import (
    ArtifactSandboxSession,
    CommandFailedError,
    DuplicateClientError,
    PoolClosedError,
    PoolConfig,
    PoolExhaustedError,
    PoolHealthCheckError,
    SandboxSession,
    SecurityViolationError,
    ValidationError,
    create_pool_manager,
)
from llm_sandbox_mcp.base.units import parse_duration
from tests.containers.engines import until

pytestmark = pytest.mark.usefixtures("library")


@pytest.mark.anyio
async def test_a_pool_is_filled_before_its_first_use_and_its_stats_show_it() -> None:
    with create_pool_manager(config=PoolConfig(max_pool_size=3, min_pool_size=2)) as pool:
        await until(lambda: pool.get_stats()["state_counts"]["idle"] == 2, 30)
        with SandboxSession(pool=pool) as session:
            assert session.run("print(1)").stdout == "1\n"
            stats = pool.get_stats()
            assert (stats["max_size"], stats["min_size"], stats["closed"]) == (3, 2, False)
            assert (stats["state_counts"]["busy"], stats["state_counts"]["unhealthy"]) == (1, 0)
            assert 1 <= stats["total_size"] <= 3
    assert pool.get_stats()["closed"]
    with pytest.raises(PoolClosedError):
        SandboxSession(pool=pool).open()
    pool.close()


def test_threads_share_a_pool_and_never_a_sandbox() -> None:
    results: list[str] = []

    def work(number: int) -> None:
        with SandboxSession(pool=pool) as session:
            seen = session.run(f"import os\nprint(os.listdir('.'))\nopen('mine', 'w').write('{number}')").stdout
            results.append(seen + session.run("print(open('mine').read())").stdout)

    with create_pool_manager(config=PoolConfig(max_pool_size=2)) as pool:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == [f"[]\n{number}\n" for number in range(6)]


@pytest.mark.parametrize("strategy", ["fail_fast", "wait"])
def test_a_pool_without_a_free_sandbox_raises_an_error(strategy: str) -> None:
    config = PoolConfig(max_pool_size=1, exhaustion_strategy=strategy, acquisition_timeout=0.2)
    with create_pool_manager(config=config) as pool:
        first = pool.acquire()
        with pytest.raises(PoolExhaustedError) as full:
            pool.acquire()
        assert (full.value.pool_size, full.value.timeout) == (1, 0.2 if strategy == "wait" else None)
        assert "sandboxes are in use" in str(full.value)
        pool.release(first)
        again = pool.acquire()
        assert first.container_id and again.container_id  # also that of a session that was released
        assert first.container_id != again.container_id
        assert again.run("print(1)").stdout == "1\n"


def test_temporary_sandboxes_can_exceed_the_pool_size() -> None:
    with create_pool_manager(config=PoolConfig(max_pool_size=1, exhaustion_strategy="temporary")) as pool:
        sessions = [pool.acquire() for _ in range(3)]
        assert [session.run("print(1)").stdout for session in sessions] == ["1\n"] * 3


def test_sessions_of_a_pool_can_differ_only_in_arguments_that_do_not_affect_the_sandbox() -> None:
    with create_pool_manager(config=PoolConfig(max_pool_size=2), execution_timeout=20) as pool:
        assert SandboxSession(pool=pool, backend="auto").options.execution_timeout == 20
        assert SandboxSession(pool=pool, execution_timeout=5).options.execution_timeout == 5
        assert SandboxSession(pool=pool, execution_timeout=None).options.execution_timeout is None
        assert SandboxSession(pool=pool, lang="PY", image=None).options.lang == "python"
        with pytest.raises(DuplicateClientError, match=r"client: .*give it to create_pool_manager"):
            SandboxSession(pool=pool, client=object())
        with ArtifactSandboxSession(pool=pool) as session:
            assert session.run("print(1)").plots == []
        for arguments in (
            {"image": "a"},
            {"runtime_configs": {"pids_limit": 9}},
            {"lang": "ruby"},
            {"backend": "docker"},
        ):
            with pytest.raises(ValidationError, match=next(iter(arguments))):
                SandboxSession(pool=pool, **arguments)


@pytest.mark.anyio
@pytest.mark.usefixtures("with_index")
async def test_the_sandboxes_of_a_pool_have_its_libraries() -> None:
    with create_pool_manager(config=PoolConfig(min_pool_size=1), lang="Python", libraries=["tinyanswer"]) as pool:
        await until(lambda: pool.get_stats()["state_counts"]["idle"] == 1, 60)
        for _ in range(2):
            with SandboxSession(pool=pool) as session:
                assert session.run("import tinyanswer\nprint(tinyanswer.__name__)").stdout == "tinyanswer\n"


@pytest.mark.usefixtures("with_index")
def test_a_library_that_a_pool_cannot_install_is_an_error() -> None:
    with create_pool_manager(libraries=["nobody-has-made-this"]) as pool, pytest.raises(CommandFailedError):
        pool.acquire()
    for libraries in ("tinyanswer", ["--index-url=x"]):
        with pytest.raises(ValidationError, match="libraries"):
            create_pool_manager(libraries=libraries)
    with pytest.raises(SecurityViolationError, match="bash has no package manager"):
        create_pool_manager(lang="bash", libraries=["tinyanswer"])


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_pool_size": 0},
        {"min_pool_size": 11},
        {"min_pool_size": -1},
        {"max_container_uses": 0},
        {"idle_timeout": 0},
        {"acquisition_timeout": -1},
        {"acquisition_timeout": "5"},
        {"health_check_interval": None},
        {"max_pool_size": None},
        {"max_pool_size": "5"},
        {"exhaustion_strategy": "beg"},
    ],
)
def test_invalid_settings_of_a_pool_are_an_error(arguments: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PoolConfig(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        PoolConfig().model_copy(update=arguments)
    with pytest.raises(ValidationError):
        create_pool_manager(config=arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(1e-9, "0.000001s"), (0.0001, "0.000100s"), (None, "31536000.000000s"), (inf, "31536000.000000s")],
)
def test_every_time_is_written_as_a_profile_can_hold_it(seconds: float | None, written: str) -> None:
    assert PoolConfig(acquisition_timeout=seconds).section("python")["acquire_timeout"] == written
    assert parse_duration(written) > 0


def test_a_pool_shows_its_settings() -> None:
    with create_pool_manager(lang="Python", config=PoolConfig(acquisition_timeout=0.0001)) as pool:
        assert (pool.lang, pool.image, pool.client) == ("python", None, None)
    error = PoolHealthCheckError("abc", "it was killed")
    assert (error.container_id, error.reason, str(error)) == (
        "abc",
        "it was killed",
        "sandbox abc does not answer: it was killed",
    )
