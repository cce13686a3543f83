"""The Podman engine, through the `podman` package and the engine's own (libpod) API."""

import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from podman.api.client import APIClient
from podman.errors import APIError, ImageNotFound, NotFound, PodmanError
from requests import RequestException

from ...base.errors import ImageMissing, StartFailed
from ..base import Check, Surroundings
from ..containers import seccomp
from ..containers.addresses import Address
from ..containers.container import lost_sandbox
from ..containers.engine import (
    FIRST_SECONDS,
    LAST_CHARACTERS,
    MAPPED_USERS,
    SECONDS,
    USERS,
    Engine,
    Found,
    Recipe,
    State,
    Stored,
)
from .finding import podman_address
from .settings import Podman

_CONNECTIONS = 32
_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3})(:\d+)?/")
_REMOVALS = 12
_TERMINALS = ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "max=64")
"""The kernel has a limited number of pseudo-terminals for the machine, and one container could take them all."""
_PROCESSES = 16_384
"""Processes of one uid in all containers together; the number in one container is limited by its control group."""


class PodmanEngine(Engine):
    """One Podman service at one address."""

    name = "podman"

    def __init__(self, address: Address, runtime: Path) -> None:
        self.address = address.url
        self._seccomp = runtime / "seccomp.json" if address.url.startswith("unix://") else None
        """The system call filter, a file that the service reads; a service on another machine uses its own filter."""
        self._api = APIClient(
            base_url=self.address.replace("unix://", "http+unix://", 1), timeout=SECONDS, max_pool_size=_CONNECTIONS
        )
        self._version = ""

    def version(self) -> str:
        try:
            # Not "/version": for that the service queries the system's package manager about its parts, which takes a
            # second.
            answer = self._api.get("/_ping", timeout=FIRST_SECONDS)
        except (APIError, PodmanError, RequestException, OSError, ValueError) as error:
            raise self.unreachable(error) from error
        self._version = answer.headers.get("Libpod-API-Version", "")
        if answer.status_code != 200 or not self._version:
            raise self.stranger()
        return f"Podman {self._version}"

    def limits(self) -> Check:
        with self._translate_errors("reading its settings"):
            host = self._get("/info")["host"]
        missing = [name for name in ("memory", "pids", "cpu") if name not in (host.get("cgroupControllers") or ())]
        version = str(host.get("cgroupVersion", "")).removeprefix("v")
        if (host.get("security") or {}).get("rootless") and version != "2":
            fix = "start the machine with cgroup v2, or use a Podman service that runs as root"
            return Check("limits", "degraded", "an ordinary user cannot set limits with cgroup v1", fix)
        if missing and version == "2":
            fix = "delegate these controllers to the user: systemctl edit user@.service, [Service] Delegate=yes"
            return Check("limits", "degraded", f"the engine does not limit {', '.join(missing)}", fix)
        return Check("limits", "ok", f"memory, processes and CPUs are limited by control groups (cgroup v{version})")

    def checks(self) -> Iterator[Check]:
        with self._translate_errors("reading its settings"):
            security = self._get("/info")["host"].get("security") or {}
        if security.get("seccompEnabled") and self._seccomp is None:
            fix = "use a service on this machine, which takes a stricter profile"
            yield Check("seccomp", "degraded", "the engine's own profile, which allows user namespaces", fix)
        elif security.get("seccompEnabled"):
            yield Check("seccomp", "ok", "a stricter profile than the engine's own")
        else:
            yield Check(
                "seccomp", "degraded", "the engine filters no system calls", "use an engine that is built with seccomp"
            )
        if security.get("rootless"):
            yield Check("rootless", "ok", "root in a container is an ordinary user on the machine")

    def users(self) -> range:
        with self._translate_errors("reading its settings"):
            security = self._get("/info")["host"].get("security") or {}
        return MAPPED_USERS if security.get("rootless") else USERS

    def create(self, recipe: Recipe) -> str:
        period = 100_000
        uid, _, gid = recipe.user.partition(":")
        # `U` makes the container's user the owner of the folder, which a mode alone does not.
        writable = ["rw", "exec", "nosuid", "nodev", "mode=0700", "U"]
        spec: dict[str, Any] = {
            "cap_drop": ["ALL"],
            # On a machine with cgroup v1 the default is the machine's own namespace.
            "cgroupns": {"nsmode": "private"},
            "command": [*recipe.command],
            "entrypoint": [],
            "healthconfig": {"Test": ["NONE"]},
            "hostname": "sandbox",
            "image": recipe.image,
            "init": True,
            "ipcns": {"nsmode": "private"},
            "labels": dict(recipe.labels),
            "log_configuration": {"driver": "none"},
            "mounts": [
                {"destination": place, "type": "tmpfs", "source": "tmpfs", "options": [*writable, f"size={size}"]}
                for place, size in recipe.folders.items()
            ]
            + [{"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": [*_TERMINALS]}]
            + [
                {
                    "destination": mount.target,
                    "type": "bind",
                    "source": mount.source,
                    "options": ["rbind", "rw" if mount.writable else "ro"],
                }
                for mount in recipe.mounts
            ],
            # "private" is a bridge, or its replacement without root; the default may be the machine's own network.
            "netns": {"nsmode": "private" if recipe.network else "none"},
            "name": recipe.name,
            "no_new_privileges": True,
            "oci_runtime": recipe.runtime,
            "r_limits": [
                {"type": name, "soft": most, "hard": most}
                # "nproc" is set because the engine's default is more than a service that cannot raise limits may set.
                for name, most in {**recipe.process_limits, "nproc": _PROCESSES}.items()
            ],
            "read_only_filesystem": True,
            "read_write_tmpfs": False,
            "remove": True,
            "resource_limits": {
                "cpu": {"period": period, "quota": int(recipe.cpus * period)},
                "memory": {"limit": recipe.memory, "swap": recipe.memory},
                "pids": {"limit": recipe.pids},
            },
            "restart_policy": "no",
            "shm_size": next(iter(recipe.folders.values())),
            "stdin": True,
            "stop_signal": 9,
            "user": f"{uid}:{gid}",
            "work_dir": "/",
        }
        if self._seccomp is not None:
            spec["seccomp_profile_path"] = _written(self._seccomp)
        if recipe.gpus:
            chosen = ["all"] if recipe.gpus == "all" else range(int(recipe.gpus))
            spec["devices"] = [{"path": f"nvidia.com/gpu={name}"} for name in chosen]
        with self._translate_errors(f"making a container of {recipe.image}", step=recipe.step):
            container = str(self._post("/containers/create", spec)["Id"])
        if recipe.runtime:
            self._check_runtime(container, recipe)
        return container

    def _check_runtime(self, container: str, recipe: Recipe) -> None:
        """Removes the container and raises `StartFailed` if the service took another runtime, as old services do."""
        with self._translate_errors("inspecting a container"):
            taken = str(self._get(f"/containers/{container}/json")["OCIRuntime"])
        if recipe.runtime not in (taken, os.path.basename(taken)):
            self.remove(container)
            reason = f"the service uses the runtime {taken} and not {recipe.runtime}"
            step = f'set runtime = "{recipe.runtime}" below [engine] in its containers.conf, or {recipe.step}'
            raise self.refused(f"making a container of {recipe.image}", reason, step)

    def start(self, container: str, recipe: Recipe) -> None:
        with self._translate_errors(f"starting a container of {recipe.image}", step=recipe.step):
            self._post(f"/containers/{container}/start")

    def state(self, container: str) -> State:
        with self._translate_errors("inspecting a container", lost=True):
            state = self._get(f"/containers/{container}/json")["State"]
        return State(bool(state["Running"]), int(state["Pid"]), str(state.get("Error") or ""))

    def remove(self, container: str) -> None:
        with self._translate_errors("removing a container"):
            for attempt in range(_REMOVALS):
                answer = self._api.delete(
                    f"/containers/{container}", params={"force": True, "v": True, "timeout": 0, "ignore": True}
                )
                # The engine itself removes a container that has ended, and refuses this call until it is gone.
                if answer.status_code != 500 or attempt == _REMOVALS - 1:
                    break
                time.sleep(0.01 * (attempt + 1))
            if answer.status_code not in (404, 409):  # gone, or being removed
                answer.raise_for_status()

    def attach_path(self, container: str) -> str:
        return f"{self._prefix()}/containers/{container}/attach?stream=true&stdin=true&stdout=true&stderr=true"

    def exec_path(self, process: str) -> str:
        return f"{self._prefix()}/exec/{process}/start"

    def prepare(self, container: str, argv: Sequence[str], cwd: str, user: str) -> str:
        streams = {"AttachStdin": True, "AttachStdout": True, "AttachStderr": True, "Tty": False}
        with self._translate_errors("starting a process", lost=True):
            made = self._post(
                f"/containers/{container}/exec", {"Cmd": [*argv], "User": user, "WorkingDir": cwd, **streams}
            )
        return str(made["Id"])

    def exit_code(self, process: str) -> int | None:
        with self._translate_errors("inspecting a process", lost=True):
            state = self._get(f"/exec/{process}/json")
        return None if state["Running"] else int(state["ExitCode"])

    def find(self, label: str) -> list[Found]:
        with self._translate_errors("listing containers"):
            listed = self._get("/containers/json", all=True, filters=json.dumps({"label": [label]}))
        return [Found.read(entry) for entry in listed]

    def image(self, name: str) -> Stored | None:
        with self._translate_errors(f"looking for image {name}"):
            answer = self._api.get(f"/images/{name}/json")
            if answer.status_code == 404:
                return None
            answer.raise_for_status()
            return _stored(answer.json())

    def images(self, label: str) -> list[Stored]:
        with self._translate_errors("listing images"):
            return [_stored(found) for found in self._get("/images/json", filters=json.dumps({"label": [label]}))]

    def remove_image(self, name: str) -> None:
        with self._translate_errors(f"removing image {name}"):
            self._api.delete(f"/images/{name}").raise_for_status()

    def pull_path(self, image: str) -> str:
        # As with Docker: a registry on the engine's own machine needs no certificate, as nothing crosses a network.
        trusted = "&tlsVerify=false" if _LOOPBACK.match(image) else ""
        return f"{self._prefix()}/images/pull?reference={quote(image)}{trusted}"

    def build_path(self) -> str:
        return f"{self._prefix()}/build"

    def close(self) -> None:
        self._api.close()

    def _prefix(self) -> str:
        if not self._version:
            self.version()
        return f"/v{self._version}/libpod"

    def _get(self, path: str, **params: object) -> Any:
        answer = self._api.get(path, params=params)
        answer.raise_for_status()
        return answer.json()

    def _post(self, path: str, content: Mapping[str, object] | None = None) -> Any:
        answer = self._api.post(path, data=json.dumps(content or {}), headers={"Content-Type": "application/json"})
        answer.raise_for_status()
        return answer.json() if answer.content else None

    @contextmanager
    def _translate_errors(self, doing: str, *, step: str = "", lost: bool = False) -> Iterator[None]:
        """Turns the package's errors into ours; with `lost`, a missing object means that the sandbox is gone.

        `step` is the next step in the message if the engine refuses the request.
        """
        try:
            yield
        except (APIError, ImageNotFound) as error:
            if getattr(error, "response", None) is None:  # the package also raises this error for a failed connection
                raise self.unreachable(error) from error
            reason = " ".join(str(error.explanation or error).split())[-LAST_CHARACTERS:]
            if lost and (isinstance(error, NotFound) or error.status_code in (404, 409)):
                raise lost_sandbox() from error
            if "no such image" in reason.lower() or "image not known" in reason.lower():
                raise ImageMissing(
                    f"{self.name} at {self.address} has no image {doing.split()[-1]}",
                    "build it: llm-sandbox-mcp images build",
                ) from error
            raise self.refused(doing, reason, step) from error
        except (PodmanError, RequestException, OSError, ValueError) as error:
            raise self.unreachable(error) from error


def _written(path: Path) -> str:
    """Writes the system call filter to a file unless it exists; returns the path."""
    if path.exists():
        return str(path)
    # Written to another name and then renamed: other threads make containers at the same time.
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        temporary.write_text(seccomp.profile())
        temporary.chmod(0o644)  # the service may run as another user
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StartFailed(
            f"cannot write {path}: {error.strerror}", "set server.runtime in the profile to a writable folder"
        ) from error
    return str(path)


def _stored(found: Mapping[str, Any]) -> Stored:
    return Stored(str(found["Id"]), int(found["Size"]), tuple(found.get("RepoTags") or ()), found.get("Labels") or {})


def find_engine(settings: Podman, surroundings: Surroundings) -> PodmanEngine:
    """The service that the profile names, or else the one that Podman's own tools would use."""
    engine = PodmanEngine(podman_address(settings, surroundings.environ), surroundings.runtime)
    # Checks the address first: the package would leave a socket open if nothing listens there.
    engine.connect().close()
    engine.version()
    return engine
