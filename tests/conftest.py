"""What all tests share."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from . import growth, journal, ordinary, rings, sides, stacks
from .engines import host_folder, need, need_control_groups, need_open_network
from .growth import nor_in_the_loop, nothing_grows, nothing_grows_in_the_loop

__all__ = ["nor_in_the_loop", "nothing_grows", "nothing_grows_in_the_loop"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> sides.Sides:
    config.option.loadscopereorder = False
    return sides.Sides(config, log)


_IN_MEMORY = "/dev/shm"
_BYTES = 4 * 2**30


def pytest_configure(config: pytest.Config) -> None:
    journal.configure(config)
    stacks.install()
    growth.install()
    config.pluginmanager.register(stacks)
    rings.running = config.getoption(rings.OPTION)
    folder = _folder_of_its_own()
    config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))
    os.environ["TMPDIR"] = tempfile.tempdir = folder


def _folder_of_its_own() -> str:
    """A folder for the temporary files of this process, which others beside it do not write to.

    In memory where there is room, and programs there may be run: tests make and delete so many files that some disks come
    to search milliseconds for a place for the next.
    """
    place = None
    if "TMPDIR" not in os.environ and os.access(_IN_MEMORY, os.W_OK):
        there = os.statvfs(_IN_MEMORY)
        if there.f_bavail * there.f_frsize >= _BYTES and not there.f_flag & os.ST_NOEXEC:
            place = _IN_MEMORY
    folder = tempfile.mkdtemp(prefix="tests-", dir=place)
    os.chmod(folder, 0o755)  # sandboxes run as other users
    return folder


def pytest_collection_finish() -> None:
    """What has been collected stays to the end; rubbish is looked for elsewhere, again and again."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    rings.add_options(parser)
    journal.add_option(parser)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    option = config.getoption
    chosen = rings.chosen(items, which=rings.running, engine=option(rings.ENGINE), beside=option(rings.BESIDE))
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
def embedded() -> None:
    """For tests that run code on bubblewrap."""
    anyio.run(need, "embedded")


@pytest.fixture
def control_groups(request: pytest.FixtureRequest) -> None:
    """For tests of limits that hold all processes of a sandbox together. To be asked for after the backend."""
    if "backend_name" not in request.fixturenames or request.getfixturevalue("backend_name") == "embedded":
        need_control_groups()


@pytest.fixture
def open_network(embedded: None) -> None:
    """For tests that open a network for code on bubblewrap."""
    need_open_network()
