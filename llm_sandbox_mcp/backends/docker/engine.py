"""The Docker engine, through the `docker` package: control calls here, bytes over our own raw streams."""

import os
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

import docker
from docker import auth
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.tls import TLSConfig
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit
from docker.utils import parse_repository_tag

from ...base.errors import EngineUnavailable, ImageMissing
from ..base import OWN_ENTRIES, Check
from ..containers import seccomp
from ..containers.addresses import Address
from ..containers.container import lost_sandbox
from ..containers.engine import (
    CERTIFICATES,
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
    reason_of,
)
from .finding import docker_address
from .settings import Docker

_CONNECTIONS = 32
_NO_TLS = "an HTTP request to an HTTPS server"
"""Part of the engine's answer to a request without TLS if it requires TLS."""
_MAPPED = ("name=userns", "name=rootless")
_LIMITS = {"memory": "MemoryLimit", "processes": "PidsLimit", "CPUs": "CpuCfsQuota"}


class _Client(docker.APIClient):
    """Uses only the given address and certificates, and ignores REQUESTS_CA_BUNDLE and proxies of this process."""

    trust_env = property(lambda self: False, lambda self, value: None)


class DockerEngine(Engine):
    """One Docker engine at one address, with TLS if certificates are given."""

    name = "docker"

    def __init__(self, address: Address) -> None:
        self.address = address.url
        secured: TLSConfig | None = None
        if address.certificates is not None:
            secured, self.tls = self._tls(address)
        # Checks the address first: the package would leave a socket open if nothing listens there.
        self.connect().close()
        try:
            self._api: docker.APIClient = _Client(
                base_url=self.address,
                version="auto",
                timeout=FIRST_SECONDS,
                tls=secured or False,
                max_pool_size=_CONNECTIONS,
            )
        except APIError as error:
            raise self.stranger() from error
        except (DockerException, OSError, ValueError, TypeError, AttributeError) as error:
            if _NO_TLS in str(error):
                raise EngineUnavailable(
                    f"docker at {self.address} accepts only TLS",
                    "set docker.ca, docker.cert and docker.key in the "
                    "profile, or DOCKER_TLS_VERIFY and DOCKER_CERT_PATH in the environment",
                ) from error
            raise self.unreachable(error) from error
        self._api.timeout = SECONDS
        try:
            self._refuse_podman()
        except EngineUnavailable:
            self._api.close()
            raise
        self._prefix = f"/v{self._api.api_version}"

    def _refuse_podman(self) -> None:
        """Podman answers like Docker but takes other options; raises `EngineUnavailable` that names its own backend."""
        with self._translate_errors("reading its version"):
            parts = self._api.version().get("Components") or ()
        if any("Podman" in part.get("Name", "") for part in parts):
            raise EngineUnavailable(
                f"the service at {self.address} is Podman",
                'set backend.name = "podman" in the profile, and podman.host if Podman\'s own tools do not find it',
            )

    def version(self) -> str:
        with self._translate_errors("reading its version"):
            return f"Docker {self._api.version()['Version']}"

    def limits(self) -> Check:
        with self._translate_errors("reading its settings"):
            return _limits(self._api.info())

    def checks(self) -> Iterator[Check]:
        with self._translate_errors("reading its settings"):
            info = self._api.info()
        # The engine's own profile does not matter: every container gets ours.
        if any("seccomp" in option for option in info.get("SecurityOptions") or ()):
            yield Check("seccomp", "ok", "a stricter profile than the engine's own")
        else:
            yield Check(
                "seccomp", "degraded", "the engine filters no system calls", "use an engine that is built with seccomp"
            )

    def users(self) -> range:
        with self._translate_errors("reading its settings"):
            options = self._api.info().get("SecurityOptions") or ()
        return MAPPED_USERS if any(name in option for option in options for name in _MAPPED) else USERS

    def create(self, recipe: Recipe) -> str:
        options: dict[str, Any] = {}
        if recipe.runtime:
            options["runtime"] = recipe.runtime
        if recipe.gpus:
            count = -1 if recipe.gpus == "all" else int(recipe.gpus)
            options["device_requests"] = [DeviceRequest(count=count, capabilities=[["gpu"]])]
        uid, _, gid = recipe.user.partition(":")
        # Names an owner as well: a mode alone would leave the owner of the image's folder below the mount.
        writable = f"rw,exec,nosuid,nodev,mode=0700,uid={uid},gid={gid}"
        with self._translate_errors(f"making a container of {recipe.image}", step=recipe.step):
            settings = self._api.create_host_config(
                auto_remove=True,
                cap_drop=["ALL"],
                # On a machine with cgroup v1 the default is the machine's own namespace.
                cgroupns="private",
                cpu_period=100_000,
                cpu_quota=int(recipe.cpus * 100_000),
                init=True,
                ipc_mode="private",
                log_config=LogConfig(type="none"),
                mem_limit=recipe.memory,
                memswap_limit=recipe.memory,
                # Not as "binds": for these the engine creates a missing source folder, owned by root.
                mounts=[Mount(m.target, m.source, type="bind", read_only=not m.writable) for m in recipe.mounts],
                network_mode="bridge" if recipe.network else "none",
                pids_limit=recipe.pids,
                read_only=True,
                restart_policy={"Name": "no"},
                security_opt=["no-new-privileges", f"seccomp={seccomp.profile()}"],
                shm_size=str(next(iter(recipe.folders.values()))),
                tmpfs={place: f"{writable},{_room(recipe, place)}" for place in recipe.folders},
                ulimits=[Ulimit(name=name, soft=most, hard=most) for name, most in recipe.process_limits.items()],
                **options,
            )
            made = self._api.create_container(
                recipe.image,
                command=[*recipe.command],
                entrypoint=[],
                healthcheck={"test": ["NONE"]},
                host_config=settings,
                hostname="sandbox",
                labels=dict(recipe.labels),
                name=recipe.name,
                network_disabled=not recipe.network,
                stdin_open=True,
                stop_signal="SIGKILL",
                user=recipe.user,
                working_dir="/",
            )
        return str(made["Id"])

    def start(self, container: str, recipe: Recipe) -> None:
        with self._translate_errors(f"starting a container of {recipe.image}", step=recipe.step):
            self._api.start(container)

    def state(self, container: str) -> State:
        with self._translate_errors("inspecting a container", lost=True):
            state = self._api.inspect_container(container)["State"]
        return State(bool(state["Running"]), int(state["Pid"]), str(state.get("Error") or ""))

    def remove(self, container: str) -> None:
        with self._translate_errors("removing a container"), suppress(NotFound):
            try:
                self._api.remove_container(container, force=True, v=True)
            except APIError as error:
                if error.status_code != 409:
                    raise
                # It is being removed already. Wait for that, as it may fail just like this call.
                self._api.wait(container, timeout=SECONDS, condition="removed")

    def attach_path(self, container: str) -> str:
        return f"{self._prefix}/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1"

    def exec_path(self, process: str) -> str:
        return f"{self._prefix}/exec/{process}/start"

    def prepare(self, container: str, argv: Sequence[str], cwd: str, user: str) -> str:
        with self._translate_errors("starting a process", lost=True):
            made = self._api.exec_create(container, [*argv], stdin=True, user=user, workdir=cwd)
        return str(made["Id"])

    def exit_code(self, process: str) -> int | None:
        with self._translate_errors("inspecting a process", lost=True):
            state = self._api.exec_inspect(process)
        return None if state["Running"] or state["ExitCode"] is None else int(state["ExitCode"])

    def find(self, label: str) -> list[Found]:
        with self._translate_errors("listing containers"):
            listed = self._api.containers(all=True, filters={"label": label})
        return [Found.read(entry) for entry in listed]

    def image(self, name: str) -> Stored | None:
        with self._translate_errors(f"looking for image {name}"):
            try:
                found = self._api.inspect_image(name)
            except ImageNotFound:
                return None
        return _stored(found, found["Config"].get("Labels"))

    def images(self, label: str) -> list[Stored]:
        with self._translate_errors("listing images"):
            return [_stored(found, found["Labels"]) for found in self._api.images(filters={"label": label})]

    def remove_image(self, name: str) -> None:
        with self._translate_errors(f"removing image {name}"):
            self._api.remove_image(name)

    def pull_path(self, image: str) -> str:
        name, tag = parse_repository_tag(image)
        return f"{self._prefix}/images/create?fromImage={quote(name)}&tag={quote(tag or 'latest')}"

    def build_path(self) -> str:
        return f"{self._prefix}/build"

    def credentials(self, image: str) -> Mapping[str, str]:
        if not image:
            known = auth.load_config().get_all_credentials()
            return {"X-Registry-Config": auth.encode_header(known).decode()} if known else {}
        registry, _ = auth.resolve_repository_name(image)
        header = auth.get_config_header(self._api, registry)
        return {"X-Registry-Auth": header.decode()} if header else {}

    def close(self) -> None:
        self._api.close()

    def _tls(self, address: Address) -> tuple[TLSConfig, ssl.SSLContext]:
        """The certificates, for the package and for our own streams."""
        files = address.certificates
        assert files is not None
        if missing := [path for path in (files.ca, files.cert, files.key) if path and not os.path.isfile(path)]:
            raise EngineUnavailable(f"docker at {self.address} needs certificates: no file {missing[0]}", CERTIFICATES)
        try:
            pair = (files.cert, files.key) if files.cert else None
            context = ssl.create_default_context(cafile=files.ca or None)
            if not files.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if files.cert:
                context.load_cert_chain(files.cert, files.key or None)
            return TLSConfig(client_cert=pair, ca_cert=files.ca or None, verify=files.verify), context
        except (DockerException, OSError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else error
            raise EngineUnavailable(
                f"the certificates for docker at {self.address} cannot be used: {reason}", CERTIFICATES
            ) from error

    @contextmanager
    def _translate_errors(self, doing: str, *, step: str = "", lost: bool = False) -> Iterator[None]:
        """Turns the package's errors into ours; with `lost`, a missing object means that the sandbox is gone.

        `step` is the next step in the message if the engine refuses the request.
        """
        try:
            yield
        except ImageNotFound as error:
            image = re.search(r"No such image: ([^\s\"]+)", str(error))
            raise ImageMissing(
                f"{self.name} at {self.address} has no image {image[1] if image else doing.split()[-1]}",
                "build it: llm-sandbox-mcp images build",
            ) from error
        except NotFound as error:
            if lost:
                raise lost_sandbox() from error
            raise self.refused(doing, _reason(error), step) from error
        except APIError as error:
            if lost and error.status_code == 409:  # it still exists but has ended
                raise lost_sandbox() from error
            raise self.refused(doing, _reason(error), step) from error
        except (DockerException, OSError, ValueError) as error:
            # The package keeps a connection for each path it requested; connections to an ended engine are useless.
            self._api.close()
            raise self.unreachable(error) from error


def find_engine(settings: Docker, environ: Mapping[str, str]) -> DockerEngine:
    """The engine that the profile names, or else the one that Docker's own tools would use."""
    return DockerEngine(docker_address(settings, environ))


def _limits(info: Mapping[str, Any]) -> Check:
    version = info.get("CgroupVersion", "1")
    missing = [name for name, key in _LIMITS.items() if not info.get(key)]
    if missing:
        fix = "start the engine with these cgroup controllers, for example by systemd's Delegate=yes"
        return Check("limits", "degraded", f"the engine does not limit {', '.join(missing)}", fix)
    return Check("limits", "ok", f"memory, processes and CPUs are limited by control groups (cgroup v{version})")


def _room(recipe: Recipe, folder: str) -> str:
    """The mount options that bound a folder in memory: its size and, if limited, its number of files."""
    inodes = f",nr_inodes={recipe.files[folder] + OWN_ENTRIES}" if folder in recipe.files else ""
    return f"size={recipe.folders[folder]}{inodes}"


def _stored(found: Mapping[str, Any], labels: Mapping[str, str] | None) -> Stored:
    names = [name for name in found.get("RepoTags") or () if not name.startswith("<none>")]
    return Stored(str(found["Id"]), int(found["Size"]), names, labels or {})


def _reason(error: APIError) -> str:
    return " ".join(str(error.explanation or error).split())[-LAST_CHARACTERS:]
