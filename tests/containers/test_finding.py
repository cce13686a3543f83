"""Engines are found as their own tools find them, and anything that is not an engine is soon reported."""

import hashlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.backends import copying
from llm_sandbox_mcp.backends.base import Backend
from llm_sandbox_mcp.backends.containers.addresses import Address, Certificates
from llm_sandbox_mcp.backends.docker.finding import docker_address
from llm_sandbox_mcp.backends.docker.settings import Docker
from llm_sandbox_mcp.backends.layout import PATH
from llm_sandbox_mcp.backends.podman.finding import podman_address
from llm_sandbox_mcp.backends.podman.settings import Podman
from llm_sandbox_mcp.base.errors import EngineUnavailable
from llm_sandbox_mcp.wiring import open_backend
from tests.deadlines import within
from tests.engines import docker_host, need, podman_host, small_profile, surroundings

from .conftest import HOSTS

pytestmark = pytest.mark.anyio

SOON = 10.0

DOCKER = Docker(host="", context="", ca="", cert="", key="")
PODMAN = Podman(host="")


def backend_at(engine: str, folder: Path, environ: Mapping[str, str] | None = None, **settings: str) -> Backend:
    """A backend whose engine is where the settings and the environment say."""
    profile = small_profile(engine, folder, **{engine: {"host": "", **settings}})
    return open_backend(profile, replace(surroundings(folder), environ=environ or {}))


async def runs(backend: Backend, folder: Path) -> bool:
    """Whether a program gets all of its input up to EOF, and its output comes back complete."""
    policy = small_profile("docker", folder).limits.policy()
    data = b"x" * 300_000

    async def chunks() -> AsyncIterator[bytes]:
        yield data

    with anyio.fail_after(60):
        async with backend, backend.sandbox(policy, backend.image_of("python")) as sandbox:
            # It prints before its input has ended, and after.
            done = await sandbox.run(["sh", "-c", "echo early; exec cat"], {"PATH": PATH}, stdin=chunks())
            await copying.copy_in(sandbox, "a", len(data), chunks)
            found = await sandbox.run(["wc", "-c", "a"], {"PATH": PATH})
            return done.stdout == b"early\n" + data and found.stdout == b"300000 a\n"


async def refusal(backend: Backend, folder: Path) -> str:
    policy = small_profile("docker", folder).limits.policy()
    with pytest.raises(EngineUnavailable) as raised, within(SOON):
        async with backend, backend.sandbox(policy, backend.image_of("python")):
            pass
    return str(raised.value)


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
@pytest.mark.parametrize("way", ["profile", "environment", "current"])
async def test_a_context_of_docker_is_used(engine: str, folder: Path, way: str) -> None:
    meta = folder / "docker/contexts/meta" / hashlib.sha256(b"mine").hexdigest()
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(
        json.dumps({"Name": "mine", "Metadata": {}, "Endpoints": {"docker": {"Host": docker_host()}}})
    )
    (folder / "docker/config.json").write_text(json.dumps({"currentContext": "mine"} if way == "current" else {}))
    environ = {"DOCKER_CONFIG": str(folder / "docker")} | ({"DOCKER_CONTEXT": "mine"} if way == "environment" else {})
    named = {"context": "mine"} if way == "profile" else {}
    assert await runs(backend_at(engine, folder, environ, **named), folder)


async def test_the_socket_of_an_ordinary_users_engine_is_found(
    engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The engine of the whole machine, which may exist, must not be found here.
    monkeypatch.setattr(f"llm_sandbox_mcp.backends.{engine}.finding._SOCKET", str(folder / "none.sock"))
    place = folder / {"docker": "docker.sock", "podman": "podman/podman.sock"}[engine]
    place.parent.mkdir(exist_ok=True)
    place.symlink_to((HOSTS[engine]() or "").removeprefix("unix://"))
    backend = backend_at(engine, folder, {"XDG_RUNTIME_DIR": str(folder)})
    async with backend:
        first, *_ = await backend.probe()
    assert first.detail.endswith(f" at unix://{place}")
    assert await runs(backend_at(engine, folder, {"XDG_RUNTIME_DIR": str(folder)}), folder)


@pytest.mark.parametrize(
    ("environ", "place"), [("HOME", ".docker/run/docker.sock"), ("DOCKER_CONFIG", "run/docker.sock")]
)
def test_the_socket_below_dockers_own_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: str, place: str
) -> None:
    monkeypatch.setattr("llm_sandbox_mcp.backends.docker.finding._SOCKET", str(tmp_path / "none.sock"))
    socket_file = tmp_path / place
    socket_file.parent.mkdir(parents=True)
    socket_file.touch()
    assert docker_address(DOCKER, {environ: str(tmp_path)}).url == f"unix://{socket_file}"


