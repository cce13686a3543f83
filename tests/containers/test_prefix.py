"""`containers.prefix`: every command in a container goes through another program, such as an environment manager."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import docker
import pytest

from llm_sandbox_mcp.base.errors import StartFailed
from llm_sandbox_mcp.profile.sections import LanguageSection
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import MIB, small_profile
from tests.handlers.indexes import Wheels
from tests.local_index import local_index

pytestmark = pytest.mark.anyio

NAME = "llm-sandbox-mcp-scratch/mamba"
PREFIX = ("micromamba", "run", "-n", "science")
FILES = {
    "Dockerfile": (
        "FROM llm-sandbox-mcp-python\n"
        "ENV MAMBA_ROOT_PREFIX=/opt/mamba\n"
        "COPY micromamba /usr/local/bin/micromamba\n"
        "COPY tool /opt/mamba/envs/science/bin/tool\n"
    ),
    # Like the real micromamba: it refuses other command lines, finds the environment through a variable of the image,
    # keeps files in the home folder, sets the environment's variables, and stays the command's parent, in the same
    # process group, even when the command is interrupted.
    "micromamba": """\
#!/bin/bash
[ "$1" = run ] && [ "$2" = -n ] && [ $# -gt 3 ] || exit 109
prefix=${MAMBA_ROOT_PREFIX:-$HOME/micromamba}/envs/$3
[ -d "$prefix" ] || { echo "no prefix $prefix" >&2; exit 1; }
mkdir -p "$HOME/.cache/mamba/proc" || exit 1
export CONDA_DEFAULT_ENV="$3" PATH="$prefix/bin:$PATH"
shift 3
printf "%s\\n" "$*" >>/tmp/micromamba.log
trap : INT
(trap - INT; exec "$@")
exit $?
""",
    "tool": "#!/bin/sh\necho of the environment\n",
}


@pytest.fixture
def image(client: docker.DockerClient, folder: Path) -> Iterator[str]:
    """Python's image with a substitute for micromamba that keeps a log of its commands."""
    (folder / "mamba").mkdir()
    for name, text in FILES.items():
        (folder / "mamba" / name).write_text(text)
        (folder / "mamba" / name).chmod(0o755)
    client.images.build(path=str(folder / "mamba"), tag=NAME, rm=True, forcerm=True)
    yield NAME
    client.images.remove(NAME, force=True)


@pytest.mark.usefixtures("elsewhere")  # installations go through a relay inside
async def test_runs_probes_and_installations_go_through_the_prefix(engine: str, folder: Path, image: str) -> None:
    containers = {"images": {"python": image}, "prefix": PREFIX}
    profile = small_profile(engine, folder, containers=containers, limits={"memory": 512 * MIB, "disk": 64 * MIB})
    with local_index() as served, anyio.fail_after(60):
        served.pages.update(Wheels.small().pages)
        sections = {"python": LanguageSection(index=f"{served.url}/")}
        async with open_service(profile.model_copy(update={"languages": sections})) as service:
            code = "import os, tinyanswer\nx = 41\nos.environ['CONDA_DEFAULT_ENV']"
            first = await execute(service, code, libraries=["tinyanswer"])
            assert first.result == "'science'", first
            session = first.session_id
            # The interrupt still reaches the interpreter's process group, and the interpreter keeps the state.
            stopped = await execute(service, "while True: pass", session_id=session, timeout=0.5)
            assert (stopped.status, stopped.session_state) == ("timeout", "kept")
            again = await execute(service, "import subprocess\nx + 1", session_id=session)
            assert again.result == "42"
            tool = await execute(service, "tool; exit 3", language="bash", session_id=session)
            assert (tool.stdout.text, tool.exit_code) == ("of the environment\n", 3)
            await service.files.copy_in(session, "a/b", b"copied")
            assert (await service.files.copy_out(session, "a/b")).size == 6
            log = (await execute(service, "print(open('/tmp/micromamba.log').read())", session_id=session)).stdout.text
            for part in (
                "runner.py",
                "runner.sh",
                "sh -c for program",
                "beside.py",
                "uv pip list",
                "tar -c",
                "perl",
            ):
                assert part in log, (part, log)


async def test_a_prefix_that_is_missing_from_the_image_is_named_with_the_image(engine: str, folder: Path) -> None:
    profile = small_profile(engine, folder, containers={"prefix": PREFIX})
    with anyio.fail_after(60):
        async with open_service(profile) as service:
            with pytest.raises(
                StartFailed,
                match=f"cannot start micromamba in .* no such program in image llm-sandbox-mcp-python on {engine}",
            ):
                await execute(service, "1")
