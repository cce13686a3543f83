"""Options, hooks and fixtures that all tests share."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import hypothesis
import pytest

from . import expected, growth, journal, ordinary, rings, sides, stacks
from .effort import tries
from .engines import host_folder, need, need_control_groups, need_open_network
from .scratch import scratch

# How long an example takes depends on the machine.
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=tries(100))
hypothesis.settings.load_profile("untimed")

# Their failed assertions then show the compared values, like the assertions in tests do.
pytest.register_assert_rewrite(
    *(f"llm_sandbox_mcp.testing.{name}" for name in ("copies", "listening", "processes", "sessions"))
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> sides.Sides:
    config.option.loadscopereorder = False
    return sides.Sides(config, log)


def pytest_configure(config: pytest.Config) -> None:
    journal.configure(config)
    stacks.install()
    growth.install()
    config.pluginmanager.register(expected)
    config.pluginmanager.register(stacks)
    config.pluginmanager.register(growth)
    rings.running = config.getoption(rings.OPTION)
    temporary = ExitStack()
    temporary.enter_context(scratch())
    config.add_cleanup(temporary.close)


def pytest_collection_finish() -> None:
    """Excludes the collected tests from garbage collection: they stay until the end, and it runs again and again."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    rings.add_options(parser)
    journal.add_option(parser)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    option = config.getoption
    chosen = rings.chosen(
        items, which=rings.running, engine=option(rings.ENGINE), concurrency=option(rings.CONCURRENCY)
    )
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=list({*items}.difference(chosen)))
        items[:] = chosen
    rings.limit(items)
    if hasattr(config, "workerinput"):
        sides.longest_first(items)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def ordinary_packages() -> Iterator[Path]:
    """A folder with this package and its libraries for a user who is not root."""
    try:
        ordinary.interpreter()
    except ordinary.Impossible as error:
        pytest.skip(str(error))
    with host_folder() as folder:
        ordinary.install(folder)
        yield folder


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers cannot be inspected from outside, as if their engine were on another machine."""
    # Patched by name: an import would load the packages of engines, which most tests do not need.
    monkeypatch.setattr("llm_sandbox_mcp.backends.containers.backend.look", lambda *_: None)


@pytest.fixture
def embedded() -> None:
    """For tests that run code on bubblewrap."""
    anyio.run(need, "embedded")


@pytest.fixture
def control_groups(request: pytest.FixtureRequest) -> None:
    """For tests of limits on all processes of a sandbox together. Request it after the backend."""
    if "backend_name" not in request.fixturenames or request.getfixturevalue("backend_name") == "embedded":
        need_control_groups()


@pytest.fixture
def open_network(embedded: None) -> None:
    """For tests that open a network for code on bubblewrap."""
    need_open_network()
