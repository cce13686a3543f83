"""The effect of each argument of a session on the profile; invalid arguments are in test_refusals.py."""

from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import podman
import pytest
from requests.adapters import HTTPAdapter

from llm_sandbox_mcp import SandboxBackend, SupportedLanguage, ValidationError
from llm_sandbox_mcp.backends.containers.addresses import Certificates
from llm_sandbox_mcp.backends.docker.finding import docker_address
from llm_sandbox_mcp.compat.llm_sandbox.options import Options
from llm_sandbox_mcp.profile.profile import Profile
from tests.engines import table

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLM_SANDBOX_PROFILE", raising=False)


def value(profile: Profile, key: str) -> Any:
    """The value of a profile's key, such as limits.memory."""
    found: Any = profile.model_dump()
    for engine in found["engines"].values():
        found |= engine
    for name in key.split("."):
        found = found[name]
    return found


MEANT: list[tuple[dict[str, Any], str, object]] = [
    ({}, "backend.name", "auto"),
    ({"backend": "bubblewrap"}, "backend.name", "embedded"),
    ({"backend": SandboxBackend.DOCKER}, "backend.name", "docker"),
    ({"backend": "PODMAN"}, "backend.name", "podman"),
    ({"image": "python:3.12"}, "backend.name", "docker"),
    ({"image": "python:3.12"}, "containers.images", {"python": "python:3.12"}),
    ({"image": "python:3.12"}, "containers.pull", "missing"),
    ({"image": "node:22", "lang": SupportedLanguage.JAVASCRIPT}, "containers.images", {"javascript": "node:22"}),
    ({"image": "a:1", "backend": "kubernetes"}, "kubernetes.images", {"python": "a:1"}),
    ({"container_id": "abc"}, "containers.join", "abc"),
    ({"container_id": "abc", "runtime_configs": {"environment": {"A": 1}}}, "languages.python.env", {"A": "1"}),
    ({"container_id": "pod-1", "backend": "kubernetes"}, "kubernetes.join", "pod-1"),
    ({"kube_namespace": "boxes", "backend": "kubernetes"}, "kubernetes.namespace", "boxes"),
    ({"pod_manifest": {"spec": {}}, "backend": "kubernetes"}, "kubernetes.pod_manifest", {"spec": {}}),
    ({"env_vars": {"A": "1"}}, "languages.python.env", {"A": "1"}),
    ({"backend": "micromamba", "environment": "ml"}, "containers.prefix", ("micromamba", "run", "-n", "ml")),
    ({"backend": "micromamba"}, "containers.images", {"python": "mambaorg/micromamba:latest"}),
    ({"backend": "MicroMamba"}, "containers.images", {"python": "mambaorg/micromamba:latest"}),
    ({"image": "a", "lang": "PYTHON"}, "containers.images", {"python": "a"}),
    ({"image": "a", "lang": "js"}, "containers.images", {"javascript": "a"}),
    ({"env_vars": {"A": "1"}, "lang": "Py"}, "languages.python.env", {"A": "1"}),
    ({"mounts": ["/data:/in:ro,z"]}, "containers.mounts", ({"source": "/data", "target": "/in", "writable": False},)),
    ({"mounts": {"source": "/data", "target": "/in"}}, "backend.name", "docker"),
    ({"workdir": None}, "backend.name", "auto"),
    ({"workdir": "/sandbox/"}, "backend.name", "auto"),
    ({"mounts": "/data:/in"}, "containers.mounts", ({"source": "/data", "target": "/in", "writable": True},)),
    ({"max_memory": "1GB"}, "limits.memory", 1024 * MIB),
    ({"max_memory": "1GB", "runtime_configs": {"mem_limit": "64m"}}, "limits.memory", 64 * MIB),
    ({"mounts": ["/data:/in:ro"]}, "containers.mounts", ({"source": "/data", "target": "/in", "writable": False},)),
    (
        {"mounts": [docker.types.Mount("/in", "/data", type="bind", read_only=True)]},
        "containers.mounts",
        ({"source": "/data", "target": "/in", "writable": False},),
    ),
]

