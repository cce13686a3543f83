"""Compares what this process has open before and after each test: what a test or its fixtures open, they must close.

`tests/soak` finds what grows in a server in another process; `leftovers.py` finds what a sandbox leaves on the machine.
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
"""Seconds to wait: processes end, and engines finish their answers, a moment after they were asked to."""
_POLL = 0.02

Held = Mapping[str, Counter[str]]
"""How many resources of each kind exist. Only numbers count: a shared server may replace one resource by another."""
_OWN = re.compile("[0-9a-f]{6,}|[0-9]+")
"""The part of a name that differs between resources of the same kind."""

_WAITING = ("asyncio_", "AnyIO worker thread")

_failed = pytest.StashKey[bool]()
_shared: dict[str, Counter[str]] = defaultdict(Counter)
"""Resources for more than one test that were created in the middle of a test."""
CONNECTIONS = {"docker": 32, "podman": 32, "kubernetes": 32}
"""How many idle connections to an engine a server keeps at most."""
_ZYGOTE, _ZYGOTES = "llm_sandbox_mcp.backends.em*.forking.Zygotes._keep", 2
"""The task that owns a process of which sandboxes are forks; one without libraries, and one with those of Python."""
_kept: list[Held] = []
"""What shared servers may still have open after each test."""

_servers: set[str] = set()
"""The names of the servers that were opened in this process."""


def install() -> None:
    """Records the name of each server that is opened here; its control groups contain that name."""
    opened = Surroundings.__init__

    @wraps(opened)
    def noting(self: Surroundings, *arguments: Any, **named: Any) -> None:
        opened(self, *arguments, **named)
        _servers.add(self.runtime.name)

    Surroundings.__init__ = noting  # type: ignore[method-assign]


def held() -> Held:
    """Returns what this process has open, what it runs, and what is in its folder for temporary files."""
    return {
        "descriptors": Counter(_OWN.sub("*", name) for name in _descriptors()),
        "threads": Counter(_OWN.sub("*", name) for name in _threads()),
        "processes": Counter(_children()),
        "control groups": Counter(_OWN.sub("*", name) for name in _groups()),
        "folders": Counter(os.listdir(tempfile.gettempdir())),
    }


def beyond(before: Held, now: Held) -> dict[str, list[str]]:
    """Returns what exists now and did not exist before."""
    return {kind: sorted(more.elements()) for kind in now if (more := now[kind] - before[kind])}


@contextmanager
def kept(backend: str) -> Iterator[None]:
    """For a server that several tests use: everything that is open now may be open after any of these tests.

    For example, sandboxes that are opened in advance while the next test begins. Also allowed are all idle connections
    that the server may have to its engine, and the processes that wait to be forked.
    """
    most = dict(_held_by_loop())
    most["tasks"] = most.get("tasks", Counter()) + Counter({_ZYGOTE: _ZYGOTES})
    most["descriptors"] = most["descriptors"] + Counter({"socket:[*]": CONNECTIONS.get(backend, 0)})
    _kept.append(most)
    try:
        yield
    finally:
        _kept.remove(most)


@contextmanager
def lasting() -> Iterator[None]:
    """For resources that are opened in the middle of one test and stay open for all later tests."""
    before = _held_by_loop()
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
    before = _held_by_loop()
    made = yield
    _share(before)
    return made


@pytest.fixture(autouse=True)
def nothing_grows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves something open.

    A test that has already failed is not checked: it may have been interrupted before it could clean up.
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
def nothing_grows_while_the_loop_runs(request: pytest.FixtureRequest, nothing_grows: None) -> None:
    """The same check for tests with an event loop, before the loop ends."""
    if "anyio_backend" in request.fixturenames:
        request.getfixturevalue("nothing_grows_in_the_loop")


@pytest.fixture
async def nothing_grows_in_the_loop(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[None]:
    """The same check while the loop still runs and can clean up; also fails a test that leaves a task in the loop."""
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
    for kind, more in beyond(before, _held_by_loop()).items():
        _shared[kind].update(more)


def _allowed(before: Held) -> Held:
    return {kind: reduce(or_, (most[kind] for most in _kept), there + _shared[kind]) for kind, there in before.items()}


def _held_by_loop() -> Held:
    tasks: list[str] = []
    with suppress(RuntimeError):  # no loop runs
        # Without the task that runs the test itself.
        tasks = [task.get_name() for task in asyncio.all_tasks() if "TestRunner" not in str(task)]
    return {"tasks": Counter(_OWN.sub("*", name) for name in tasks), **held()}


def _descriptors() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue


def _threads() -> Iterator[str]:
    """Names of threads, without those that a loop keeps for blocking calls, whose number is limited."""
    return (thread.name for thread in threading.enumerate() if not thread.name.startswith(_WAITING))


def _children() -> Iterator[str]:
    """Names of child processes that still run, including those adopted from servers that ended (`leftovers.py`).

    Without their own children: sandboxes of a server in this process are found by what it has open, and sandboxes of a
    server in another process do not matter here.
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
    """Control groups of servers and of their sandboxes."""
    if not _servers:
        return
    for base in _bases():
        for name in os.listdir(base):
            if name.startswith(PREFIX) and name.removeprefix(PREFIX) in _servers:
                server = f"{base}/{name}"
                yield server
                with suppress(FileNotFoundError):
                    yield from (entry.path for entry in os.scandir(server) if entry.is_dir())


@cache
def _bases() -> frozenset[str]:
    return frozenset(detect().bases.values())
