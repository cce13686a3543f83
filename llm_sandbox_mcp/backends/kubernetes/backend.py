"""Sandboxes that are pods of one namespace."""

import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from ...base.errors import EngineUnavailable, SandboxError, SandboxLost, StartFailed
from ...base.policy import Network, Policy
from ...base.results import OnProgress
from ..base import Backend, Check, Layer, Sandbox, Surroundings, Zygote
from ..containers.agent import AGENT, ALIAS_BYTES, pack_handlers
from ..containers.removal import owned
from ..containers.sandbox import FOLDERS
from ..layout import ALIAS_FOLDER, DATA, alias_beside
from ..room import Room, open_files
from .api import Api, Json, Refused
from .channels import PERL
from .checks import joined_checks, network_check, pods_check
from .connection import Connection
from .joining import Joining
from .leases import SERVER
from .loosening import loosened, rebound, unlimited
from .manifest import PodRecipe, manifest, merged
from .network import denied_by_policy, denied_in_fact
from .pod import Pod
from .pod_manifest import mounted
from .refusals import as_error
from .sandbox import PodSandbox
from .settings import Kubernetes
from .watching import Watched

_log = logging.getLogger(__name__)

_START = 60.0
"""Seconds for a pod to start on its node; a pod that can never start is reported at once."""
_REMOVE = 5.0
_FILES = 4
"""Open files of the server for each pod: the connections of its agent and of a kernel, and two for short commands."""
_OWN_PROCESSES = 8
"""The agent, feeders, and the programs that both start."""
_USERS = range(100_000, 1 << 30)
"""Uids of pods, if the cluster does not choose them; each pod has its own, for limits that are counted per user."""


