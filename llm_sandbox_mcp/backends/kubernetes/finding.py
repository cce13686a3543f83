"""The cluster and the user that Kubernetes' own tools would use."""

import os
from collections.abc import Mapping
from pathlib import Path

import anyio
from kubernetes.aio.client import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from kubernetes.aio.config.kube_config import load_kube_config

from ...base.errors import EngineUnavailable

_NAMESPACE = Path(SERVICE_TOKEN_FILENAME).with_name("namespace")
_PLUGIN_SECONDS = 20.0
"""Timeout for a program that provides the user's credentials; some take seconds even on an idle machine."""


async def find_cluster(kubeconfig: str, context: str, environ: Mapping[str, str], configuration: Configuration) -> str:
    """Sets the cluster's address and credentials, and returns the namespace given with them, empty if none is.

    They come from the file that is named, KUBECONFIG or the usual file; without any, from the pod that this runs in.
    Raises `EngineUnavailable`.
    """
    usual = anyio.Path(environ.get("HOME") or "/", ".kube", "config")
    files = kubeconfig or environ.get("KUBECONFIG") or (str(usual) if await usual.is_file() else "")
    try:
        if files or context or not environ.get(SERVICE_HOST_ENV_NAME):
            with anyio.fail_after(_PLUGIN_SECONDS):
                loader = await load_kube_config(
                    files or str(usual), context or None, configuration, persist_config=False
                )
            return str(loader.current_context["context"].get("namespace") or "")
        InClusterConfigLoader(SERVICE_TOKEN_FILENAME, SERVICE_CERT_FILENAME, environ=environ).load_and_set(
            configuration
        )
        return _NAMESPACE.read_text(encoding="utf-8").strip()
    except TimeoutError as error:
        raise _unusable(files or "the usual file", f"no credentials within {_PLUGIN_SECONDS:g} s") from error
    except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
        raise _unusable(files or str(usual), " ".join(str(error).split())[:300]) from error


def _unusable(place: str, reason: str) -> EngineUnavailable:
    place = place.replace(os.pathsep, ", ")
    return EngineUnavailable(
        f"kubernetes: the configuration in {place} cannot be used: {reason}",
        "set KUBECONFIG, or kubernetes.kubeconfig and kubernetes.context in the profile",
    )
