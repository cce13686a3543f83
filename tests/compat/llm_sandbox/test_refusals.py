"""An invalid argument of a session is an error that names backend and argument, before anything starts."""

import contextlib
import functools
from pathlib import Path
from typing import Any

import docker
import pytest

from llm_sandbox_mcp import (
    ArtifactSandboxSession,
    ExtraArgumentsError,
    InteractiveSandboxSession,
    PoolManager,
    SandboxSession,
    SecurityPolicy,
    UnsupportedBackendError,
    ValidationError,
    create_pool_manager,
)
from llm_sandbox_mcp.compat.llm_sandbox.options import Options


@pytest.fixture(autouse=True)
def _no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLM_SANDBOX_PROFILE", raising=False)


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
    ({"mounts": ["/a:/b:readonly"]}, "backend docker: mounts: unknown mode 'readonly'; available: ro, rw"),
    *(({"mounts": wrong}, "backend docker: mounts: '5' is not a mount") for wrong in (5, [5])),
    *(
        ({"mounts": wrong}, "backend docker: mounts: 'None' is not an absolute path")
        for wrong in ({}, {"source": "/a"})
    ),
    ({"runtime_configs": {"mounts": 5}}, r"backend docker: runtime_configs\['mounts'\]: '5' is not a mount"),
    *(
        (
            {"backend": "docker", "runtime_configs": {"volumes": wrong}},
            r"backend docker: runtime_configs\['volumes'\]: ",
        )
        for wrong in NO_VOLUMES
    ),
    *(({"libraries": wrong}, "libraries is .*; give a list of names") for wrong in (5, [5], {"numpy": 1})),
    *(({name: 5}, f"backend auto: {name}: '5' is not ") for name in KINDS),
    ({"env_vars": 5}, "backend auto: env_vars: it must be a dict"),
    ({"max_memory": 5.5}, "backend auto: max_memory: must be at least 8MiB"),
    ({"backend": "kubernetes", "kube_namespace": "A B"}, "backend kubernetes: kube_namespace: "),
    ({"backend": "kubernetes", "pod_manifest": {"spec": 5}}, "backend kubernetes: pod_manifest: "),
    ({"backend": "micromamba", "environment": 5}, "backend docker: environment: "),
    ({"security_policy": SecurityPolicy(preset="none")}, "backend auto: security_policy: unknown preset"),
    ({"libraries": "numpy"}, r"libraries is a text; give a list, such as \['numpy'\]"),
    ({"max_memory": "much"}, "backend auto: max_memory: 'much' is not a size"),
    ({"backend": "embedded", "container_id": "a"}, "backend embedded: container_id"),
    *(
        ({"container_id": "a", **other}, "a of container_id is used as it is")
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
    (
        {"workdir": "/work"},
        "backend auto: workdir: code works in /sandbox; leave it out, and name paths below /sandbox",
    ),
    ({"commit_container": True}, r"backend auto: commit_container: .* commit\(image\)"),
    *(
        ({"encoding_errors": wrong}, "backend auto: encoding_errors")
        for wrong in ("xmlcharrefreplace", "none", None, 5)
    ),
    ({"environment": "ml"}, "backend auto: environment: it is for micromamba"),
    (
        {"client": object()},
        "backend docker: client: it is from builtins; give a client from docker, podman or kubernetes",
    ),
    ({"backend": "podman", "client": "docker"}, "backend podman: client: it is for docker"),
    ({"image": "a", "dockerfile": "b"}, "image and dockerfile are both given"),
    ({"default_timeout": 0}, "default_timeout is 0"),
    ({"execution_timeout": -1.0}, "execution_timeout is"),
    ({"session_timeout": float("nan")}, "session_timeout is nan"),
    *(({name: wrong}, f"{name} is ") for name in TIMES for wrong in NO_TIMES),
    *(({"runtime_configs": {name: wrong}}, "is not a number") for name in CPUS for wrong in NO_NUMBERS),
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
    ({"runtime_configs": {"network_mode": "host"}}, "network 'host' is not supported"),
    ({"runtime_configs": {"cpu_period": 1}}, "cpu_period"),
    (
        {"runtime_configs": {"devices": ["/dev/sda"]}},
        r"runtime_configs\['devices'\]: unknown option 'devices'; available: ",
    ),
    ({"runtime_configs": {"environment": ["A"]}}, "a list of NAME=value"),
    *(
        ({"runtime_configs": {"security_opt": wrong}}, "security_opt")
        for wrong in ("no-new-privileges:false", "seccomp=unconfined", 5)
    ),
    (
        {"runtime_configs": {"mem_limit": "1m"}},
        r"backend auto: runtime_configs\['mem_limit'\]: must be at least 8MiB",
    ),
    ({"runtime_configs": {"mem_limit": "much"}}, r"backend auto: runtime_configs\['mem_limit'\]: 'much' is not a size"),
    (
        {"runtime_configs": {"user": "root"}},
        r"backend docker: runtime_configs\['user'\]: 'root' is not the number of a user",
    ),
    (
        {"runtime_configs": {"user": "0:0"}},
        r"backend docker: runtime_configs\['user'\]: '0:0' is not the number of a user",
    ),
    (
        {"runtime_configs": {"runtime": 5}},
        r"backend docker: runtime_configs\['runtime'\]: must be text in quotes",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_an_invalid_argument_is_an_error(arguments: dict[str, Any], message: str) -> None:
    with contextlib.ExitStack() as stack:
        if arguments.get("client") == "docker":
            client = stack.enter_context(contextlib.closing(docker.APIClient("unix:///nowhere", version="1.40")))
            arguments = {**arguments, "client": client}
        with pytest.raises(ValidationError, match=message):
            Options(**arguments).profile()


@pytest.mark.parametrize(
    ("name", "step"), [("runtime_config", "give runtime_configs"), ("poll_interval", "available: pool, backend, lang")]
)
def test_an_unknown_argument_is_an_error_that_names_the_known_ones(name: str, step: str) -> None:
    makers: list[Any] = [
        SandboxSession,
        ArtifactSandboxSession,
        InteractiveSandboxSession,
        create_pool_manager,
        functools.partial(SandboxSession, pool=PoolManager.__new__(PoolManager)),
    ]
    for make in makers:
        with pytest.raises(ExtraArgumentsError, match=f"backend docker: unknown argument '{name}'; .*{step}"):
            make(backend="docker", **{name: 1})


def test_a_mistake_in_the_operators_own_profile_names_its_file_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text("[limits]\ndisk = '0B'\n")
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(tmp_path / "own.toml"))
    with pytest.raises(ValidationError, match=r"own\.toml: limits\.disk: "):
        Options(runtime_configs={"mem_limit": "64m"}).profile()


def test_an_unknown_backend_is_an_error() -> None:
    with pytest.raises(UnsupportedBackendError, match="unknown backend 'nsjail'; available: auto, embedded"):
        Options(backend="nsjail").profile()
