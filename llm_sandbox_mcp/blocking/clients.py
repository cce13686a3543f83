"""`client`: where a client of an engine's own Python package is connected to, as settings of a profile."""

from typing import Any
from urllib.parse import unquote

from .overlay import Overlay


def apply(overlay: Overlay, client: Any) -> None:
    """Has the backend connect to where the client is connected to; the client itself is not used.

    Raises `ValidationError` for a client of another engine.
    """
    package = type(client).__module__.partition(".")[0]
    if package == "docker":
        overlay.only("client", "docker")
        _docker(overlay, client.api if hasattr(client, "api") else client)
    elif package == "podman":
        overlay.only("client", "podman")
        _podman(overlay, client)
    else:
        raise overlay.refuse(
            "client",
            f"it is one of {package}: give one of docker or podman, or set KUBECONFIG and leave it out for a cluster",
        )


def _docker(overlay: Overlay, api: Any) -> None:
    if api.base_url.startswith("http+docker:"):
        overlay.set("client", "docker.host", f"unix://{api.get_adapter(api.base_url).socket_path}")
        return
    secured = api.base_url.startswith("https:")
    overlay.set("client", "docker.host", api.base_url.replace("https:" if secured else "http:", "tcp:", 1))
    if secured:
        if not isinstance(api.verify, str):
            raise overlay.refuse(
                "client", "it trusts no authority of its own: give TLSConfig(ca_cert=..., verify=True)"
            )
        overlay.set("client", "docker.ca", api.verify)
        if api.cert:
            overlay.set("client", "docker.cert", api.cert[0])
            overlay.set("client", "docker.key", api.cert[1])


def _podman(overlay: Overlay, client: Any) -> None:
    url = client.api.base_url
    if url.scheme != "http+unix":
        raise overlay.refuse("client", "it is not on a socket of this machine: forward it to one, and connect to that")
    overlay.set("client", "podman.host", f"unix://{unquote(url.netloc)}")
