"""A service on the tests' cluster, in its own namespace."""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.fixtures import anyio_backend, folder  # noqa: F401
from llm_sandbox_mcp.wiring import open_service
from tests.containers.engines import until
from tests.engines import kubeconfig, need, small_profile

Serving = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
async def cluster(anyio_backend: str) -> AsyncIterator[Any]:
    """A client of the cluster's core API, for what tests do without the product; its calls block."""
    await need("kubernetes")
    from kubernetes.client import CoreV1Api
    from kubernetes.config import new_client_from_config

    with new_client_from_config(kubeconfig()) as client:
        yield CoreV1Api(client)


@pytest.fixture
async def namespace(cluster: Any) -> AsyncIterator[str]:
    """A namespace with the service account that pods need; it is deleted after the test."""
    name = f"test-{secrets.token_hex(4)}"
    await anyio.to_thread.run_sync(lambda: cluster.create_namespace({"metadata": {"name": name}}))
    # The cluster makes the account a moment later, and refuses pods before that.
    await until(lambda: bool(cluster.list_namespaced_service_account(name).items), 20)
    try:
        yield name
    finally:
        await anyio.to_thread.run_sync(lambda: cluster.delete_namespace(name))


@pytest.fixture
def serving(folder: Path, namespace: str) -> Serving:
    """Opens a service on the cluster, with changes to the profile."""

    @asynccontextmanager
    async def opened(
        kubernetes: Mapping[str, object] | None = None, **changes: Mapping[str, object]
    ) -> AsyncIterator[Service]:
        sections = {"kubernetes": {"namespace": namespace, **(kubernetes or {})}, **changes}
        async with open_service(small_profile("kubernetes", folder, **sections)) as service:
            yield service

    return opened
