"""Installations from the package managers' default indexes, if they can be reached, in a session on every engine.

Every other test of installations has its own index on loopback; this test shows that those are like the real indexes.
"""

import urllib.error
import urllib.request

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp.libraries.installed.indexes import index_of
from llm_sandbox_mcp.testing.asking import execute, install
from llm_sandbox_mcp.wiring import open_service
from tests.engines import MIB, host_folder, need, need_image, small_profile

from .serving import LANGUAGES, missing

pytestmark = [pytest.mark.anyio, pytest.mark.only_in_all]

PROGRAMS = {
    "python": (
        ("numpy", "pydantic"),
        "import numpy, pydantic\nclass Point(pydantic.BaseModel):\n    x: int\nint(numpy.arange(7).sum()) * Point(x='2').x",
        ("result", "42"),
    ),
    "javascript": (
        ("lodash", "@noble/hashes@1.8.0"),
        "import { sha256 } from '@noble/hashes/sha2.js'\n[require('lodash').sum([20, 22]), sha256('').length]",
        ("result", "[ 42, 32 ]"),
    ),
    "cpp": (
        ("libeigen3-dev", "libfmt-dev"),
        "#include <Eigen/Dense>\n#include <fmt/core.h>\n"
        'int main() { fmt::print("{}\\n", Eigen::Vector2i(6, 7).prod()); }',
        ("stdout", "42\n"),
    ),
}
"""Libraries, a program that needs them, and its output: compiled parts, dependencies, a scope, a library to link."""

_LIMITS = {"memory": 1024 * MIB, "cpus": 2.0, "pids": 256, "disk": 512 * MIB, "timeout": 60.0}
_BOUND = 300.0


@pytest.fixture(params=PROGRAMS)
def language(request: pytest.FixtureRequest) -> str:
    """Each language with an index above whose programs are installed."""
    name = str(request.param)
    if programs := missing(LANGUAGES[name], libraries=True):
        pytest.skip(f"{name} needs {', '.join(programs)}")
    return name


def reach(index: str) -> None:
    """Skips the test if the index does not answer; an HTTP error is an answer."""
    try:
        urllib.request.urlopen(index, timeout=20).close()
    except urllib.error.HTTPError as answer:
        answer.close()
    except OSError as error:
        pytest.skip(f"{index} cannot be reached: {error}")


async def test_libraries_come_from_the_package_managers_own_index(backend_name: str, language: str) -> None:
    await need(backend_name)
    need_image(backend_name, language)
    libraries, code, (part, expected) = PROGRAMS[language]
    with host_folder() as folder, anyio.fail_after(_BOUND):
        profile = small_profile(backend_name, folder, limits=_LIMITS)
        await anyio.to_thread.run_sync(reach, await index_of(LANGUAGES[language], profile))
        async with open_service(profile) as service:
            session = await install(service, libraries, language=language)
            assert len(session.libraries) >= len(libraries)
            ran = await execute(service, code, language=language, session_id=session.session_id)
            assert ran.status == "ok", ran
            assert {"result": ran.result, "stdout": ran.stdout.text}[part] == expected
