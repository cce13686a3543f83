"""What is told of artifacts that are saved on this machine, without any sandbox."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from llm_sandbox_mcp.base.results import HostFile, Saved
from llm_sandbox_mcp.files.artifacts import ArtifactStore
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.service.files import Files
from llm_sandbox_mcp.service.parts import Parts
from tests.disks import small_disk
from tests.unit.files.source import Source

pytestmark = pytest.mark.anyio


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
async def files(tmp_path: Path, out: Path) -> Files:
    profile = load_profile(over={"files": {"folders": [f"{out}:rw"]}})
    store = ArtifactStore(tmp_path / "store", profile.artifacts)
    for name, content in (("a", b"1"), ("large", bytes(2 << 20)), ("b", b"2"), ("sub/b", b"3"), (".c", b"4")):
        await store.put(Source("session"), name, content)
    return Files(cast(Parts, SimpleNamespace(profile=profile, live=None, store=store)))


async def test_each_artifact_that_cannot_be_saved_is_told_and_the_others_are_saved(files: Files, out: Path) -> None:
    with small_disk(out, "1m"):
        saved = await files.save_artifacts("session", ["a", "large", "none", ".c", "b"], str(out))
        assert saved.files == (HostFile(f"{out}/a"), HostFile(f"{out}/b"))
        assert [*saved.failed] == ["large", "none", ".c"]
        assert saved.failed["large"].endswith("on this machine cannot be written: No space left on device")
        assert "unknown artifact 'none'" in saved.failed["none"]
        assert "its name or a folder of it is hidden" in saved.failed[".c"]
        assert sorted(os.listdir(out)) == ["a", "b"]


async def test_artifacts_of_one_call_do_not_replace_each_other(files: Files, out: Path) -> None:
    saved = await files.save_artifacts("session", ["sub/b", "b", "b"], f"{out}/sub/b")
    beside = HostFile(f"{out}/sub/b.from-code", beside=f"{out}/sub/b")
    assert saved == Saved((HostFile(f"{out}/sub/b"), beside, beside), {})
    assert ((out / "sub/b").read_text(), (out / "sub/b.from-code").read_text()) == ("3", "2")


async def test_calls_at_the_same_time_save_all_versions(files: Files, out: Path) -> None:
    calls = [["b", "sub/b"], ["sub/b", "b"]]
    async with anyio.create_task_group() as tasks:
        for names in calls:
            tasks.start_soon(files.save_artifacts, "session", names, f"{out}/sub/b")
    assert {path.read_text() for path in (out / "sub").rglob("b*") if path.is_file()} == {"2", "3"}
