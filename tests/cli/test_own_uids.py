"""An ordinary user with subordinate uids: each sandbox has its own uid, and everything else works as without them."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests import ordinary
from tests.engines import host_folder
from tests.hostile.counters import COUNTERS
from tests.leftovers import look, nothing_beyond

pytestmark = pytest.mark.usefixtures("embedded")

GONE = 20.0
"""Seconds until nothing is left; usually one."""
PROFILE = """
[backend]
name = "embedded"
[server]
runtime = "{folder}/runtime"
cache = "{folder}/cache"
[languages.python]
libraries = []
{more}
"""
PROGRAM = Path(__file__).with_name("sessions_program.py").read_text()
COUNTERS_PROGRAM = Path(__file__).with_name("counters_program.py").read_text()
COUNTED_BY_UID = {"epoll watches": "No space left on device", "descriptors in flight": "Too many references"}
"""Resources that are limited for all sandboxes of one uid together, and the error of the code; the server goes on."""
WRITTEN = ["ok", "opened again", ["plain.csv", "private/inner.csv"]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the user that none of the lent uids can read."""
    with host_folder() as made:
        os.chown(made, ordinary.USER, ordinary.USER)
        made.chmod(0o700)
        yield made


def run(packages: Path, folder: Path, *argv: str, more: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    profile = folder / "profile.toml"
    profile.write_text(PROFILE.format(folder=folder, more=more))
    profile.chmod(0o644)
    return ordinary.run(packages, *argv, str(profile), cwd=folder, env={"HOME": str(folder)}, **options)


def sessions(packages: Path, folder: Path, **options: Any) -> Any:
    state = partial(look, folder / "runtime")
    before = state()
    done = run(packages, folder, "-c", PROGRAM, **options)
    assert done.returncode == 0, done.stderr
    anyio.run(nothing_beyond, before, state, GONE)
    return json.loads(done.stdout)


def test_each_sandbox_has_one_of_the_lent_uids(ordinary_packages: Path, folder: Path) -> None:
    found = sessions(ordinary_packages, folder, lent=True)
    assert found["uids"][:2] == [
        "ok",
        f"each sandbox has its own unprivileged uid, one of 65535 that /etc/subuid lends to uid {ordinary.USER}",
    ]
    assert found["launcher"] == ordinary.USER
    assert len(found["sandboxes"]) >= 2
    assert {*found["sandboxes"], *found["sandboxes after"]} <= {*ordinary.LENT}
    assert found["written"] == WRITTEN
    assert found["after"][-1] == "ok"


def test_without_lent_uids_sandboxes_have_the_servers_uid_and_doctor_names_the_fix(
    ordinary_packages: Path, folder: Path
) -> None:
    found = sessions(ordinary_packages, folder)
    state, detail, fix = found["uids"]
    assert state == "degraded"
    assert detail.startswith(
        f"shared uid: the kernel counts the sandboxes and the server together, as uid {ordinary.USER}"
    )
    assert fix.startswith("sudo usermod --add-subuids")
    assert found["sandboxes"] == [ordinary.USER]
    assert found["written"] == WRITTEN


def test_lent_uids_that_cannot_be_used_are_ignored(ordinary_packages: Path, folder: Path) -> None:
    found = sessions(ordinary_packages, folder, lent=True, privileges=["--no-new-privs"])
    state, detail, fix = found["uids"]
    assert state == "degraded"
    assert "the uids in /etc/subuid cannot be used: newuidmap" in detail
    assert fix.startswith("check whether `unshare --map-auto")
    assert found["sandboxes"] == [ordinary.USER]


LOOK = """
grep -c ' /data/data ' /proc/self/mountinfo
cat /data/data/plain
cat /data/data/private 2>/dev/null
echo saved > /data/out/new
"""


@pytest.mark.parametrize("lent", [True, False], ids=["own uids", "shared uid"])
def test_an_open_folder_is_mounted_only_if_sandboxes_have_their_own_uids(
    ordinary_packages: Path, folder: Path, lent: bool
) -> None:
    """With the uid of the server, code could connect to its user's sockets there, so it gets a copy."""
    for name in ("data", "out"):
        (folder / name).mkdir()
        os.chown(folder / name, ordinary.USER, ordinary.USER)
    for name, mode in (("plain", 0o644), ("private", 0o600)):
        (folder / "data" / name).write_text(f"{name}\n")
        (folder / "data" / name).chmod(mode)
        os.chown(folder / "data" / name, ordinary.USER, ordinary.USER)
    more = f'[files]\nfolders = ["{folder}/data", "{folder}/out:rw"]'
    argv = ("-m", "llm_sandbox_mcp", "run", "--language", "bash", "-c", LOOK, "--profile")
    done = run(ordinary_packages, folder, *argv, more=more, lent=lent)
    assert done.returncode == 0, done
    assert done.stdout == ("1\nplain\n" if lent else "0\nplain\nprivate\n")
    assert (folder / "out" / "new").read_text() == "saved\n"
    assert (folder / "out" / "new").stat().st_uid == ordinary.USER


CHANGE = """
import os
os.chdir("/data/out")
for name in ("own", "other", "new"):
    open(name, "a").write("by code")
os.unlink("gone")
"""


@pytest.mark.parametrize("lent", [True, False], ids=["own uids", "shared uid"])
def test_what_an_ordinary_user_cannot_keep_is_not_replaced(ordinary_packages: Path, folder: Path, lent: bool) -> None:
    out = folder / "out"
    out.mkdir()
    os.chown(out, ordinary.USER, ordinary.USER)
    for name, mode, owner in (("own", 0o600, ordinary.USER), ("gone", 0o640, ordinary.USER), ("other", 0o666, 0)):
        (out / name).write_text(f"{name}\n")
        (out / name).chmod(mode)
        os.chown(out / name, owner, owner)
    (out / "closed").write_text("closed\n")
    (out / "closed").chmod(0o600)
    before = (out / "other").stat()
    argv = ("-m", "llm_sandbox_mcp", "run", "-c", CHANGE, "--profile")
    done = run(ordinary_packages, folder, *argv, more=f'[files]\nfolders = ["{out}:rwd"]', lent=lent)
    assert done.returncode == 0, done
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        "own": "own\nby code",
        "new": "by code",
        "closed": "closed\n",
        "other": "other\n",
        "other.from-code": "other\nby code",
    }
    states = {path.name: path.stat() for path in out.iterdir()}
    assert states["other"].st_mtime_ns == before.st_mtime_ns
    assert {name: (state.st_uid, state.st_mode & 0o777) for name, state in states.items()} == {
        "own": (ordinary.USER, 0o600),
        "new": (ordinary.USER, 0o644),
        "closed": (0, 0o600),
        "other": (0, 0o666),
        "other.from-code": (ordinary.USER, 0o644),
    }
    assert "other (the code's is other.from-code)" in done.stderr
    assert f"deleted in {out}: gone" in done.stderr


