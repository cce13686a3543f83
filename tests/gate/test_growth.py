"""The error of a test that leaves something behind, and what a test may leave."""

import subprocess
import sys
from pathlib import Path

import pytest

from .test_stage import environment, prepare

pytestmark = pytest.mark.only_in_all

LEAVE = """
import os, socket, subprocess, tempfile, threading
import anyio, pytest
from tests import growth

growth.GONE = 0.2
kept = []

@pytest.fixture(scope="module")
def shared():
    kept.append(open("/dev/null"))

@pytest.fixture(scope="module")
def shared_as_well(shared):
    kept.append(open("/dev/null"))

def test_leaves_a_pipe(): kept.append(os.pipe())
def test_leaves_a_file(): kept.append(open("/dev/zero"))
def test_leaves_a_folder(): tempfile.mkdtemp(prefix="left-")
def test_leaves_a_process(): kept.append(subprocess.Popen(["sleep", "20"]))
def test_leaves_a_thread():
    kept.append(threading.Thread(target=threading.Event().wait, name="the one left", daemon=True))
    kept[-1].start()

@pytest.mark.anyio
async def test_leaves_a_task():
    import asyncio
    kept.append(asyncio.create_task(anyio.sleep_forever(), name="the one that stays"))

@pytest.mark.anyio
async def test_leaves_a_pipe_in_a_loop(): kept.append(os.pipe())

def test_fails_before_it_leaves_something():
    kept.append(os.pipe())
    raise ValueError

def test_closes_what_it_opened():
    with subprocess.Popen(["true"]), tempfile.TemporaryDirectory(), open("/dev/zero"): pass

def test_uses_shared_fixtures(request):
    request.getfixturevalue("shared_as_well")

def test_leaves_a_pipe_and_uses_shared_fixtures(shared_as_well): kept.append(os.pipe())

@pytest.fixture(scope="module")
def anyio_backend(): return "asyncio"

@pytest.fixture(scope="module")
async def server(anyio_backend):
    opened = [socket.socket() for _ in range(2)]
    with growth.kept("docker"):
        opened.pop().close()
        yield opened
    for connection in opened:
        connection.close()

@pytest.mark.anyio
async def test_opens_as_many_connections_of_its_server_as_allowed(server):
    server.extend(socket.socket() for _ in range(33))

@pytest.mark.anyio
async def test_opens_one_connection_of_its_server_too_many(server): server.append(socket.socket())

@pytest.mark.anyio
async def test_leaves_a_file_and_uses_its_server(server): kept.append(open("/dev/zero"))

def test_leaves_a_thread_that_soon_ends_by_itself(): threading.Timer(0.05, int).start()
"""
EXPECTED = {
    "test_leaves_a_pipe": "'descriptors': ['pipe:[*]', 'pipe:[*]']",
    "test_leaves_a_file": "'descriptors': ['/dev/zero']",
    "test_leaves_a_folder": "'folders': ['left-",
    "test_leaves_a_process": "'processes': ['sleep']",
    "test_leaves_a_thread": "'threads': ['the one left']",
    "test_leaves_a_task": "'tasks': ['the one that stays']",
    "test_leaves_a_pipe_in_a_loop": "'descriptors': ['pipe:[*]', 'pipe:[*]']",
    "test_opens_one_connection_of_its_server_too_many": "'descriptors': ['socket:[*]']",
    "test_leaves_a_file_and_uses_its_server": "'descriptors': ['/dev/zero']",
    "test_leaves_a_pipe_and_uses_shared_fixtures": "'descriptors': ['pipe:[*]', 'pipe:[*]']",
}


def test_a_test_fails_only_if_it_leaves_something(tmp_path: Path) -> None:
    prepare(tmp_path, LEAVE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:randomly", str(tmp_path)],
        cwd=tmp_path,
        env={**environment(tmp_path), "COLUMNS": "400"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    reported = {line.partition("::")[2].partition(" ")[0]: line for line in done.stdout.splitlines() if "::" in line}
    assert {*reported} == {*EXPECTED, "test_fails_before_it_leaves_something"}, done.stdout
    assert "ValueError" in reported["test_fails_before_it_leaves_something"]
    for test, expected in EXPECTED.items():
        assert reported[test].startswith("ERROR"), done.stdout
        assert expected in reported[test], done.stdout
