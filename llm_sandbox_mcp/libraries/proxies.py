"""The HTTP proxies that the environment of the server names, for requests to package indexes."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network

import httpcore2
import httpx2

_SUFFIX = "_proxy"
_EXCEPT = "no"
_KINDS = ("http", "https")


class UnusableProxy(httpx2.RequestError):
    """The environment names a proxy that installations cannot use."""


class Proxies:
    """The variables `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in either case."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # The names in lower case come last, because they have priority.
        found = sorted((name, value) for name, value in environ.items() if name.lower().endswith(_SUFFIX) and value)
        self._named = {name.lower().removesuffix(_SUFFIX): value for name, value in found}
        self._excepted = [entry for item in self._named.get(_EXCEPT, "").split(",") if (entry := item.strip().lower())]

    def to(self, scheme: str, host: str) -> httpcore2.Proxy | None:
        """The proxy for a host; None if it is reached directly, as this machine itself always is.

        Raises `UnusableProxy` for another kind than http and https.
        """
        address = self._named.get(scheme) or self._named.get("all", "")
        if not address or _is_local(host) or any(_names(entry, host) for entry in self._excepted):
            return None
        try:
            url = httpx2.URL(address if "://" in address else f"http://{address}")
        except httpx2.InvalidURL:
            raise UnusableProxy(f"is behind the proxy of {scheme}{_SUFFIX}, which is not a URL") from None
        if url.scheme not in _KINDS or not url.host:
            raise UnusableProxy(f"is behind the proxy of {scheme}{_SUFFIX}, which must begin with http:// or https://")
        place = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/")
        return httpcore2.Proxy(place, auth=(url.username, url.password) if url.userinfo else None)


def _names(entry: str, host: str) -> bool:
    """Whether an entry of `no_proxy` is about a host: its name, a domain above it, its address, or a network of it."""
    host = host.lower()
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        domain = entry.rpartition(":")[0] if entry.rpartition(":")[2].isdigit() else entry
        return domain == "*" or f".{host}".endswith(f".{domain.removeprefix('*').removeprefix('.')}")


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
