"""What an engine says itself can contain the marks that our messages use; no face takes these for ours."""

import json

import pytest
from mcp import Client
from starlette.requests import Request

from llm_sandbox_mcp.backends.base import Check
from llm_sandbox_mcp.backends.choosing import Chosen
from llm_sandbox_mcp.backends.kubernetes.failures import failure
from llm_sandbox_mcp.base.errors import EngineUnavailable, PolicyDenied, ProfileError, Unavailable
from llm_sandbox_mcp.base.messages import Step
from llm_sandbox_mcp.cli.words import in_words
from llm_sandbox_mcp.compat.llm_sandbox.exceptions import ImagePullError, SecurityViolationError, translated
from llm_sandbox_mcp.compat.rest.answers import refused
from llm_sandbox_mcp.server import build_server
from tests.mcp.fake import FakeService
from tests.mcp.results import refusal
from tests.memory.backend import MemoryBackend

pytestmark = pytest.mark.anyio

SAID = 'rpc error: code = 5; desc = "r/i:1": not found; see the log: /x'
CAUSE = f"image i:1 of pod one is not available: ErrImagePull, {SAID}"
STEP = "check kubernetes.image, kubernetes.pull and kubernetes.pull_secrets in the profile"
LINE = f"{CAUSE}; {STEP}"


@pytest.fixture
def error() -> Unavailable:
    state = {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": SAID}}}
    containers = [{"name": "main", "image": "i:1"}]
    pod = {"metadata": {"name": "one"}, "spec": {"containers": containers}, "status": {"containerStatuses": [state]}}
    found = failure(pod)
    assert found
    return found.at_start()


def test_the_library_keeps_cause_and_step_apart(error: Unavailable) -> None:
    assert (error.cause, error.step, str(error)) == (CAUSE, STEP, LINE)
    with pytest.raises(ImagePullError) as raised, translated():
        raise error
    assert (raised.value.cause, raised.value.step, str(raised.value)) == (CAUSE, STEP, LINE)


async def test_a_tool_says_it_as_it_is(error: Unavailable) -> None:
    fake = FakeService()
    fake.failure = error
    async with Client(build_server(fake.service(), host_files=False)) as client:
        assert await refusal(client, "execute_code", code="1") == LINE


def test_http_says_it_as_it_is(error: Unavailable) -> None:
    answer = refused(Request({"type": "http", "method": "POST", "path": "/execute_code", "headers": []}), error)
    assert json.loads(bytes(answer.body))["error"] == LINE


class Broken(MemoryBackend):
    """An engine that makes no sandboxes."""

    def __init__(self, error: Unavailable) -> None:
        super().__init__()
        self.error = error

    async def probe(self) -> list[Check]:
        return [Check("engine", "missing", *self.error.problem)]


async def test_the_command_and_its_doctor_say_it_as_it_is(error: Unavailable) -> None:
    assert in_words(error) == LINE
    async with Chosen({"one": lambda: Broken(error)}, "one") as backend:
        assert await backend.probe() == [Check("one", "missing", CAUSE, STEP)]
        with pytest.raises(EngineUnavailable) as raised:
            await backend.chosen()
    assert raised.value.cause == f"no engine works here: one: {CAUSE}"


def test_a_mistake_in_a_profile_has_its_key_as_a_value() -> None:
    error = ProfileError("a: b", "c; d", file="/x: y.toml", key="limits.memory")
    assert (error.key, error.reason, error.step) == ("limits.memory", "a: b", "c; d")
    assert str(error) == "/x: y.toml: limits.memory: a: b; c; d"


def test_an_error_as_a_value_has_the_facts_in_its_step() -> None:
    with pytest.raises(SecurityViolationError) as raised, translated():
        raise PolicyDenied("bash has none", Step.INSTALL, library="pytest", language="python")
    assert str(raised.value) == "bash has none; call install() with pytest, language python"