@pytest.mark.usefixtures("open_network")
@pytest.mark.parametrize("lent", [True, False], ids=["own uids", "shared uid"])
def test_an_open_network_works_with_any_uid(ordinary_packages: Path, folder: Path, lent: bool) -> None:
    # The address of the gateway's device comes from slirp4netns: packets pass in both directions.
    knock = "{ : </dev/tcp/10.0.2.2/9; } 2>/dev/null; cat /proc/net/dev /proc/net/arp"
    argv = ("-m", "llm_sandbox_mcp", "run", "--language", "bash", "-c", knock, "--profile")
    done = run(ordinary_packages, folder, *argv, more='[network]\nmode = "open"', lent=lent)
    assert done.returncode == 0, done.stderr
    assert "tap0:" in done.stdout
    assert " 52:55:0a:00:02:02 " in done.stdout


# With uids of their own, `hostile/test_shared_counters.py` shows it in every ring.
@pytest.mark.only_in_all(but={"lent": False})
@pytest.mark.parametrize("lent", [True, False], ids=["own uids", "shared uid"])
def test_other_sandboxes_can_use_a_resource_that_one_sandbox_uses_up(
    ordinary_packages: Path, folder: Path, lent: bool
) -> None:
    codes = json.dumps({name: [counter.take, counter.use] for name, counter in COUNTERS.items()})
    state = partial(look, folder / "runtime")
    before = state()
    done = run(ordinary_packages, folder, "-c", COUNTERS_PROGRAM, codes, lent=lent)
    assert done.returncode == 0, done.stderr
    anyio.run(nothing_beyond, before, state, GONE)
    for name, found in json.loads(done.stdout).items():
        refused = "" if lent else COUNTED_BY_UID.get(name, "")
        for how in found["during"]:
            assert how == "ok" or (refused and re.match(f"error: (.|\\n)*{refused}", how)), (name, found)
        assert found["after"] == "ok", (name, found)
