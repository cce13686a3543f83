"""A cluster that is reached through a proxy with a short limit for request lines."""

from pathlib import Path
from typing import Any

import pytest

from llm_sandbox_mcp.testing.asking import execute

from .conftest import Serving
from .proxying import proxied

pytestmark = pytest.mark.anyio


async def test_everything_works_through_a_proxy_that_refuses_long_request_lines(
    serving: Serving, cluster: Any, folder: Path
) -> None:
    async with (
        proxied(cluster.api_client.configuration) as proxy,
        serving({"kubeconfig": proxy.write_kubeconfig(folder)}) as service,
    ):
        first = await execute(service, "read x; echo $x >f; cat f", language="bash", stdin="through\n")
        assert (first.status, first.stdout.text) == ("ok", "through\n"), first
        again = await execute(service, "cat f", language="bash", session_id=first.session_id)
        assert again.stdout.text == "through\n"
        assert (await execute(service, "print(6 * 7)")).stdout.text == "42\n"
