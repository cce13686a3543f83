"""Whether a package index can be used from this machine."""

import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import url2pathname

import anyio

from .index_client import FAILURES, Upstream, describe, open_client

_WAIT = 10.0
_ASKS_FOR_CREDENTIALS = 401
_BROKEN = 500


async def index_problem(address: str, trusted: ssl.SSLContext, environ: Mapping[str, str], *, folders: bool) -> str:
    """What is wrong with an index, and the next step; empty if it answers.

    `environ` names proxies. `folders`: whether it can be a folder of this machine. Whether it has any library is not
    asked: what is at the address itself differs between indexes, and many have nothing there.
    """
    if folders and address.startswith(("/", "file:")):
        folder = anyio.Path(url2pathname(urlsplit(address).path))
        return "" if await folder.is_dir() else f"there is no folder {folder}; correct the path"
    try:
        index = Upstream.parse(address)
    except ValueError as error:
        return f"the address {error}"
    try:
        with anyio.fail_after(_WAIT):
            async with (
                open_client(address, trusted, environ) as client,
                client.stream("GET", index.url, auth=index.auth) as answer,
            ):
                status = answer.status_code
    except TimeoutError:
        return f"{index.host} did not answer within {_WAIT:g}s; correct the address, or start it"
    except FAILURES as error:
        return f"{index.host} {describe(error)}; correct the address, or start it"
    if status == _ASKS_FOR_CREDENTIALS:
        return f"{index.host} refuses these credentials; write them as https://USER:PASSWORD@{index.host}"
    if status >= _BROKEN:
        return f"{index.host} answers with status {status}; see its log"
    return ""
