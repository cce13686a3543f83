"""The tests' own cluster, asked beside the product."""

import os
from functools import cache
from typing import Any, NoReturn

import pytest

from .kubernetes import kubeconfig
from .requirement import absent

ON_CLUSTER = ("python", "bash", "cpp")
"""Languages that tests run on a cluster, but for `make test-all`: its nodes keep images beside those of the others."""


@cache
def cluster() -> Any:
    """Its core interface, which blocks and keeps its connection; None where there is no cluster."""
    if not kubeconfig():
        return None
    # Here, for it takes a second.
    from kubernetes.client import CoreV1Api
    from kubernetes.config import new_client_from_config

    return CoreV1Api(new_client_from_config(kubeconfig()))


def has_image(backend: str, language: str) -> bool:
    """Whether sandboxes of a backend can be of a language's own image, which engines here have and a cluster may not."""
    name = f"/llm-sandbox-mcp-{language}:latest"
    return backend != "kubernetes" or any(image.endswith(name) for image in _images())


def need_image(backend: str, language: str) -> None:
    """Skips the test where the cluster has no image of the language; one that it must have is required as it is itself."""
    if not has_image(backend, language):
        reason = f"no node of the cluster has image llm-sandbox-mcp-{language}"
        if language in ON_CLUSTER:
            absent("kubernetes", reason)
        pytest.skip(reason)


def lack_own_cluster(reason: str) -> NoReturn:
    """Skips what only a cluster of the tests' own can show; fails where it is one and still lacks what that takes."""
    if not os.environ.get("KUBECONFIG"):
        absent("kubernetes", reason)
    pytest.skip(reason)


@cache
def _images() -> frozenset[str]:
    """Those of its nodes, of which each tells the largest fifty."""
    asked = cluster()
    # Whichever test is the first that wants to know, it may not leave a connection; one that asks later makes another.
    with asked.api_client:
        nodes = asked.list_node().items
    return frozenset(name for node in nodes for image in node.status.images or () for name in image.names or ())
