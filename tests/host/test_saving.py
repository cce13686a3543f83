"""What becomes of a person's files when the server is killed, a call is cancelled, or the disk is full."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.cli.command import ROOT
from tests.disks import fill, small_disk
from tests.effort import EFFORT, tries
from tests.engines import host_folder, small_profile

pytestmark = pytest.mark.anyio

FILES = 300
SERVER = """
import sys, anyio
from pathlib import Path
from llm_sandbox_mcp.testing.asking import execute
from llm_sandbox_mcp.wiring import open_service
from tests.engines import small_profile

async def main(folder, top):
    profile = small_profile("embedded", Path(folder), files={"folders": [f"{top}:rwd"]}, pool={"min": 0})
    async with open_service(profile) as service:
        await execute(service, "1")
        print("ready", flush=True)
        await execute(service, sys.stdin.read())

anyio.run(main, *sys.argv[1:])
"""
REWRITE = """
import os
os.chdir("/data/both")
for name in os.listdir():
    open(name, "w").write("new" * 1000)
for number in range(100):
    open(f"made-{number}", "w").write("new" * 1000)
"""


@pytest.mark.timeout(120 * EFFORT)
def test_a_killed_server_leaves_each_file_whole(embedded: None) -> None:
    for _ in range(tries(2)):
        with host_folder() as folder:
            top = folder / "both"
            top.mkdir()
            for number in range(FILES):
                (top / f"file-{number}").write_text("old" * 1000)
            argv = [sys.executable, "-c", SERVER, str(folder), str(top)]
            with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
                assert server.stdin is not None and server.stdout is not None
                assert server.stdout.readline() == b"ready\n"
                server.stdin.write(REWRITE.encode())
                server.stdin.close()
                # The limit on the time of a test bounds this.
                while not any(path.read_text().startswith("new") for path in top.glob("[fm]*")):
                    os.sched_yield()
                server.send_signal(signal.SIGKILL)
                # Its launcher has the stream too, and still removes what it made.
                server.stdout.read()
            found = {path.name: path.read_text() for path in top.glob("[fm]*")}
            assert {*found.values()} <= {"old" * 1000, "new" * 1000}
            assert {name for name in found if name.startswith("file-")} == {f"file-{n}" for n in range(FILES)}
            assert all(path.read_text() in ("old" * 1000, "new" * 1000) for path in top.glob(".*"))
            assert len([*top.glob(".*")]) <= 1


async def test_a_call_that_is_cancelled_anywhere_loses_and_doubles_nothing(embedded: None) -> None:
    with host_folder() as folder:
        top = folder / "both"
        top.mkdir()
        for number in range(40):
            (top / f"file-{number}").write_text(f"{number}\n")
        profile = small_profile("embedded", folder, files={"folders": [f"{top}:rwd"]}, pool={"min": 0})
        async with open_service(profile) as service:
            done = await execute(service, "import os, glob; os.chdir('/data/both')")
            # Not those that are kept beside a file of the person's: there would be more of these each time.
            names = "sorted(glob.glob('file-?') + glob.glob('file-??'))"
            code = f"for name in {names}: open(name, 'a').write('{{0}}\\n')\nopen('new-{{0}}', 'w').write('{{0}}\\n')"
            for number in range(tries(20)):
                # Each file is the person's now, so that a refresh comes before the run.
                for path in top.glob("file-*"):
                    os.utime(path)
                with anyio.move_on_after(0.004 * number):
                    await execute(service, code.format(number), session_id=done.session_id)
            look = "import hashlib; hashlib.sha256(repr(sorted((n, open(n).read()) for n in glob.glob('*'))).encode()).hexdigest()"
            # The first run saves what is left; the second one sees the folder.
            await execute(service, "1", session_id=done.session_id)
            seen = await execute(service, look, session_id=done.session_id)
            files = sorted((path.name, path.read_text()) for path in top.glob("*"))
            assert seen.result == repr(hashlib.sha256(repr(files).encode()).hexdigest())
            assert [path.name for path in top.iterdir() if path.name.startswith(".")] == []
            for number in range(40):
                first, *more = (top / f"file-{number}").read_text().splitlines()
                assert first == str(number)
                assert more == sorted({*more}, key=int)


async def test_a_full_disk_leaves_files_as_they_were_until_there_is_room(embedded: None, tmp_path: Path) -> None:
    with host_folder() as folder, small_disk(folder / "both", "2m") as top:
        for number in range(3):
            (top / f"file-{number}").write_bytes(b"old" * 1000)
        filler = fill(top)
        profile = small_profile("embedded", folder, files={"folders": [f"{top}:rw"]}, limits={"disk": 16 << 20})
        async with open_service(profile) as service:
            code = "for n in range(3): open(f'/data/both/file-{n}', 'wb').write(b'new' * 50_000)"
            done = await execute(service, code)
            assert done.notes == (
                f"file-0, file-1, file-2 of /data/both were not saved: {top} on this machine cannot be written: "
                "No space left on device; it is tried again after the next run",
            )
            assert [path.read_bytes() for path in sorted(top.glob("file-*"))] == [b"old" * 1000] * 3
            filler.unlink()
            done = await execute(service, "1", session_id=done.session_id)
            assert done.notes == (f"saved in {top}: file-0, file-1, file-2",)
            assert [path.read_bytes() for path in sorted(top.glob("file-*"))] == [b"new" * 50_000] * 3
            assert sorted(os.listdir(top)) == ["file-0", "file-1", "file-2"]