CONFIGS: list[tuple[dict[str, Any], str, object]] = [
    ({"mem_limit": "512m"}, "limits.memory", 512 * MIB),
    ({"mem_limit": "1GB"}, "limits.memory", 1024 * MIB),
    ({"mem_limit": 64 * MIB}, "limits.memory", 64 * MIB),
    ({"memory": "1.5g"}, "limits.memory", 1536 * MIB),
    ({"cpus": 1}, "limits.cpus", 1.0),
    ({"cpu_count": 2}, "limits.cpus", 2.0),
    ({"nano_cpus": 500_000_000}, "limits.cpus", 0.5),
    ({"cpu_quota": 50_000}, "limits.cpus", 0.5),
    ({"cpu_quota": 50_000, "cpu_period": 200_000}, "limits.cpus", 0.25),
    ({"pids_limit": 32}, "limits.pids", 32),
    ({"network_mode": "none"}, "network.mode", "none"),
    ({"network_mode": "bridge"}, "network.mode", "open"),
    ({"network_disabled": True}, "network.mode", "none"),
    ({"environment": {"A": 1}}, "languages.python.env", {"A": "1"}),
    ({"environment": ["A=1=2"]}, "languages.python.env", {"A": "1=2"}),
    ({"mem_limit": None, "pids_limit": 32}, "limits.pids", 32),
]

OF_CONTAINERS: list[tuple[dict[str, Any], str, object]] = [
    ({"user": "1000:2000"}, "containers.user", "1000:2000"),
    ({"user": 1000}, "containers.user", "1000:1000"),
    ({"runtime": "runsc"}, "containers.runtime", "runsc"),
    (
        {"volumes": {"/data": {"bind": "/in", "mode": "ro"}}},
        "containers.mounts",
        ({"source": "/data", "target": "/in", "writable": False},),
    ),
    (
        {"volumes": {"/data": {"bind": "/in", "mode": "Z,ro"}}},
        "containers.mounts",
        ({"source": "/data", "target": "/in", "writable": False},),
    ),
    ({"volumes": {"/data": "/in"}}, "containers.mounts", ({"source": "/data", "target": "/in", "writable": True},)),
    ({"volumes": ["/data:/in"]}, "containers.mounts", ({"source": "/data", "target": "/in", "writable": True},)),
    ({"mounts": "/data:/in"}, "containers.mounts", ({"source": "/data", "target": "/in", "writable": True},)),
    (
        {"mounts": [docker.types.Mount("/in", "/data", type="bind", read_only=True)]},
        "containers.mounts",
        ({"source": "/data", "target": "/in", "writable": False},),
    ),
    ({"volumes": ["/data:/in:ro,z"]}, "containers.mounts", ({"source": "/data", "target": "/in", "writable": False},)),
]

ALWAYS: list[dict[str, Any]] = [
    {"privileged": False},
    {"read_only": True},
    {"cap_drop": ["ALL"]},
    {"security_opt": ["no-new-privileges:true"]},
    {"security_opt": "no-new-privileges"},
    {"auto_remove": True},
    {"auto_remove": False, "remove": False},
    {"detach": True},
    {"detach": False},
    {"tty": False},
    {"working_dir": "/sandbox/"},
    dict.fromkeys(("mem_limit", "cpus", "pids_limit", "network_mode", "user", "volumes", "cap_add", "working_dir")),
]


@pytest.mark.parametrize(("arguments", "key", "expected"), MEANT)
def test_an_argument_sets_a_key_of_the_profile(arguments: dict[str, Any], key: str, expected: object) -> None:
    assert value(Options(**arguments).profile(), key) == expected


@pytest.mark.parametrize("backend", ["embedded", "docker", "podman", "kubernetes"])
@pytest.mark.parametrize(("configs", "key", "expected"), CONFIGS)
def test_runtime_configs_of_every_backend(backend: str, configs: dict[str, Any], key: str, expected: object) -> None:
    assert value(Options(backend=backend, runtime_configs=configs).profile(), key) == expected


@pytest.mark.parametrize(("configs", "key", "expected"), OF_CONTAINERS)
def test_runtime_configs_of_containers_only(configs: dict[str, Any], key: str, expected: object) -> None:
    for backend in ("docker", "podman"):
        assert value(Options(backend=backend, runtime_configs=configs).profile(), key) == expected
    (name,) = configs
    assert Options(runtime_configs=configs).engine == "docker"
    for backend in ("embedded", "kubernetes"):
        with pytest.raises(ValidationError, match=rf"backend {backend}: runtime_configs\['{name}'\]"):
            Options(backend=backend, runtime_configs=configs).profile()


