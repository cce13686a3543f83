"""Each argument of a session has its effect on the profile, or is an error that names backend and argument."""

import contextlib
import functools
from pathlib import Path
from typing import Any

import docker
import podman
import pytest

from llm_sandbox_mcp import (
    ArtifactSandboxSession,
    ExtraArgumentsError,
    InteractiveSandboxSession,
    PoolManager,
    SandboxBackend,
    SandboxSession,
    SecurityPolicy,
    SupportedLanguage,
    UnsupportedBackendError,
    ValidationError,
    create_pool_manager,
)
from llm_sandbox_mcp.blocking.options import Options
from llm_sandbox_mcp.profile import Profile

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLM_SANDBOX_PROFILE", raising=False)


def value(profile: Profile, key: str) -> Any:
    """What a profile has below a key such as limits.memory."""
    found: Any = profile.model_dump()
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

KINDS = ("image", "dockerfile", "container_id", "kube_namespace", "runtime_configs", "pod_manifest", "security_policy")
TIMES = ("default_timeout", "execution_timeout", "session_timeout")
NO_TIMES: list[Any] = ["5", "5s", True, [], float("nan")]
NO_NUMBERS: list[Any] = ["x", [], 10**400]
NO_PIDS: list[Any] = [0, -1, 7, "x", 8.5, float("inf"), []]
NO_VOLUMES: list[Any] = [
    5,
    "/a:/b",
    ["a:/b"],
    [None],
    {"/a": 5},
    {"/a": {}},
    ["/a:/b:rx"],
    {"/a": {"bind": "/b", "mode": "ro;z"}},
]
CPUS = ("cpus", "cpu_count", "nano_cpus", "cpu_quota")
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"backend": "embedded", "image": "a"}, "backend embedded: image: it is for"),
    ({"backend": "embedded", "dockerfile": __file__}, "backend embedded: dockerfile: it is for docker and podman"),
    ({"backend": "kubernetes", "dockerfile": __file__}, "backend kubernetes: dockerfile"),
    ({"backend": "docker", "dockerfile": "/none/Dockerfile"}, "backend docker: dockerfile: there is no file"),
    ({"backend": "embedded", "mounts": ["/a:/b"]}, "backend embedded: mounts"),
    ({"backend": "docker", "mounts": [{"type": "volume", "source": "a", "target": "/b"}]}, "backend docker: mounts"),
    ({"mounts": ["/a:/b:readonly"]}, "backend docker: mounts: 'readonly' is no mode that there is: ro, rw"),
    *(({"mounts": wrong}, "backend docker: mounts: '5' is neither") for wrong in (5, [5])),
    *(({"mounts": wrong}, "backend docker: mounts: 'None' is no path") for wrong in ({}, {"source": "/a"})),
    ({"runtime_configs": {"mounts": 5}}, r"backend docker: runtime_configs\['mounts'\]: '5' is neither"),
    *(
        (
            {"backend": "docker", "runtime_configs": {"volumes": wrong}},
            r"backend docker: runtime_configs\['volumes'\]: ",
        )
        for wrong in NO_VOLUMES
    ),
    *(({"libraries": wrong}, "libraries is .*; give a list of names") for wrong in (5, [5])),
    *(({name: 5}, f"backend auto: {name}: '5' is no ") for name in KINDS),
    ({"env_vars": 5}, "backend auto: env_vars: it must be a table"),
    ({"max_memory": 5.5}, "backend auto: max_memory: Input should be greater"),
    ({"backend": "kubernetes", "kube_namespace": "A B"}, "backend kubernetes: kube_namespace: "),
    ({"backend": "kubernetes", "pod_manifest": {"spec": 5}}, "backend kubernetes: pod_manifest: "),
    ({"backend": "micromamba", "environment": 5}, "backend docker: environment: "),
    ({"security_policy": SecurityPolicy(preset="none")}, "backend auto: security_policy: no preset is named"),
    ({"libraries": "numpy"}, r"libraries is a text; give a list, such as \['numpy'\]"),
    ({"max_memory": "much"}, "backend auto: max_memory: 'much' is no size"),
    ({"backend": "embedded", "container_id": "a"}, "backend embedded: container_id"),
    *(
        ({"container_id": "a", **other}, "a of container_id is there already")
        for other in (
            {"image": "b"},
            {"dockerfile": __file__},
            {"mounts": ["/a:/b"]},
            {"runtime_configs": {"mem_limit": "64m"}},
            {"runtime_configs": {"network_mode": "none", "user": "1000"}},
            {"backend": "kubernetes", "pod_manifest": {"spec": {}}},
        )
    ),
    ({"backend": "podman", "kube_namespace": "a"}, "backend podman: kube_namespace: it is for kubernetes"),
    ({"backend": "docker", "pod_manifest": {}}, "backend docker: pod_manifest"),
    ({"workdir": "/work"}, "backend auto: workdir"),
    ({"commit_container": True}, r"backend auto: commit_container: .* commit\(image\)"),
    *(
        ({"encoding_errors": wrong}, "backend auto: encoding_errors")
        for wrong in ("xmlcharrefreplace", "none", None, 5)
    ),
    ({"environment": "ml"}, "backend auto: environment: it is for micromamba"),
    ({"client": object()}, "backend docker: client: it is one of builtins"),
    ({"backend": "podman", "client": "docker"}, "backend podman: client: it is for docker"),
    ({"image": "a", "dockerfile": "b"}, "image and dockerfile are both given"),
    ({"default_timeout": 0}, "default_timeout is 0"),
    ({"execution_timeout": -1.0}, "execution_timeout is"),
    ({"session_timeout": float("nan")}, "session_timeout is nan"),
    *(({name: wrong}, f"{name} is ") for name in TIMES for wrong in NO_TIMES),
    *(({"runtime_configs": {name: wrong}}, "is no number") for name in CPUS for wrong in NO_NUMBERS),
    *(
        ({"runtime_configs": {name: wrong}}, rf"backend auto: runtime_configs\['{name}'\]: ")
        for name in CPUS
        for wrong in (0, -1, float("nan"), float("inf"))
    ),
    ({"runtime_configs": {"cpu_quota": 1, "cpu_period": 0}}, "cpu_period"),
    ({"runtime_configs": {"cpu_quota": 1, "cpu_period": "x"}}, "cpu_period"),
    *(({"runtime_configs": {"pids_limit": wrong}}, r"auto: runtime_configs\['pids_limit'\]: ") for wrong in NO_PIDS),
    ({"runtime_configs": {"privileged": True}}, r"backend auto: runtime_configs\['privileged'\]"),
    ({"runtime_configs": {"read_only": False}}, "read_only"),
    ({"runtime_configs": {"cap_add": ["SYS_ADMIN"]}}, "cap_add"),
    ({"runtime_configs": {"security_opt": ["seccomp=unconfined"]}}, "security_opt"),
    ({"runtime_configs": {"network_mode": "host"}}, "'host' is no network"),
    ({"runtime_configs": {"cpu_period": 1}}, "cpu_period"),
    ({"runtime_configs": {"devices": ["/dev/sda"]}}, r"runtime_configs\['devices'\]: it is not known"),
    ({"runtime_configs": {"environment": ["A"]}}, "a list of NAME=value"),
    *(
        ({"runtime_configs": {"security_opt": wrong}}, "security_opt")
        for wrong in ("no-new-privileges:false", "seccomp=unconfined", 5)
    ),
    (
        {"runtime_configs": {"mem_limit": "1m"}},
        r"backend auto: runtime_configs\['mem_limit'\]: Input should be greater",
    ),
    ({"runtime_configs": {"mem_limit": "much"}}, r"backend auto: runtime_configs\['mem_limit'\]: 'much' is no size"),
    ({"runtime_configs": {"user": "root"}}, r"backend docker: runtime_configs\['user'\]: 'root' is no user"),
    ({"runtime_configs": {"user": "0:0"}}, r"backend docker: runtime_configs\['user'\]: '0:0' is no user"),
    (
        {"runtime_configs": {"runtime": 5}},
        r"backend docker: runtime_configs\['runtime'\]: Input should be a valid string",
    ),
]


