"""The same program on every engine: only the argument `backend` differs and, except for bubblewrap, the client."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import anyio
import docker
import podman
import pytest
from kubernetes.client import CoreV1Api
from kubernetes.config import new_client_from_config

from llm_sandbox_mcp import (
    ConsoleOutput,
    ContainerError,
    ImagePullError,
    InteractiveSandboxSession,
    KernelType,
    MissingDependencyError,
    PoolConfig,
    SandboxSession,
    SandboxTimeoutError,
    create_pool_manager,
)
from llm_sandbox_mcp.backends import BACKENDS
from tests.engines import docker_host, kubeconfig, need, podman_host

PROFILE = """\
[limits]
memory = "128MiB"
disk = "16MiB"
timeout = "1d"
[pool]
languages = []
[languages.python]
libraries = []
index = "{index}"
[server]
cache = "{folder}/cache"
runtime = "{folder}/runtime"
[kubernetes]
network = "unchecked"
reserved = 0.02
"""


@pytest.fixture(params=["embedded", "docker", "podman", "kubernetes"])
def arguments(
    request: pytest.FixtureRequest, folder: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """The arguments that choose an engine."""
    anyio.run(need, request.param)
    (folder / "engines.toml").write_text(PROFILE.format(folder=folder, index=index))
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(folder / "engines.toml"))
    cluster = kubeconfig()
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    with ExitStack() as stack:
        chosen: dict[str, Any] = {"backend": request.param}
        if request.param == "docker":
            chosen["client"] = stack.enter_context(closing(docker.DockerClient(base_url=docker_host())))
        elif request.param == "podman":
            chosen["client"] = stack.enter_context(podman.PodmanClient(base_url=podman_host()))
        elif request.param == "kubernetes":
            connected = stack.enter_context(new_client_from_config(config_file=cluster))
            chosen["client"] = CoreV1Api(connected)
        yield chosen


def test_a_session_runs_copies_and_ends(arguments: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("given")
    with SandboxSession(lang="python", runtime_configs={"pids_limit": 32}, **arguments) as session:
        session.copy_to_runtime(tmp_path / "in.txt", "/sandbox/in.txt")
        seen: list[str] = []
        done = session.run("print(open('in.txt').read())\nraise SystemExit(3)", on_stdout=seen.append)
        assert (done, "".join(seen)) == (ConsoleOutput(3, "", "given\n"), "given\n")
        with pytest.raises(SandboxTimeoutError):
            session.run("while True: pass", timeout=0.5)
        assert session.execute_command("echo made >made.txt; id -u").stdout != "0\n"
        session.copy_from_runtime("made.txt", tmp_path / "made.txt")
    assert (tmp_path / "made.txt").read_text() == "made\n"


def test_commands_find_the_libraries_of_the_session(arguments: dict[str, Any]) -> None:
    with SandboxSession(lang="python", libraries=["tinyanswer"], env_vars={"MODE": "b"}, **arguments) as session:
        line = "python -c 'import os, tinyanswer; print(tinyanswer.__name__, os.environ[\"MODE\"])'"
        assert session.execute_command(line) == ConsoleOutput(0, "", "tinyanswer b\n")


def test_an_interactive_session_keeps_its_state(arguments: dict[str, Any]) -> None:
    with InteractiveSandboxSession(max_memory="128m", **arguments) as session:
        assert session.run("x = 41").exit_code == 0
        assert "42" in session.run("x + 1").stdout
        with pytest.raises(SandboxTimeoutError):
            session.run("while True: pass", timeout=0.5)
        assert "41" in session.run("x").stdout


@pytest.mark.parametrize("arguments", ["docker"], indirect=True)
def test_magics_work_where_a_session_installs_ipython(
    arguments: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    larger = folder / "larger.toml"
    larger.write_text(PROFILE.format(folder=folder, index="").replace('disk = "16MiB"', 'disk = "128MiB"'))
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(larger))
    with InteractiveSandboxSession(max_memory="512m", libraries=["ipython"], **arguments) as session:
        assert session.run("x = 41").kernel is KernelType.IPYTHON
        assert session.run("!echo from a shell").stdout == "from a shell\n"
        with pytest.raises(SandboxTimeoutError):
            session.run("while True: pass", timeout=0.5)
        assert session.run("x + 1").stdout.endswith(": 42\n")


def test_a_pool_serves_one_session_after_the_other(arguments: dict[str, Any]) -> None:
    with create_pool_manager(config=PoolConfig(max_pool_size=2, min_pool_size=1), **arguments) as pool:
        for number in range(3):
            with SandboxSession(pool=pool) as session:
                assert session.run(f"import os\nprint(os.listdir(), {number})").stdout == f"[] {number}\n"


def test_the_sandboxes_of_a_pool_have_its_libraries(arguments: dict[str, Any]) -> None:
    config = PoolConfig(max_pool_size=2, min_pool_size=1)
    with create_pool_manager(config=config, libraries=["tinyanswer"], **arguments) as pool:
        for _ in range(2):
            with SandboxSession(pool=pool) as session:
                assert session.run("import tinyanswer\nprint(tinyanswer.__name__)").stdout == "tinyanswer\n"


@pytest.mark.parametrize("arguments", ["docker", "podman"], indirect=True)
def test_an_image_that_does_not_exist_is_an_error_when_the_session_opens(arguments: dict[str, Any]) -> None:
    session = SandboxSession(image="localhost:1/llm-sandbox-mcp-scratch/none:1", **arguments)
    with pytest.raises(ImagePullError, match="llm-sandbox-mcp-scratch/none"):
        session.open()
    assert not session.is_open


def test_an_engine_that_does_not_answer_is_an_error_when_the_session_opens(folder: Path) -> None:
    client = docker.APIClient(base_url="unix:///nonexistent/engine", version="1.40")
    with closing(client), pytest.raises(ContainerError, match="unix:///nonexistent/engine"):
        SandboxSession(client=client).open()


def test_an_engine_whose_package_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "podman", "llm_sandbox_mcp.backends.none")
    with pytest.raises(MissingDependencyError, match="pip install"):
        SandboxSession(backend="podman").open()