class PodBackend(Backend):
    """The backend on one namespace of one cluster; leaving it deletes every pod that still exists."""

    name = "kubernetes"

    def __init__(self, settings: Kubernetes, surroundings: Surroundings) -> None:
        self._settings = settings
        self.environment = settings.environment
        self._surroundings = surroundings
        self._views = surroundings.views
        self._environ = surroundings.environ
        self._server = surroundings.runtime.name
        self._handlers = pack_handlers(surroundings.handlers)
        self._joining = Joining(self._settings.join, self._settings.prefix, self._handlers)
        self._starting = anyio.CapacityLimiter(self._settings.starting)
        self._checking = anyio.Lock()
        self._isolated = False
        self._cluster: Connection
        self._tasks: TaskGroup

    async def __aenter__(self) -> "PodBackend":
        self._tasks = await anyio.create_task_group().__aenter__()
        settings = self._settings
        self._cluster = Connection(
            settings.kubeconfig, settings.context, settings.namespace, self._environ, self._server, self._tasks
        )
        for change in self._loosened():
            _log.warning("kubernetes.pod_manifest of the profile loosens every sandbox: %s", change)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        await self._cluster.aclose()

    async def connected(self) -> Api:
        """The API of the cluster; raises `EngineUnavailable` while the cluster does not answer."""
        return await self._cluster.api()

    def image_of(self, language: str) -> str:
        if self._settings.join:
            return f"pod {self._settings.join}"
        return self._settings.images.get(language) or self._settings.image.replace("{language}", language)

    def room(self) -> Sequence[Room]:
        return (open_files(_FILES),)

    async def limits(self) -> Check:
        return self._surroundings.held(self._limits())

    def _limits(self) -> Check:
        if joined := self._settings.join:
            fix = "remove kubernetes.join from the profile"
            return Check("limits", "degraded", f"pod {joined} has its own limits, not those of the profile", fix)
        recipe = self._recipe(_EXAMPLE, "image", "sandbox")
        if changes := unlimited(manifest(recipe), self._manifest("sandbox", recipe)):
            fix = "remove this from kubernetes.pod_manifest in the profile"
            return Check("limits", "degraded", ", ".join(changes), fix)
        how = "memory and processors by cgroups of the node, processes by the pod's own user id"
        return Check("limits", "ok", how)

    async def probe(self) -> list[Check]:
        try:
            api = await self.connected()
            try:
                version = await api.call("GET", "/version")
            except Refused as refused:
                raise as_error(refused, "report its version", api) from refused
        except SandboxError as error:
            return [Check(self.name, "missing", *error.problem)]
        where = f"{version['gitVersion']} at {api.address}, namespace {api.namespace}"
        return [Check(self.name, "ok", where), *await self._checks(api)]

    async def _checks(self, api: Api) -> list[Check]:
        limits = await self.limits()
        if self._settings.join:
            return [limits, *await joined_checks(api, self._settings.join)]
        return [limits, pods_check(self._loosened()), await network_check(api, self._settings.network)]

    def _loosened(self) -> list[str]:
        recipe = self._recipe(_EXAMPLE, "image", "sandbox")
        merged_pod = self._manifest("sandbox", recipe)
        return [*loosened(merged_pod), *rebound(manifest(recipe), merged_pod)]

    async def tell(self, on_progress: OnProgress) -> None:
        await self.connected()
        await self._cluster.watch.tell(on_progress)

    async def sweep(self) -> int:
        api = await self.connected()
        try:
            # Only pods of servers without a lease are listed: there can be thousands of others.
            alive = await self._cluster.leases.living()
            strangers = f"{SERVER},{SERVER} notin ({','.join(sorted(alive))})" if alive else SERVER
            pods = f"/api/v1/namespaces/{api.namespace}/pods"
            listed = (await api.call("GET", pods, [("labelSelector", strangers)]))["items"]
            # Leases again after pods: a new server has its lease before its first pod.
            alive = await self._cluster.leases.living() if listed else alive
            removed = 0
            for pod in listed:
                if pod["metadata"]["labels"][SERVER] not in alive and "deletionTimestamp" not in pod["metadata"]:
                    await Pod(api, pod["metadata"]["name"], self._tasks).remove()
                    removed += 1
        except Refused as refused:
            raise as_error(refused, "list pods and leases", api) from refused
        return removed

    @asynccontextmanager
    async def sandbox(
        self, policy: Policy, image: str = "", zygote: Zygote | None = None, layer: Layer | None = None
    ) -> AsyncIterator[Sandbox]:
        api = await self.connected()
        (await self.limits()).must_not_be_missing()
        image = image or self.image_of("python")
        if self._settings.join:
            async with self._joining.sandbox(api, policy, image, self._tasks) as joined:
                yield joined
            return
        await self._checked(api, policy, image)
        async with self._open(api, policy, image) as (sandbox, _):
            yield sandbox

    async def _checked(self, api: Api, policy: Policy, image: str) -> None:
        """Checks once, before any code runs, that pods have no network; raises if they have one.

        A label allows pods to reach hosts outside of the cluster; the pods of this check do not have it.
        """
        policy = policy.model_copy(update={"network": Network()})
        async with self._checking:
            if not self._isolated and self._settings.network == "enforced":
                await denied_by_policy(api)
                async with (
                    self._open(api, policy, image) as (target, watched),
                    self._open(api, policy, image) as (other, _),
                ):
                    await denied_in_fact(target, watched.address, watched.node, other)
            self._isolated = True

    @asynccontextmanager
    async def _open(self, api: Api, policy: Policy, image: str) -> AsyncIterator[tuple[Sandbox, Watched]]:
        name = f"sandbox-{secrets.token_hex(8)}"
        recipe = self._recipe(policy, image, name)
        pod = Pod(api, name, self._tasks, policy.pids + _OWN_PROCESSES, policy.largest_file)
        watched = self._cluster.watch.expect(name)
        try:
            try:
                async with self._starting:
                    # Shielded: a pod made while its caller is cancelled would have no owner for a while.
                    with anyio.CancelScope(shield=True):
                        await self._create(api, self._manifest(name, recipe))
                    await self._started(api, watched, image)
                    try:
                        agent = await pod.attach()
                    except SandboxLost as lost:
                        raise await watched.never_used(lost) from lost
            except BaseException:
                with anyio.move_on_after(_REMOVE, shield=True), contextlib.suppress(SandboxError):
                    await pod.remove()
                raise
            sandbox = PodSandbox(pod, agent, policy, image, self._settings.prefix, watched)
            async with owned(sandbox, self._tasks):
                await sandbox.begin(self._handlers)
                yield sandbox, watched
        finally:
            self._cluster.watch.forget(name)

    async def _create(self, api: Api, pod: Json) -> None:
        try:
            await api.call("POST", f"/api/v1/namespaces/{api.namespace}/pods", body=pod)
        except Refused as refused:
            raise as_error(refused, "create a pod", api) from refused

    async def _started(self, api: Api, watched: Watched, image: str) -> None:
        try:
            await watched.started(_START, self._settings.node_timeout)
        except TimeoutError:
            if silence := await api.silence():
                raise EngineUnavailable(*silence) from None
            raise StartFailed(
                f"pod {watched.name} of image {image} did not start in {_START:g} s",
                "check whether the cluster is overloaded",
            ) from None

    def _recipe(self, policy: Policy, image: str, name: str) -> PodRecipe:
        settings = self._settings
        alias = alias_beside(mounted(settings.pod_manifest))
        folders = dict.fromkeys((*FOLDERS, DATA) if self._views else FOLDERS, policy.disk)
        return PodRecipe(
            name=name,
            image=image,
            command=("/bin/sh", "-c", AGENT, "sh", "ours", PERL, alias),
            labels={**settings.labels, SERVER: self._server},
            folders={**folders, ALIAS_FOLDER: ALIAS_BYTES} if alias else folders,
            memory=policy.memory,
            cpus=policy.cpus,
            reserved=settings.reserved,
            user=secrets.choice(_USERS),
            pull=settings.pull,
            runtime_class=settings.runtime_class,
            node_selector=settings.node_selector,
            tolerations=settings.tolerations,
            pull_secrets=settings.pull_secrets,
            annotations=settings.annotations,
            network=policy.network.mode == "open",
        )

    def _manifest(self, name: str, recipe: PodRecipe) -> Json:
        pod: Json = merged(manifest(recipe), self._settings.pod_manifest)
        # Set here whatever the profile says: otherwise the pod could not be found again.
        pod["metadata"] = {**pod["metadata"], "name": name, "labels": {**pod["metadata"]["labels"], **recipe.labels}}
        return pod


_EXAMPLE = Policy(memory=1, cpus=1, pids=1, disk=1, files=1, file_size=1, timeout=1, grace=1, cpu_time=1, output=1)
