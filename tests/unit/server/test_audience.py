"""The news that artifacts changed reach the clients, and delay nobody else, however many there are."""

import anyio
import anyio.lowlevel
import pytest
from mcp.server.subscriptions import InMemorySubscriptionBus

from llm_sandbox_mcp.server.audience import Audience
from llm_sandbox_mcp.server.calls import Calls
from tests.mcp.fake import SESSION, FakeService

pytestmark = pytest.mark.anyio


async def test_others_get_their_turn_between_the_news_of_thousands_of_artifacts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeService()
    audience = Audience(fake.service(), Calls(fake.service().door, alone=True))
    turns = 0
    seen = set[int]()

    async def publish(_bus: InMemorySubscriptionBus, _news: object) -> None:
        seen.add(turns)

    monkeypatch.setattr(InMemorySubscriptionBus, "publish", publish)
    with anyio.fail_after(10):
        async with audience.open():
            audience.notify(SESSION, tuple(f"{number}.txt" for number in range(1000)))
            while turns < 2000:
                turns += 1
                await anyio.lowlevel.checkpoint()
    assert len(seen) > 900
