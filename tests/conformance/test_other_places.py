"""The other name of the working directory, and the files that code leaves outside of it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.base import Sandbox
from llm_sandbox_mcp.backends.containers.settings import Mount
from llm_sandbox_mcp.backends.layout import PATH

pytestmark = pytest.mark.anyio

ENV = {"PATH": PATH}


async def shell(sandbox: Sandbox, command: str) -> str:
    done = await sandbox.run(["sh", "-c", command], ENV)
    return (done.stdout + done.stderr).decode()


async def test_mnt_data_is_another_name_of_the_working_directory(sandbox: Sandbox) -> None:
    assert (
        await shell(sandbox, "echo 1 >/mnt/data/a; cat /sandbox/a; cd /mnt/data; pwd -P; ls /mnt")
        == "1\n/sandbox\ndata\n"
    )
    assert set(await sandbox.list_files()) == {"a"}


@pytest.mark.parametrize("seen", ["from outside", "by the agent"])
async def test_files_that_code_leaves_elsewhere_are_found_once(
    sandbox: Sandbox, backend_name: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seen == "by the agent":
        if backend_name == "embedded":
            pytest.skip("there is no agent")
        monkeypatch.setattr(sandbox, "outside", None)

    async def new() -> list[str]:
        await sandbox.usage()
        return sorted(await sandbox.new_outside())

    assert await new() == []
    await shell(
        sandbox,
        "cd /tmp; mkdir out; echo >a.png; echo >out/b.csv; echo >c.log; echo >/home/d.pdf; echo >/sandbox/e.png",
    )
    assert await new() == ["/home/d.pdf", "/tmp/a.png", "/tmp/out/b.csv"]
    assert await new() == []
    await shell(sandbox, 'i=0; while [ $i -lt 1500 ]; do : >"/tmp/$i.png"; i=$((i + 1)); done')
    assert 0 < len(await new()) <= 1000


@pytest.mark.parametrize("place", ["/mnt", "/mnt/own", "/mnt/data"])
@pytest.mark.parametrize("backend_name", ["docker", "podman"])
class TestMounts:
    @pytest.fixture
    def changes(self, folder: Path, place: str) -> dict[str, Mapping[str, object]]:
        given = folder / "given"
        given.mkdir()
        (given / "file").write_text("given")
        return {"containers": {"mounts": (Mount(source=str(given), target=place),)}}

    async def test_a_mount_of_the_operators_takes_the_place_of_that_name(self, sandbox: Sandbox, place: str) -> None:
        assert await shell(sandbox, f"cat {place}/file; ls /sandbox") == "given"