def test_the_engine_of_the_whole_machine_comes_before_an_ordinary_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "podman").mkdir()
    machines, docker_own, podman_own = tmp_path / "m.sock", tmp_path / "docker.sock", tmp_path / "podman/podman.sock"
    for place in (machines, docker_own, podman_own):
        place.touch()
    monkeypatch.setattr("llm_sandbox_mcp.backends.docker.finding._SOCKET", str(machines))
    monkeypatch.setattr("llm_sandbox_mcp.backends.podman.finding._SOCKET", str(machines))
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert docker_address(DOCKER, environ).url == f"unix://{machines}"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert podman_address(PODMAN, environ).url == f"unix://{machines}"
    # An ordinary user cannot use root's service.
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert podman_address(PODMAN, environ).url == f"unix://{podman_own}"


def pems(folder: Path, *names: str) -> Certificates:
    """Certificates of these names, whose files are made in the folder."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.pem").touch()
    ca, cert, key = (str(folder / f"{name}.pem") if name in names else "" for name in ("ca", "cert", "key"))
    return Certificates(ca, cert, key)


@pytest.mark.parametrize("host", ["tcp://10.0.0.5:2376", "https://10.0.0.5:2376", "10.0.0.5:2376", "tcp://10.0.0.5"])
@pytest.mark.parametrize("named_by", ["profile", "environment"])
def test_the_certificates_of_dockers_tools_are_used_for_each_host_but_the_profiles_come_first(
    tmp_path: Path, host: str, named_by: str
) -> None:
    theirs, own = pems(tmp_path / "theirs", "ca", "cert", "key"), pems(tmp_path / "own", "ca", "cert", "key")
    settings = DOCKER.model_copy(update={"host": host if named_by == "profile" else ""})
    environ = {"DOCKER_HOST": host if named_by == "environment" else "tcp://10.0.0.6:2375"}
    place = {"DOCKER_CERT_PATH": str(tmp_path / "theirs")}
    found = docker_address(settings, environ | place | {"DOCKER_TLS_VERIFY": "1"})
    assert found == Address("tcp://10.0.0.5:2376", theirs)
    unverified = docker_address(settings, environ | place | {"DOCKER_TLS": "1"})
    assert unverified == Address("tcp://10.0.0.5:2376", replace(theirs, ca="", verify=False))
    # Docker's own tools do not look at the folder of certificates either, unless one of these variables is set.
    public = Certificates() if host.startswith("https:") else None
    assert docker_address(settings, environ | place).certificates == public
    named = settings.model_copy(update={"ca": own.ca, "cert": own.cert, "key": own.key})
    found = docker_address(named, environ | place | {"DOCKER_TLS_VERIFY": "1"})
    assert found == Address("tcp://10.0.0.5:2376", own)


def test_a_client_certificate_that_is_not_there_is_not_needed(tmp_path: Path) -> None:
    authority = pems(tmp_path, "ca")
    environ = {"DOCKER_HOST": "tcp://10.0.0.5", "DOCKER_TLS_VERIFY": "1", "DOCKER_CONFIG": str(tmp_path)}
    assert docker_address(DOCKER, environ) == Address("tcp://10.0.0.5:2376", authority)


def test_certificates_do_not_matter_to_a_socket(tmp_path: Path) -> None:
    environ = {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
    settings = DOCKER.model_copy(update={"host": "unix:///run/x.sock"})
    assert docker_address(settings, environ) == Address("unix:///run/x.sock")


def test_the_profiles_certificates_are_used_for_a_context(tmp_path: Path) -> None:
    own = pems(tmp_path / "own", "ca", "cert", "key")
    meta = tmp_path / "contexts/meta" / hashlib.sha256(b"far").hexdigest()
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Endpoints": {"docker": {"Host": "tcp://10.0.0.5:2376"}}}))
    settings = Docker(host="", context="far", ca=own.ca, cert=own.cert, key=own.key)
    found = docker_address(settings, {"DOCKER_CONFIG": str(tmp_path)})
    assert found == Address("tcp://10.0.0.5:2376", own)


async def test_the_variables_of_the_tools_are_read(engine: str, folder: Path) -> None:
    variable = {"docker": "DOCKER_HOST", "podman": "CONTAINER_HOST"}[engine]
    assert await runs(backend_at(engine, folder, {variable: HOSTS[engine]() or ""}), folder)


def test_a_connection_of_podman_is_used_and_settings_without_one_are_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "containers"
    folder.mkdir()
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    (folder / "containers.conf").write_text('[engine]\nruntime = "runc"\n')
    assert podman_address(PODMAN, environ).url.endswith("/podman.sock")
    connections = {"Default": "a", "Connections": {"a": {"URI": "unix:///a.sock"}, "b": {"URI": "unix:///b.sock"}}}
    (folder / "podman-connections.json").write_text(json.dumps({"Connection": connections}))
    assert podman_address(PODMAN, environ).url == "unix:///a.sock"
    assert podman_address(PODMAN, environ | {"CONTAINER_CONNECTION": "b"}).url == "unix:///b.sock"
    with pytest.raises(EngineUnavailable, match="no connection c"):
        podman_address(PODMAN, environ | {"CONTAINER_CONNECTION": "c"})


def test_ssh_and_unknown_contexts_are_refused_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"ssh -L.*docker\.host"):
        docker_address(DOCKER, {"DOCKER_HOST": "ssh://somewhere"})
    with pytest.raises(EngineUnavailable, match=r"no context gone .*docker context ls"):
        docker_address(DOCKER, {"DOCKER_CONTEXT": "gone", "DOCKER_CONFIG": str(tmp_path)})


def silence(peer: socket.socket) -> None:
    peer.recv(1)


def page_not_found(peer: socket.socket) -> None:
    peer.recv(4096)
    peer.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nConnection: close\r\n\r\nnope\n")


def garbage(peer: socket.socket) -> None:
    peer.recv(4096)
    peer.sendall(b"\x00\xff" * 100)


def other_json(peer: socket.socket) -> None:
    peer.recv(4096)
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]")


@pytest.mark.parametrize("answer", [silence, page_not_found, garbage, other_json])
@pytest.mark.parametrize("engine", HOSTS)
async def test_anything_that_is_not_an_engine_is_soon_reported(
    engine: str, folder: Path, answer: Callable[[socket.socket], None]
) -> None:
    path = folder / "x.sock"
    kept = []
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            async with await anyio.create_unix_listener(path) as listener:
                while True:
                    stream = await listener.accept()
                    kept.append(stream)
                    raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
                    if answer is not silence:
                        await anyio.wait_readable(raw)
                        with suppress(OSError):  # a client that only checked whether something listens is gone
                            answer(raw)
                        await stream.aclose()

        tasks.start_soon(serve)
        while not path.exists():
            await anyio.lowlevel.checkpoint()
        said = await refusal(backend_at(engine, folder, host=f"unix://{path}"), folder)
        tasks.cancel_scope.cancel()
    for stream in kept:
        await stream.aclose()
    assert f"unix://{path}" in said and f"{engine}.host of the profile" in said


@pytest.mark.parametrize("engine", HOSTS)
async def test_a_missing_engine_is_reported(engine: str, folder: Path) -> None:
    said = await refusal(backend_at(engine, folder, host=f"unix://{folder}/none.sock"), folder)
    assert f"{engine} does not answer at unix://{folder}/none.sock: No such file" in said


async def test_podman_instead_of_docker_is_reported(folder: Path) -> None:
    await need("podman")
    said = await refusal(backend_at("docker", folder, host=podman_host() or ""), folder)
    assert 'is Podman; set backend.name = "podman"' in said
