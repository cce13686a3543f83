"""Calls of a session to the cluster: a few at its start and end, none for a run."""

import re
from collections import Counter
from typing import Any

import anyio
import pytest

from llm_sandbox_mcp.backends.kubernetes.api import Api
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute

from .conftest import Serving

pytestmark = pytest.mark.anyio

SESSIONS = 3


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests about pods, by method and path, without the watch of all pods and the lease."""
    requests: list[str] = []
    prepared = Api._prepared

    async def noted(api: Api, method: str, path: str, query: Any) -> tuple[str, dict[str, str]]:
        if "/pods" in path and ("watch", "1") not in query:
            requests.append(f"{method} {re.sub('sandbox-[0-9a-f]+', 'NAME', path.partition('/pods')[2])}".strip())
        return await prepared(api, method, path, query)

    monkeypatch.setattr(Api, "_prepared", noted)
    return requests


async def test_a_session_from_the_pool_takes_four_calls_and_its_runs_none(serving: Serving, calls: list[str]) -> None:
    async def filled(service: Service) -> None:
        await service.pool_until(lambda pool: pool.warm == 1 and pool.warming == pool.closing == 0)

    async with serving(pool={"min": 1, "languages": ("bash",)}) as service:
        with anyio.fail_after(120):
            await service.warm()
            await filled(service)
            calls.clear()
            for number in range(SESSIONS):
                session = (await execute(service, f"x={number}", language="bash")).session_id
                await filled(service)
                opened = len(calls)
                for _ in range(5):
                    again = await execute(service, "echo $x", language="bash", session_id=session)
                    assert again.stdout.text == f"{number}\n"
                assert len(calls) == opened
                await service.sessions.close(session)
                await filled(service)
    each = ("POST", "GET /NAME/attach", "GET /NAME/exec", "DELETE /NAME")
    ended_with_the_server = {"DELETE /NAME": 1}
    assert Counter(calls) == Counter(dict.fromkeys(each, SESSIONS)) + Counter(ended_with_the_server)
