"""The values of names, which callers of HTTP without MCP get."""

import shutil
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.base.errors import InvalidArgument
from llm_sandbox_mcp.base.principal import ANONYMOUS
from llm_sandbox_mcp.compat.rest.inspection import Inspection, check, inspect, inspection_of
from llm_sandbox_mcp.runs.protocol import Report
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.service.ask import Ask
from llm_sandbox_mcp.testing.profiles import small_profile

from .backend import HANDLERS, MemoryBackend, open_in_memory

pytestmark = pytest.mark.anyio

ASK = Ask(caller=ANONYMOUS, code='report {"inspection": {"values": {"x": "[1]"}}}', language="script")


async def test_a_language_that_cannot_report_values_is_refused(service: Service) -> None:
    with pytest.raises(InvalidArgument, match="script cannot report the values of names"):
        await check(service, ASK)


async def test_others_go_on_while_the_values_of_names_are_read(
    tmp_path: Path, engine: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = Path(shutil.copytree(HANDLERS, tmp_path / "handlers"))
    handler = copied / "script/handler.toml"
    handler.write_text(handler.read_text().replace("[runner]", "[runner]\ninspects = true"))
    reading, others = threading.Event(), threading.Event()

    def read(report: Report | None) -> Inspection | None:
        reading.set()
        assert others.wait(10)
        return inspection_of(report)

    async def go_on() -> None:
        await anyio.to_thread.run_sync(reading.wait)
        others.set()

    monkeypatch.setattr("llm_sandbox_mcp.compat.rest.inspection.inspection_of", read)
    profile = small_profile("embedded", tmp_path, handlers={"folders": (str(copied),)})
    async with open_in_memory(profile, engine) as service, anyio.create_task_group() as tasks:
        tasks.start_soon(go_on)
        _, inspection = await inspect(service, await check(service, ASK))
    assert inspection is not None and inspection.values == {"x": [1]}