@pytest.mark.parametrize("configs", ALWAYS)
def test_runtime_configs_that_always_apply_are_accepted(configs: dict[str, Any]) -> None:
    assert Options(runtime_configs=configs).profile() == Options().profile()


def test_the_address_of_a_client_is_used(tmp_path: Path) -> None:
    local = docker.DockerClient(base_url="unix:///run/own.sock", version="1.40")
    assert value(Options(client=local).profile(), "docker.host") == "unix:///run/own.sock"
    local.close()
    plain = docker.APIClient(base_url="tcp://127.0.0.1:2375", version="1.40")
    assert value(Options(client=plain).profile(), "docker.host") == "http://127.0.0.1:2375"
    plain.close()
    other = podman.PodmanClient(base_url="unix:///run/own/podman.sock")
    assert value(Options(client=other).profile(), "podman.host") == "unix:///run/own/podman.sock"
    assert value(Options(client=other).profile(), "backend.name") == "podman"
    other.close()  # type: ignore[no-untyped-call]


def test_the_certificates_of_a_client_are_used(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).touch()
    tls = docker.tls.TLSConfig(
        ca_cert=str(tmp_path / "ca"), client_cert=(str(tmp_path / "cert"), str(tmp_path / "key")), verify=True
    )
    client = docker.APIClient(base_url="https://127.0.0.1:2376", tls=tls, version="1.40")
    section = table(Options(client=client).profile(), "docker")
    assert (section.host, section.ca) == ("https://127.0.0.1:2376", str(tmp_path / "ca"))
    assert (section.cert, section.key) == (str(tmp_path / "cert"), str(tmp_path / "key"))
    client.close()


def test_a_client_without_its_own_authority_trusts_those_of_the_machine() -> None:
    tls = docker.tls.TLSConfig(verify=True)
    with closing(docker.APIClient(base_url="tcp://127.0.0.1:2376", tls=tls, version="1.40")) as client:
        section = table(Options(client=client).profile(), "docker")
        assert (section.host, section.ca, section.cert) == ("https://127.0.0.1:2376", "", "")
        address = docker_address(section, {})
        assert (address.url, address.certificates) == ("tcp://127.0.0.1:2376", Certificates())
        client.verify = False
        with pytest.raises(ValidationError, match="backend docker: client: it trusts any server; "):
            Options(client=client).profile()


def test_a_client_over_ssh_is_refused_with_its_address() -> None:
    with closing(docker.APIClient("unix:///nowhere", version="1.40")) as client:
        # The package does the same for ssh://, but also starts ssh.
        client.base_url = "http+docker://ssh"
        client.mount(client.base_url, HTTPAdapter())
        with pytest.raises(ValidationError, match=r"backend docker: client: it is at http\+docker://ssh, .*ssh -L"):
            Options(backend="docker", client=client).profile()


def test_a_dockerfile_with_another_text_is_another_image(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    names = []
    for text in ("FROM a", "FROM b"):
        file.write_text(text)
        profile = Options(dockerfile=file).profile()
        assert value(profile, "containers.dockerfiles") == {"python": str(file)}
        names.append(value(profile, "containers.images.python"))
    assert names[0] != names[1]


def test_arguments_override_the_operators_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.toml").write_text("[limits]\npids = 100\nmemory = '64MiB'\n")
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(tmp_path / "own.toml"))
    profile = Options(runtime_configs={"pids_limit": 50}).profile()
    assert (profile.limits.pids, profile.limits.memory) == (50, 64 * MIB)


def test_max_memory_cannot_exceed_the_operators_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.toml").write_text("[limits]\nmemory = '64MiB'\n")
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(tmp_path / "own.toml"))
    assert Options(max_memory="1GB").profile().limits.memory == 64 * MIB
    assert Options(max_memory="32m").profile().limits.memory == 32 * MIB


def test_without_a_profile_code_may_run_for_a_day_and_print_much() -> None:
    limits = Options().profile().limits
    assert (limits.timeout, limits.shown) == (86_400, 8 * MIB)
