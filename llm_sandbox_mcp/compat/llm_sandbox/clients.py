"""`client`: the connection of a client from an engine's own Python package, as settings of a profile."""

from typing import Any
from urllib.parse import unquote

from . import clusters
from .overlay import Overlay


def package_of(client: Any) -> str:
    """The package that a client comes from; empty for None."""
    return "" if client is None else type(client).__module__.partition(".")[0]


def apply(overlay: Overlay, client: Any) -> None:
    """Makes the backend connect to the engine of the client; the client itself is not used.

    Raises `ValidationError` for a client of another engine, and for a kind of connection that the backend cannot use.
    """
    package = package_of(client)
    if package == "docker":
        overlay.only("client", "docker")
        _docker(overlay, client.api if hasattr(client, "api") else client)
    elif package == "podman":
        overlay.only("client", "podman")
        _podman(overlay, client)
    elif package == "kubernetes":
        overlay.only("client", "kubernetes")
        clusters.apply(overlay, client)
    else:
        raise overlay.refuse("client", f"it is from {package}", "give a client from docker, podman or kubernetes")


def _docker(overlay: Overlay, api: Any) -> None:
    if api.base_url.startswith("http+docker:"):
        socket = getattr(api.get_adapter(api.base_url), "socket_path", None)
        if socket is None:
            why = f"it is at {api.base_url}, which does not support raw streams here"
            raise overlay.refuse("client", why, "forward the engine's socket (ssh -L), and connect to that")
        overlay.set("client", "docker.host", f"unix://{socket}")
        return
    overlay.set("client", "docker.host", api.base_url)
    if api.base_url.startswith("https:"):
        if not api.verify:
            raise overlay.refuse(
                "client", "it trusts any server", "give TLSConfig(verify=True), with or without ca_cert"
            )
        # An empty value means the authorities of this machine.
        overlay.set("client", "docker.ca", api.verify if isinstance(api.verify, str) else "")
        overlay.set("client", "docker.cert", api.cert[0] if api.cert else "")
        overlay.set("client", "docker.key", api.cert[1] if api.cert else "")


def _podman(overlay: Overlay, client: Any) -> None:
    url = client.api.base_url
    if url.scheme != "http+unix":
        raise overlay.refuse("client", "it does not use a socket of this machine", "forward one, and connect to that")
    overlay.set("client", "podman.host", f"unix://{unquote(url.netloc)}")
