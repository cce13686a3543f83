"""While libraries are prepared for the first time, a caller learns how far they are; on real sandboxes."""

import json
import random
import re
import threading

import anyio
import pytest
from mcp import Client
from mcp.types import CallToolResult, TextResourceContents

from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.server import build_server
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder, need
from tests.local_index import local_index, wheel

from .results import answer

pytestmark = [pytest.mark.anyio, pytest.mark.one_protocol]

HOW_FAR = re.compile(r"preparing Python's libraries, 66 %, about \d+ (s|min) more")


def large(name: str) -> dict[str, bytes]:
    """A wheel that is large enough for uv to tell of its download."""
    return wheel(name, further={f"{name}.bin": random.Random(name).randbytes(3 << 20)})


async def test_a_call_hears_and_others_are_told_how_far_they_are() -> None:
    await need("embedded")
    ended: list[CallToolResult] = []
    heard = anyio.Event()
    with host_folder() as folder, local_index() as index, anyio.fail_after(60):
        index.add_project("first", large("first"), index)
        index.add_project("second", large("second"), index)
        gate = index.pages["/packages/second-1.0-py3-none-any.whl"].gate = threading.Event()
        languages = {"python": {"libraries": ["first", "second"], "index": f"{index.url}/simple"}}
        server = {"cache": str(folder / "cache"), "runtime": str(folder / "runtime")}
        profile = load_profile(over={"backend": {"name": "embedded"}, "server": server, "languages": languages})
        environ = {"PATH": "/usr/bin:/bin", "UV_CACHE_DIR": str(folder / "uv")}
        async with (
            open_service(profile, environ=environ) as service,
            Client(build_server(service, host_files=True)) as client,
        ):

            async def hear(progress: float, total: float | None, message: str | None) -> None:
                if HOW_FAR.search(message or ""):
                    heard.set()

            async def ask() -> None:
                code = {"code": "import first, second\nsecond.ANSWER"}
                ended.append(await client.call_tool("execute_code", code, progress_callback=hear))

            async def preparing() -> dict[str, str]:
                [content] = (await client.read_resource("sandbox://pool")).contents
                assert isinstance(content, TextResourceContents)
                found: dict[str, str] = json.loads(content.text)["preparing"]
                return found

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await heard.wait()
                [session] = (await answer(client, "manage_session", action="list"))["sessions"]
                [run_id] = session["run_ids"]
                told = await answer(client, "manage_session", action="wait", run_id=run_id, wait_seconds=0)
                assert HOW_FAR.search(told["run"]["notes"][0].removeprefix("it has not begun: "))
                assert HOW_FAR.fullmatch((await preparing())["python"])
                gate.set()
            assert await preparing() == {}
    assert ended[0].structured_content is not None and ended[0].structured_content["result"] == "42"