@pytest.mark.parametrize(("arguments", "key", "expected"), MEANT)
def test_an_argument_sets_a_key_of_the_profile(arguments: dict[str, Any], key: str, expected: object) -> None:
    assert value(Options(**arguments).profile(), key) == expected


@pytest.mark.parametrize("backend", ["embedded", "docker", "podman", "kubernetes"])
@pytest.mark.parametrize(("configs", "key", "expected"), CONFIGS)
def test_what_every_backend_can_do(backend: str, configs: dict[str, Any], key: str, expected: object) -> None:
    assert value(Options(backend=backend, runtime_configs=configs).profile(), key) == expected


@pytest.mark.parametrize(("configs", "key", "expected"), OF_CONTAINERS)
def test_what_only_containers_can_do(configs: dict[str, Any], key: str, expected: object) -> None:
    for backend in ("docker", "podman"):
        assert value(Options(backend=backend, runtime_configs=configs).profile(), key) == expected
    (name,) = configs
    assert Options(runtime_configs=configs).engine == "docker"
    for backend in ("embedded", "kubernetes"):
        with pytest.raises(ValidationError, match=rf"backend {backend}: runtime_configs\['{name}'\]"):
            Options(backend=backend, runtime_configs=configs).profile()


@pytest.mark.parametrize("configs", ALWAYS)
def test_what_always_holds_may_be_asked_for(configs: dict[str, Any]) -> None:
    assert Options(runtime_configs=configs).profile() == Options().profile()


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_cannot_be_is_an_error(arguments: dict[str, Any], message: str) -> None:
    with contextlib.ExitStack() as stack:
        if arguments.get("client") == "docker":
            client = stack.enter_context(contextlib.closing(docker.APIClient("unix:///nowhere", version="1.40")))
            arguments = {**arguments, "client": client}
        with pytest.raises(ValidationError, match=message):
            Options(**arguments).profile()


