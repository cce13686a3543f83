"""An ordinary user to whom uids are lent: each sandbox has one of its own, and all else is as it is without them."""

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
"""Seconds until nothing is left; usual is one."""
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
"""What sandboxes of one uid have so many of together, and what code then is told; the server goes on."""
WRITTEN = ["ok", "opened anew", ["plain.csv", "private/inner.csv"]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the user, into which none of the lent uids can look."""
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


def test_each_sandbox_has_one_of_those_that_are_lent(ordinary_packages: Path, folder: Path) -> None:
    found = sessions(ordinary_packages, folder, lent=True)
    assert found["uids"][:2] == [
        "ok",
        f"each sandbox has its own unprivileged uid, one of 65536 that /etc/subuid lends to uid {ordinary.USER}",
    ]
    assert found["launcher"] == ordinary.USER
    assert len(found["sandboxes"]) >= 2
    assert {*found["sandboxes"], *found["sandboxes after"]} <= {*ordinary.LENT}
    assert found["written"] == WRITTEN
    assert found["after"][-1] == "ok"


def test_without_them_all_are_the_servers_and_doctor_says_what_to_do(ordinary_packages: Path, folder: Path) -> None:
    found = sessions(ordinary_packages, folder)
    state, detail, fix = found["uids"]
    assert state == "degraded"
    assert detail.startswith(
        f"shared uid: the kernel counts the sandboxes and the server together, as uid {ordinary.USER}"
    )
    assert fix.startswith("sudo usermod --add-subuids")
    assert found["sandboxes"] == [ordinary.USER]
    assert found["written"] == WRITTEN


def test_where_they_may_not_be_used_it_goes_on_without(ordinary_packages: Path, folder: Path) -> None:
    found = sessions(ordinary_packages, folder, lent=True, privileges=["--no-new-privs"])
    state, detail, fix = found["uids"]
    assert state == "degraded"
    assert "the uids in /etc/subuid cannot be used: newuidmap" in detail
    assert fix.startswith("check whether `unshare --map-auto")
    assert found["sandboxes"] == [ordinary.USER]


@pytest.mark.usefixtures("open_network")
def test_an_open_network_is_opened_by_the_sandboxs_own(ordinary_packages: Path, folder: Path) -> None:
    argv = ("-m", "llm_sandbox_mcp", "run", "--language", "bash", "-c", "cat /proc/net/dev", "--profile")
    done = run(ordinary_packages, folder, *argv, more='[network]\nmode = "open"', lent=True)
    assert done.returncode == 0, done.stderr
    assert "tap0:" in done.stdout


@pytest.mark.parametrize("lent", [True, False], ids=["own uids", "shared uid"])
def test_what_one_sandbox_takes_of_what_is_counted_by_uid_the_others_have(
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
