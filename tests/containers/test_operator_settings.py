"""Special settings of the operator reach the engine, and those that it cannot fulfil are reported with the next
step."""

from collections.abc import Mapping
from pathlib import Path

import docker
import pytest

from llm_sandbox_mcp.backends.containers.addresses import Address
from llm_sandbox_mcp.backends.containers.backend import LABEL
from llm_sandbox_mcp.backends.containers.engine import Recipe
from llm_sandbox_mcp.backends.containers.settings import Mount
from llm_sandbox_mcp.backends.docker.engine import DockerEngine
from llm_sandbox_mcp.base.errors import StartFailed
from llm_sandbox_mcp.wiring import open_backend
from tests.deadlines import within
from tests.engines import MIB, docker_host, need, small_profile, surroundings

from . import engines

pytestmark = pytest.mark.anyio

IMAGE = "llm-sandbox-mcp-base"
SOON = 10.0
NOWHERE = Path("/nonexistent")

ASKED: Mapping[str, tuple[Mapping[str, object], Mapping[str, str], str]] = {
    "all GPUs": (
        {"gpus": "all"},
        {"docker": "gpu", "podman": "nvidia.com/gpu=all"},
        "install the NVIDIA Container Toolkit for the engine, or change containers.gpus in the profile",
    ),
    "two GPUs": (
        {"gpus": "2"},
        {"docker": "gpu", "podman": "nvidia.com/gpu=0"},
        "install the NVIDIA Container Toolkit for the engine, or change containers.gpus in the profile",
    ),
    "a missing runtime": (
        {"runtime": "nowhere"},
        {"docker": "runtime specified nowhere", "podman": "and not nowhere"},
        "change containers.runtime in the profile",
    ),
    "a missing folder": (
        {"mounts": (Mount(source=str(NOWHERE / "folder"), target="/data"),)},
        {"docker": f"does not exist: {NOWHERE}/folder", "podman": f"{NOWHERE}/folder: no such file"},
        "change containers.mounts in the profile",
    ),
    "a user that no system has": (
        {"user": "9999999999:1"},
        {"docker": "must be in range", "podman": "must be in range"},
        "check image, registry and user below [containers] in the profile, or read the engine's log",
    ),
}


@pytest.mark.parametrize("what", ASKED)
async def test_a_setting_that_an_engine_cannot_fulfil_is_reported_with_the_next_step_and_nothing_is_left(
    engine: str, folder: Path, client: docker.DockerClient, what: str
) -> None:
    settings, reasons, step = ASKED[what]
    places = surroundings(folder)
    profile = small_profile(engine, folder, containers={"image": IMAGE, **settings})
    if what in ("all GPUs", "two GPUs") and Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU")
    backend = open_backend(profile, places)
    with pytest.raises(StartFailed) as raised, within(SOON):
        async with backend, backend.sandbox(profile.limits.policy(), backend.image_of("python")):
            pass
    said, _, last = str(raised.value).rpartition("; ")
    assert f"a container of {IMAGE} failed on {engine} at unix://" in said and reasons[engine] in said
    assert last.endswith(step)
    label = f"{LABEL}={places.runtime.name}"
    await engines.until(lambda: not client.api.containers(all=True, filters={"label": label}), SOON)
    assert not NOWHERE.exists()


@pytest.mark.parametrize(("gpus", "count"), [("all", -1), ("2", 2)])
async def test_gpus_are_requested_from_docker(folder: Path, gpus: str, count: int) -> None:
    await need("docker")
    address = docker_host() or ""
    engine = DockerEngine(Address(address))
    container = engine.create(
        Recipe(
            "sandbox-with-gpus",
            IMAGE,
            ("true",),
            "1000:1000",
            {},
            {"/tmp": MIB},
            memory=64 * MIB,
            cpus=1.0,
            files={},
            file_size=1,
            pids=10,
            gpus=gpus,
        )
    )
    try:
        host = engines.client(address).inspect_container(container)["HostConfig"]
    finally:
        engine.remove(container)
        engine.close()
    (request,) = host["DeviceRequests"]
    assert (request["Count"], request["Capabilities"]) == (count, [["gpu"]])
