"""What this process holds before and after each test: whoever opens something closes it, or its scope does.

What grows in a server of another process, `tests/soak` finds; what a sandbox leaves on the machine, `leftovers.py`.
"""

import asyncio
import gc
import os
import re
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, reduce, wraps
from operator import or_
from typing import Any

import anyio
import pytest

from llm_sandbox_mcp.backends.base import Surroundings
from llm_sandbox_mcp.backends.embedded.cgroup_detect import detect
from llm_sandbox_mcp.backends.embedded.cgroups import PREFIX

GONE = 20.0
"""Seconds. The kernel ends processes, and engines their answers, a moment after they were told to."""
_POLL = 0.02

Held = Mapping[str, Counter[str]]
"""How many there are of each kind of thing: those that serve several tests may replace one by another."""
_OWN = re.compile("[0-9a-f]{6,}|[0-9]+")
"""What tells one of a kind from another."""

_WAITING = ("asyncio_", "AnyIO worker thread")

_failed = pytest.StashKey[bool]()
_shared: dict[str, Counter[str]] = defaultdict(Counter)
"""What there is for more than one test, and came in the middle of one."""
CONNECTIONS = {"docker": 32, "podman": 32, "kubernetes": 32}
"""To an engine, which a server keeps for the next request, at the most."""
_kept: list[Held] = []
"""What servers that several tests use may hold after each of them."""

_servers: set[str] = set()
"""Those that were opened in this process."""


def install() -> None:
    """Notes each server that is opened here, whose name its control groups have."""
    opened = Surroundings.__init__

    @wraps(opened)
    def noting(self: Surroundings, *arguments: Any, **named: Any) -> None:
        opened(self, *arguments, **named)
        _servers.add(self.runtime.name)

    Surroundings.__init__ = noting  # type: ignore[method-assign]


def held() -> Held:
    """What this process has open, what it runs, and what is in its folder for temporary files."""
    return {
        "descriptors": Counter(_OWN.sub("*", name) for name in _descriptors()),
        "threads": Counter(_OWN.sub("*", name) for name in _threads()),
        "processes": Counter(_children()),
        "control groups": Counter(_OWN.sub("*", name) for name in _groups()),
        "folders": Counter(os.listdir(tempfile.gettempdir())),
    }


def beyond(before: Held, now: Held) -> dict[str, list[str]]:
    """What is there now and was not there before."""
    return {kind: sorted(more.elements()) for kind in now if (more := now[kind] - before[kind])}


@contextmanager
def kept(backend: str) -> Iterator[None]:
    """For a server that several tests use: what there is now may be there after any of them, however little was before it.

    Such as sandboxes that are opened in advance, while the next test begins. So may be all connections to its engine that wait
    for the next request.
    """
    most = dict(_held_by_loop())
    most["descriptors"] = most["descriptors"] + Counter({"socket:[*]": CONNECTIONS.get(backend, 0)})
    _kept.append(most)
    try:
        yield
    finally:
        _kept.remove(most)


@contextmanager
def lasting() -> Iterator[None]:
    """For what is opened in the middle of one test, and is there for all that follow."""
    before = held()
    yield
    _share(before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    before = held()
    made = yield
    _share(before)
    return made


@pytest.fixture(autouse=True)
def nothing_grows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test after which something is there that was not there before.

    One that has failed already may have been cut off in the middle of something.
    """
    request.getfixturevalue("tmp_path_factory").getbasetemp()
    _shared.clear()
    before = held()
    yield
    if _failed in request.node.stash:
        return
    until = time.monotonic() + GONE
    while (more := beyond(_allowed(before), held())) and time.monotonic() < until:
        gc.collect()
        time.sleep(_POLL)
    assert not more, f"left {GONE:g} s after the test: {more}"


@pytest.fixture(autouse=True)
def nor_in_the_loop(request: pytest.FixtureRequest, nothing_grows: None) -> None:
    """The same for tests with a loop, before it has ended."""
    if "anyio_backend" in request.fixturenames:
        request.getfixturevalue("nothing_grows_in_the_loop")


@pytest.fixture
async def nothing_grows_in_the_loop(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[None]:
    """The same while the loop runs, by which the last is ended and closed; and fails a test that leaves it a task."""
    before = _held_by_loop()
    yield
    if _failed in request.node.stash:
        return
    until = anyio.current_time() + GONE
    while (more := beyond(_allowed(before), _held_by_loop())) and anyio.current_time() < until:
        gc.collect()
        await anyio.sleep(_POLL)
    if more:
        request.node.stash[_failed] = True
    assert not more, f"left {GONE:g} s after the test: {more}"


def _share(before: Held) -> None:
    for kind, more in beyond(before, held()).items():
        _shared[kind].update(more)


def _allowed(before: Held) -> Held:
    return {kind: reduce(or_, (most[kind] for most in _kept), there + _shared[kind]) for kind, there in before.items()}


def _held_by_loop() -> Held:
    tasks: list[str] = []
    with suppress(RuntimeError):  # there is no loop
        # Not the task by which the test itself is run.
        tasks = [task.get_name() for task in asyncio.all_tasks() if "TestRunner" not in str(task)]
    return {"tasks": Counter(_OWN.sub("*", name) for name in tasks), **held()}


def _descriptors() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # that of the list itself
            continue


def _threads() -> Iterator[str]:
    """Without those that a loop keeps for calls that block, of which it has so many at the most."""
    return (thread.name for thread in threading.enumerate() if not thread.name.startswith(_WAITING))


def _children() -> Iterator[str]:
    """Those that have not ended, with what a server that ended has let go (`leftovers.py`).

    Not what is below them: a server's sandboxes are known by what it has open, and those of another process are not ours.
    """
    for thread in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in _read(f"/proc/self/task/{thread}/children").split():
                name, _, state = _read(f"/proc/{child}/stat").rpartition(")")
                if state.split()[0] != "Z":
                    yield name.partition("(")[2]


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _groups() -> Iterator[str]:
    """Those of servers, and those of their sandboxes."""
    for server in (f"{base}/{name}" for base in _bases() for name in os.listdir(base)):
        if os.path.basename(server).removeprefix(PREFIX) in _servers:
            yield server
            with suppress(FileNotFoundError):
                yield from (entry.path for entry in os.scandir(server) if entry.is_dir())


@cache
def _bases() -> frozenset[str]:
    return frozenset(detect().bases.values())
