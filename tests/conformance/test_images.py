"""One session is one sandbox with one image: only languages whose programs are in the image run in it."""

import pytest

from llm_sandbox_mcp.base.errors import StartFailed
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend_name", ["docker", "podman"])]


async def test_another_language_of_the_image_shares_files(service: Service) -> None:
    first = await execute(service, "open('note', 'w').write('seen')")
    second = await execute(service, "cat note", language="bash", session_id=first.session_id)
    assert (second.status, second.stdout.text) == ("ok", "seen")


@pytest.mark.parametrize(("language", "program"), [("ruby", "ruby"), ("cpp", "g[+][+]")])
async def test_a_language_that_is_missing_from_the_image_is_refused_and_harms_nothing(
    service: Service, backend_name: str, language: str, program: str
) -> None:
    first = await execute(service, "x = 41")
    missing = (
        f"{language} needs {program}, which image llm-sandbox-mcp-python on {backend_name} does not have; .* build"
    )
    with pytest.raises(StartFailed, match=missing):
        await execute(service, "1", language=language, session_id=first.session_id)
    assert (await execute(service, "x + 1", session_id=first.session_id)).result == "42"


async def test_a_session_uses_the_image_of_its_first_language(service: Service) -> None:
    done = await execute(service, "puts RUBY_ENGINE", language="ruby")
    assert (done.status, done.stdout.text) == ("ok", "ruby\n")
