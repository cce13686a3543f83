"""The cluster of the tests, queried directly and not through the product."""

import os
from functools import cache
from typing import Any, NoReturn

import pytest

from .kubernetes import kubeconfig
from .requirement import absent

ON_CLUSTER = ("python", "bash", "cpp")
"""Languages that tests run on a cluster, except in `make test-all`: its nodes store their own copies of the images."""


@cache
def cluster() -> Any:
    """Its core API client, which blocks and keeps its connection; None when there is no cluster."""
    if not kubeconfig():
        return None
    # Imported here because it takes a second.
    from kubernetes.client import CoreV1Api
    from kubernetes.config import new_client_from_config

    return CoreV1Api(new_client_from_config(kubeconfig()))


def has_image(backend: str, language: str) -> bool:
    """Whether a backend has the image of a language: engines on this machine do, a cluster may not."""
    name = f"/llm-sandbox-mcp-{language}:latest"
    return backend != "kubernetes" or any(image.endswith(name) for image in _images())


def need_image(backend: str, language: str) -> None:
    """Skips the test when the cluster has no image of the language; fails it when a required cluster must have it."""
    if not has_image(backend, language):
        reason = f"no node of the cluster has image llm-sandbox-mcp-{language}"
        if language in ON_CLUSTER:
            absent("kubernetes", reason)
        pytest.skip(reason)


def lack_own_cluster(reason: str) -> NoReturn:
    """Skips a test that only a cluster of the tests can run; if KUBECONFIG names none and one is required, fails it."""
    if not os.environ.get("KUBECONFIG"):
        absent("kubernetes", reason)
    pytest.skip(reason)


@cache
def _images() -> frozenset[str]:
    """The images of its nodes; each node lists its fifty largest."""
    api = cluster()
    # The first test that calls this must not leave a connection open; a later request opens another.
    with api.api_client:
        nodes = api.list_node().items
    return frozenset(name for node in nodes for image in node.status.images or () for name in image.names or ())
