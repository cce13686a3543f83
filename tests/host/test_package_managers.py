"""Real package managers use the gateway to a package index; they run on the host here, without a sandbox."""

import shutil
import subprocess
from pathlib import Path

import anyio
import pytest
from uv import find_uv_bin

from llm_sandbox_mcp.libraries.installed.downloads import Downloads
from tests.gateways import gateway
from tests.local_index import LocalIndex, sdist, wheel

pytestmark = pytest.mark.anyio


async def uv_install(url: str, target: Path, *names: str) -> subprocess.CompletedProcess[bytes]:
    command = [find_uv_bin(), "pip", "install", "--no-cache", "--no-config", "--default-index", url]
    return await anyio.run_process([*command, "--target", str(target), "--", *names], check=False, cwd=target.parent)


@pytest.mark.parametrize("html", [False, True], ids=["json", "html"])
async def test_uv_installs_a_wheel_that_the_index_names_on_another_server(
    index: LocalIndex, files: LocalIndex, tmp_path: Path, html: bool
) -> None:
    index.add_project("tiny", wheel("tiny"), files, html=html)
    async with gateway(f"{index.url}/simple") as serving:
        done = await uv_install(serving.url, tmp_path / "target", "tiny")
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "target" / "tiny.py").is_file()
    asked = {path for path, _ in files.requests}
    assert asked == {"/packages/tiny-1.0-py3-none-any.whl.metadata", "/packages/tiny-1.0-py3-none-any.whl"}


async def test_uv_builds_a_source_archive_from_the_index(index: LocalIndex, files: LocalIndex, tmp_path: Path) -> None:
    index.add_project("tiny", sdist("tiny"), files)
    async with gateway(f"{index.url}/simple/") as serving:
        done = await uv_install(serving.url, tmp_path / "target", "tiny")
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "target" / "tiny.py").is_file()


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
# Each value in one case; make test-all runs the other two pairs.
@pytest.mark.parametrize(
    ("elsewhere", "below"),
    [
        pytest.param(False, "/api/npm/all", id="own files-path"),
        pytest.param(True, "", id="files on another server-root"),
        pytest.param(False, "", id="own files-root", marks=pytest.mark.only_in_all),
        pytest.param(True, "/api/npm/all", id="files on another server-path", marks=pytest.mark.only_in_all),
    ],
)
async def test_npm_installs_plain_and_scoped_packages(
    index: LocalIndex, files: LocalIndex, tmp_path: Path, below: str, elsewhere: bool
) -> None:
    index.add_npm("tiny", files if elsewhere else index, below=below)
    index.add_npm("@scope/tiny", files if elsewhere else index, below=below)
    async with gateway(f"{index.url}{below}") as serving:
        command = ["npm", "install", "--no-audit", "--no-fund", "--cache", str(tmp_path / "cache")]
        command += ["--replace-registry-host=always"]
        command += ["--prefix", str(tmp_path / "target"), "--registry", serving.url, "tiny", "@scope/tiny"]
        done = await anyio.run_process(command, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "target/node_modules/tiny/index.js").is_file()
    assert (tmp_path / "target/node_modules/@scope/tiny/index.js").is_file()


async def test_a_file_is_fetched_once_and_kept_for_later_installations(
    index: LocalIndex, files: LocalIndex, tmp_path: Path
) -> None:
    index.add_project("tiny", wheel("tiny"), files)
    downloads = Downloads(tmp_path / "downloads")
    for attempt in range(2):
        async with gateway(f"{index.url}/simple", downloads) as serving:
            done = await uv_install(serving.url, tmp_path / f"target{attempt}", "tiny")
        assert done.returncode == 0, done.stderr.decode()
        assert (tmp_path / f"target{attempt}" / "tiny.py").is_file()
    assert [path for path, _ in files.requests].count("/packages/tiny-1.0-py3-none-any.whl") == 1
