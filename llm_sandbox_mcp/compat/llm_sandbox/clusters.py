"""The connection and credentials of a client from the package `kubernetes`, as a kubeconfig in this process."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.request import getproxies

from .opened import Kept
from .overlay import Overlay
from .portal import portal

_files = Kept[str]()


def apply(overlay: Overlay, client: Any) -> None:
    """Makes the backend connect to the client's cluster, with its current credentials; the client itself is not used.

    Raises `ValidationError` for settings that a kubeconfig cannot express.
    """
    api = getattr(client, "api_client", client)
    if not hasattr(api, "configuration") or type(api).__module__.startswith("kubernetes.aio"):
        raise overlay.refuse("client", f"it is a {type(client).__name__}", "give a CoreV1Api of kubernetes.client")
    text = json.dumps(_kubeconfig(overlay, api.configuration, api))
    overlay.set("client", "kubernetes.kubeconfig", _files.get(text, lambda: portal.enter(_in_memory(text))))
    overlay.set("client", "kubernetes.context", "")


def _kubeconfig(overlay: Overlay, configuration: Any, api: Any) -> dict[str, Any]:
    for name in _unsupported(configuration, api):
        raise overlay.refuse("client", f"its {name} is not carried over", "leave it out, or write it into a KUBECONFIG")
    # Read in the same way as each request of the client does, which renews an expired token.
    header = configuration.get_api_key_with_prefix("BearerToken", alias="authorization") or ""
    scheme, _, token = header.partition(" ")
    if header and (scheme.lower() != "bearer" or not token):
        raise overlay.refuse("client", "its api_key is not a bearer token", "let it begin with 'Bearer '")
    cluster = {
        "server": configuration.host,
        "certificate-authority": _file(overlay, configuration.ssl_ca_cert),
        "insecure-skip-tls-verify": not configuration.verify_ssl,
        "tls-server-name": configuration.tls_server_name,
    }
    user = {
        "client-certificate": _file(overlay, configuration.cert_file),
        "client-key": _file(overlay, configuration.key_file),
        "token": token,
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "client", "cluster": _given(cluster)}],
        "users": [{"name": "client", "user": _given(user)}],
        "contexts": [{"name": "client", "context": {"cluster": "client", "user": "client"}}],
        "current-context": "client",
    }


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def _file(overlay: Overlay, path: str | None) -> str | None:
    if path and not os.path.isfile(path):
        raise overlay.refuse(
            "client", f"the file {path} in its configuration does not exist", "create the client again"
        )
    return os.path.abspath(path) if path else None


def _unsupported(configuration: Any, api: Any) -> Iterator[str]:
    """Settings of a client that a kubeconfig cannot express; without them the user or the connection would differ."""
    if set(api.default_headers) - {"User-Agent"}:
        yield "default_headers"
    if api.cookie:
        yield "cookie"
    if configuration.ca_cert_data:
        yield "ca_cert_data"
    if configuration.assert_hostname is not None:
        yield "assert_hostname"
    # A proxy from the environment of the process is not a problem: the backend uses it too.
    if configuration.proxy and configuration.proxy not in getproxies().values():
        yield "proxy"


@asynccontextmanager
async def _in_memory(text: str) -> AsyncIterator[str]:
    """A file in memory, which no other user can open and which disappears with this process in any case."""
    file = os.memfd_create("kubeconfig")
    try:
        os.write(file, text.encode())
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)
