"""The audit log: whole lines in order, nothing forged, nothing blocked, and one error when the disk fails."""

import fcntl
import json
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.host import audit as audits
from llm_sandbox_mcp.host.audit import Audit
from tests.disks import fill, small_disk

pytestmark = pytest.mark.anyio


async def test_lines_are_written_in_order_and_all_of_them_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    for opening in range(2):
        async with Audit(str(file)) as audit:
            for number in range(500):
                audit.note("network.refused", sandbox="x", number=number, opening=opening)
                if number % 100 == 0:
                    await anyio.lowlevel.checkpoint()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["opening"], line["number"]) for line in lines] == [(r, n) for r in range(2) for n in range(500)]
    assert lines[0]["event"] == "network.refused"
    assert lines[0]["time"].endswith("+00:00")
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_lock_that_someone_holds_on_the_file_keeps_no_line_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can read it can lock it: code, if it is in a folder that is open."""
    monkeypatch.setattr(audits, "_LOCK", 0.0)
    file = tmp_path / "audit.log"
    file.touch()
    with file.open() as held, anyio.fail_after(30):
        fcntl.flock(held, fcntl.LOCK_EX)
        async with Audit(str(file)) as audit:
            audit.note("network.refused", target="kept")
        assert "kept" in file.read_text()


async def test_text_that_code_chose_cannot_forge_a_line(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    async with Audit(str(file)) as audit:
        audit.note("network.refused", target='x"}\n{"event": "forged"}\n\x1b[2J\u2028\ud800' + "y" * 5000)
    [line] = file.read_text().splitlines()
    assert json.loads(line)["event"] == "network.refused"
    assert line.isprintable() and line.isascii()
    assert len(line) < 2000


async def test_a_failing_disk_is_reported_once_and_used_again_when_it_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "missing" / "audit.log"
    async with Audit(str(file)) as audit:
        for _ in range(3):
            audit.note("network.refused", target="lost")
        # Only the thread that writes to the disk has work to do; its error arrives at one of these checkpoints.
        with anyio.fail_after(30):
            while not caplog.records:
                await anyio.lowlevel.checkpoint()
        file.parent.mkdir()
        audit.note("network.refused", target="kept")
    assert "kept" in file.read_text()
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"audit.file: {file} cannot be written: No such file or directory" in record.getMessage()


async def test_a_disk_that_is_full_in_the_middle_of_a_line_damages_no_later_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        file = disk / "audit.log"
        taken = fill(disk)
        os.truncate(taken, taken.stat().st_size - os.sysconf("SC_PAGE_SIZE"))
        async with Audit(str(file)) as audit:
            while not caplog.records:
                audit.note("network.refused", target="y" * 900)
                await anyio.lowlevel.checkpoint()
            taken.unlink()
            audit.note("network.refused", target="kept")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[-1]["target"] == "kept"
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"audit.file: {file} cannot be written: No space left on device" in record.getMessage()


async def test_lines_that_the_disk_is_too_slow_for_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "_WAITING", 5)
    file = tmp_path / "audit.log"
    async with Audit(str(file)) as audit:
        for number in range(12):
            audit.note("network.refused", number=number)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line.get("number") for line in lines[:-1]] == [*range(5)]
    assert (lines[-1]["event"], lines[-1]["lines"]) == ("audit.omitted", 7)


async def test_without_a_file_lines_are_logged_as_warnings(caplog: pytest.LogCaptureFixture) -> None:
    async with Audit() as audit:
        audit.note("network.refused", target="x")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert json.loads(record.getMessage())["target"] == "x"


async def test_the_file_has_a_size_limit_and_the_previous_file_is_next_to_it(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    for opening in range(4):
        async with Audit(str(file), 1000) as audit:
            for number in range(5):
                audit.note("network.refused", opening=opening, number=number, target="y" * 200)
    numbers = [json.loads(line)["opening"] for line in file.read_text().splitlines()]
    before = [json.loads(line)["opening"] for line in (tmp_path / "audit.log.1").read_text().splitlines()]
    assert numbers == [3] * 5
    assert before == [2] * 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.log", "audit.log.1"]


async def test_only_one_of_two_servers_with_the_same_file_rotates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting, replace = threading.Barrier(2), os.replace

    def slowly(*paths: str) -> None:
        # If the other server gets here too, both go on together.
        with suppress(threading.BrokenBarrierError):
            meeting.wait(0.2)
        replace(*paths)

    monkeypatch.setattr(os, "replace", slowly)
    file = tmp_path / "audit.log"
    file.write_text("before\n" * 100)
    async with Audit(str(file), 700) as one, Audit(str(file), 700) as other:
        one.note("network.refused", number=1)
        other.note("network.refused", number=2)
    assert sorted(json.loads(line)["number"] for line in file.read_text().splitlines()) == [1, 2]
    assert (tmp_path / "audit.log.1").read_text() == "before\n" * 100