@pytest.mark.parametrize(
    ("name", "step"), [("runtime_config", "give runtime_configs"), ("poll_interval", "one of pool, backend, lang")]
)
def test_an_argument_that_there_is_not_is_an_error_that_names_those_that_there_are(name: str, step: str) -> None:
    makers: list[Any] = [
        SandboxSession,
        ArtifactSandboxSession,
        InteractiveSandboxSession,
        create_pool_manager,
        functools.partial(SandboxSession, pool=PoolManager.__new__(PoolManager)),
    ]
    for make in makers:
        with pytest.raises(ExtraArgumentsError, match=f"backend docker: {name}: there is no such argument; .*{step}"):
            make(backend="docker", **{name: 1})


def test_a_mistake_in_the_operators_own_profile_names_its_file_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text("[limits]\ndisk = '0B'\n")
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(tmp_path / "own.toml"))
    with pytest.raises(ValidationError, match=r"own\.toml: limits\.disk: "):
        Options(runtime_configs={"mem_limit": "64m"}).profile()


def test_a_backend_that_there_is_not_is_an_error() -> None:
    with pytest.raises(UnsupportedBackendError, match="there is no backend 'nsjail'; there are: auto, embedded"):
        Options(backend="nsjail").profile()


def test_clients_say_where_their_engines_are(tmp_path: Path) -> None:
    local = docker.DockerClient(base_url="unix:///run/own.sock", version="1.40")
    assert value(Options(client=local).profile(), "docker.host") == "unix:///run/own.sock"
    local.close()
    plain = docker.APIClient(base_url="tcp://127.0.0.1:2375", version="1.40")
    assert value(Options(client=plain).profile(), "docker.host") == "tcp://127.0.0.1:2375"
    plain.close()
    other = podman.PodmanClient(base_url="unix:///run/own/podman.sock")
    assert value(Options(client=other).profile(), "podman.host") == "unix:///run/own/podman.sock"
    assert value(Options(client=other).profile(), "backend.name") == "podman"
    other.close()  # type: ignore[no-untyped-call]


def test_a_clients_certificates_are_used(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).touch()
    tls = docker.tls.TLSConfig(
        ca_cert=str(tmp_path / "ca"), client_cert=(str(tmp_path / "cert"), str(tmp_path / "key")), verify=True
    )
    client = docker.APIClient(base_url="https://127.0.0.1:2376", tls=tls, version="1.40")
    section = Options(client=client).profile().docker
    assert (section.host, section.ca) == ("tcp://127.0.0.1:2376", str(tmp_path / "ca"))
    assert (section.cert, section.key) == (str(tmp_path / "cert"), str(tmp_path / "key"))
    client.close()


def test_a_dockerfile_is_an_image_by_its_text(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    names = []
    for text in ("FROM a", "FROM b"):
        file.write_text(text)
        profile = Options(dockerfile=file).profile()
        assert value(profile, "containers.dockerfiles") == {"python": str(file)}
        names.append(value(profile, "containers.images.python"))
    assert names[0] != names[1]


def test_the_operators_profile_is_what_arguments_are_laid_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.toml").write_text("[limits]\npids = 100\nmemory = '64MiB'\n")
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(tmp_path / "own.toml"))
    profile = Options(runtime_configs={"pids_limit": 50}).profile()
    assert (profile.limits.pids, profile.limits.memory) == (50, 64 * MIB)


def test_the_memory_of_an_interactive_session_is_no_more_than_the_operators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text("[limits]\nmemory = '64MiB'\n")
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(tmp_path / "own.toml"))
    assert Options(max_memory="1GB").profile().limits.memory == 64 * MIB
    assert Options(max_memory="32m").profile().limits.memory == 32 * MIB


def test_a_library_without_a_profile_may_run_for_a_day_and_print_much() -> None:
    limits = Options().profile().limits
    assert (limits.timeout, limits.shown) == (86_400, 8 * MIB)
