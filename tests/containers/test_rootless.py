"""The Podman service of an ordinary user is found where it listens, and its sandboxes belong to that user."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import docker
import pytest

import llm_sandbox_mcp
from llm_sandbox_mcp.backends.base import Check
from llm_sandbox_mcp.backends.containers import entering
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.backends.podman import finding
from llm_sandbox_mcp.profile.profile import Profile
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_backend, open_service
from tests import ordinary
from tests.engines import absent, changed, docker_host, podman_host, rootless, small_profile, surroundings
from tests.engines.spare import IMAGE, Spare, rootless_podman

from .engines import Watched

pytestmark = pytest.mark.anyio

PACKAGE = Path(llm_sandbox_mcp.__file__).parent


@pytest.fixture(scope="module")
def service_of_a_user() -> Iterator[Spare]:
    if podman_host() is None or docker_host() is None:
        absent("podman", "the tests' own engines are not up")
    if shutil.which(rootless.PROGRAM) is None:
        pytest.skip(f"rootless Podman does not work here: {rootless.PROGRAM} is not installed")
    with rootless_podman() as running:
        yield running


@pytest.fixture
def profile(service_of_a_user: Spare, folder: Path) -> Profile:
    return small_profile("podman", folder, podman={"host": service_of_a_user.address}, containers={"image": IMAGE})


async def test_the_service_is_found_and_reported_as_rootless(
    service_of_a_user: Spare, profile: Profile, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "_SOCKET", str(folder / "none.sock"))
    nameless = changed(profile, podman={"host": ""})
    environ = {"XDG_RUNTIME_DIR": str(rootless.RUNTIME_DIR)}
    async with open_backend(nameless, replace(surroundings(folder), environ=environ)) as backend:
        checks = {check.name: check for check in await backend.probe()}
    assert checks["podman"].state == "ok"
    assert checks["podman"].detail.endswith(f" at {service_of_a_user.address}")
    assert checks["rootless"] == Check("rootless", "ok", "root in a container is an ordinary user on the machine")
    # An ordinary user has only control groups of version 2 that were delegated, and none was.
    assert checks["limits"].state == "degraded"


async def test_a_session_works_and_leaves_nothing(service_of_a_user: Spare, profile: Profile, folder: Path) -> None:
    watched = Watched(service_of_a_user.address, folder / "runtime")
    with anyio.fail_after(60):
        async with open_service(profile) as service:
            first = await execute(service, "x = 41\nopen('kept', 'w').write('yes')")
            slow = await execute(service, "import time\ntime.sleep(100)", session_id=first.session_id, timeout=0.5)
            assert (slow.status, slow.session_state) == ("timeout", "kept")
            again = await execute(service, "x + 1, open('kept').read()", session_id=first.session_id)
            assert again.result == "(42, 'yes')"
            assert watched.now()
    assert not watched.now()


async def test_root_inside_is_another_user_outside(profile: Profile, folder: Path) -> None:
    with anyio.fail_after(60):
        backend = open_backend(profile, surroundings(folder))
        async with backend, backend.sandbox(profile.limits.policy(), backend.image_of("python")) as sandbox:
            found = await sandbox.run(["cat", "/proc/self/uid_map"], {"PATH": PATH})
    assert found.stdout.split()[:2] == [b"0", str(rootless.UID).encode()]


def _first_process(pid: int) -> Path:
    """The folder in /proc of the first process of the user's container; the process has this id in its engine's
    namespace."""
    ids = re.compile(r"^Uid:\t(\d+)\t.*^NSpid:\t([\d\t]+)$", re.MULTILINE | re.DOTALL)
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended
            match = ids.search(status.read_text())
            if match and int(match[1]) in rootless.SUBUIDS and match[2].split()[1:] == [str(pid), "1"]:
                found.append(status.parent)
    [first] = found
    return first


async def test_a_server_of_the_same_user_can_listen_inside_its_sandboxes(
    service_of_a_user: Spare, profile: Profile, folder: Path
) -> None:
    try:
        python = ordinary.interpreter()
    except ordinary.Impossible as impossible:
        pytest.skip(str(impossible))
    shutil.copytree(PACKAGE, folder / "packages" / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    backend = open_backend(profile, surroundings(folder))
    with anyio.fail_after(60):
        async with backend, backend.sandbox(profile.limits.policy(), backend.image_of("python")) as sandbox:
            # The engine reports the id of the process in its own namespace: without delegated control groups the server
            # cannot be sure which process that is.
            with docker.APIClient(service_of_a_user.address) as api:
                first = _first_process(api.inspect_container(sandbox.id)["State"]["Pid"])
            network = os.open(first / "ns/net", os.O_RDONLY)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs:
                passed = (network, theirs.fileno())
                await anyio.run_process(
                    [python, "-m", entering.__name__, *map(str, passed), "0"],
                    env={"PYTHONPATH": str(folder / "packages"), "PATH": os.defpath},
                    cwd="/",
                    user=rootless.UID,
                    group=rootless.UID,
                    extra_groups=[],
                    pass_fds=passed,
                    stderr=subprocess.STDOUT,
                )
                said, listens, _, _ = socket.recv_fds(ours, 16, 1)
            os.close(network)
            assert said == b"0"
            with socket.socket(fileno=listens[0]) as listening:
                port = listening.getsockname()[1]
                found = await sandbox.run(
                    ["sh", "-c", f"grep -i ' 0100007F:{port:04X} ' /proc/net/tcp"], {"PATH": PATH}
                )
    assert found.stdout.count(b"\n") == 1
