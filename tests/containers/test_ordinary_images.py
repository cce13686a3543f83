"""Images that people already have: without uv, and with Python in different folders."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import InstallFailed, StartFailed
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, install
from llm_sandbox_mcp.wiring import open_service
from tests.engines import MIB, small_profile
from tests.local_index import LocalIndex, local_index, sdist, wheel

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("elsewhere"),  # installations go through a relay inside
]

OTHERS = 'RUN printf "[global]\\nindex-url = http://127.0.0.1:9/\\ntarget = /tmp/x\\n" >/etc/pip.conf\nENV PIP_INDEX_URL=x PIP_USER=1\n'
"""Settings of pip that an image may have."""
OFFICIAL = f"FROM llm-sandbox-mcp-python\nUSER root\nRUN rm /usr/local/bin/uv\n{OTHERS}"
"""Like `python:3.11-slim`."""
DEBIAN = (
    "FROM llm-sandbox-mcp-base\n"
    "COPY --from=llm-sandbox-mcp-python /usr/local/lib/python3.11/site-packages /usr/lib/python3/dist-packages\n"
    "COPY --from=llm-sandbox-mcp-python /usr/local/bin/pip3 /usr/bin/pip3\n"
    f"RUN touch /usr/lib/python3.11/EXTERNALLY-MANAGED\n{OTHERS}"
)
"""Like `ubuntu` with `python3-pip`."""
FULL = DEBIAN + "".join(
    f"RUN cd /usr/lib/python3/dist-packages && touch {name}.py && mkdir {name}-2.0.dist-info"
    f" && printf 'Metadata-Version: 2.1\\nName: {name}\\nVersion: 2.0\\n{more}' >{name}-2.0.dist-info/METADATA\n"
    for name, more in (("base", ""), ("user", "Requires-Dist: base>=2\\n"))
)
"""It also has a library, and another one that needs it."""
CONDA = (
    "FROM llm-sandbox-mcp-python\n"
    "USER root\n"
    "RUN rm /usr/local/bin/uv /usr/bin/python3 && mv /usr/local /opt/conda"
    " && ln -sf /usr/bin/python3.11 /opt/conda/bin/python3\n"
    "ENV PATH=/opt/conda/bin:/usr/bin:/bin\n"
)
"""Like `continuumio/miniconda3`."""


@asynccontextmanager
async def service(engine: str, folder: Path, image: str, index: LocalIndex) -> AsyncIterator[Service]:
    """A service that uses this image for Python, with the handler of the package."""
    profile = small_profile(
        engine,
        folder,
        containers={"images": {"python": image}},
        limits={"memory": 512 * MIB, "disk": 64 * MIB},
        handlers={"folders": ()},
    )
    sections = {"python": LanguageSection(index=f"{index.url}/simple/")}
    with anyio.fail_after(100):
        async with open_service(profile.model_copy(update={"languages": sections})) as opened:
            yield opened


@pytest.mark.parametrize("broken", [OFFICIAL, DEBIAN, CONDA], ids=["official", "debian", "conda"], indirect=True)
async def test_an_image_runs_python_and_its_pip_installs_libraries(engine: str, folder: Path, broken: str) -> None:
    with local_index() as index:
        index.add_project("tinyanswer", {**wheel("tinyanswer"), **wheel("tinyanswer", "2.0")}, index, html=True)
        index.add_project("built", sdist("built"), index)
        async with service(engine, folder, broken, index) as opened:
            first = await execute(opened, "import tinyanswer\ntinyanswer.ANSWER", libraries=["tinyanswer==1.0"])
            assert first.result == "42", first
            session = first.session_id
            done = await install(opened, ["tinyanswer>=2", "built"], session_id=session)
            assert {(library.name, library.version) for library in done.libraries} == {
                ("built", "1.0"),
                ("tinyanswer", "2.0"),
            }
            code = "import built, subprocess\nsubprocess.run(['python3', '-c', 'import tinyanswer']).returncode"
            assert (await execute(opened, code, session_id=session)).result == "0"
            found = await execute(opened, "command -v python3", language="bash", session_id=session)
            assert (await execute(opened, "__import__('sys').executable", session_id=session)).result == repr(
                found.stdout.text.strip()
            )
            with pytest.raises(InstallFailed, match=r"pip could not install nothing.*No matching distribution"):
                await install(opened, ["nothing"], session_id=session)
            described = await opened.describe_language("python")
            assert str(described["version"]).startswith("Python 3."), described
            assert "'name': 'pip'" in str(described["libraries"])
        assert all(path.startswith(("/simple/", "/packages/")) for path, _ in index.requests)


@pytest.mark.only_in_all
@pytest.mark.parametrize("broken", [FULL], ids=["debian"], indirect=True)
async def test_what_an_image_has_is_shared_and_its_pip_installs_nothing_that_breaks_it(
    engine: str, folder: Path, broken: str
) -> None:
    with local_index() as index:
        bases = [wheel("base", version) for version in ("1.0", "2.0", "3.0")]
        index.add_project("base", {file: content for one in bases for file, content in one.items()}, index)
        index.add_project("more", wheel("more", "1.0", "base"), index)
        async with service(engine, folder, broken, index) as opened:
            done = await install(opened, ["more"])
            assert [(library.name, library.version) for library in done.libraries] == [("more", "1.0")]
            session = done.session_id
            with pytest.raises(InstallFailed, match=r"requested base==1\.0 .*\(constraint\) base>=2"):
                await install(opened, ["base==1.0"], session_id=session)
            done = await install(opened, ["base==3.0"], session_id=session)
            assert done.notes == ("base 2.0 is now 3.0 in this session",)


@pytest.mark.parametrize("broken", ["FROM llm-sandbox-mcp-base\n"], indirect=True)
async def test_an_image_without_pip_runs_python_and_the_error_says_what_is_missing(
    engine: str, folder: Path, broken: str
) -> None:
    with local_index() as index:
        async with service(engine, folder, broken, index) as opened:
            assert (await execute(opened, "6 * 7")).result == "42"
            assert "problem" not in await opened.describe_language("python")
            with pytest.raises(
                InstallFailed,
                match=f"without /usr/local/bin/uv and /usr/local/bin/python, or pip3, which image {broken} on {engine} "
                "does not have; add it to the image",
            ):
                await install(opened, ["tinyanswer"], language="python")


@pytest.mark.parametrize("broken", ["FROM llm-sandbox-mcp-base\nRUN rm /usr/bin/python3*\n"], indirect=True)
async def test_an_image_without_python_is_reported(engine: str, folder: Path, broken: str) -> None:
    with local_index() as index:
        async with service(engine, folder, broken, index) as opened:
            with pytest.raises(StartFailed) as raised:
                await execute(opened, "1")
    assert f"python needs python3, which image {broken} on {engine} does not have; " in str(raised.value)
    assert "containers.environment" in str(raised.value)


OLD = (
    "FROM llm-sandbox-mcp-base\n"
    "RUN echo 'import sys; sys.version_info = (3, 7, 9); sys.version = \"3.7.9 \"' >/usr/lib/python3/dist-packages/old.pth\n"
)


@pytest.mark.parametrize("broken", [OLD], ids=["old"], indirect=True)
async def test_an_image_whose_python_is_too_old_is_reported(engine: str, folder: Path, broken: str) -> None:
    with local_index() as index:
        async with service(engine, folder, broken, index) as opened:
            run = await execute(opened, "1")
            assert (run.status, run.exit_code) == ("error", 1)
            assert run.stderr.text.startswith("Python 3.8 or newer is required, but this is 3.7.9; use an image")
