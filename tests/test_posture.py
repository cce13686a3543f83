"""All processes of live bubblewrap sandboxes, seen from outside, have what the table of layers promises."""

import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends import BACKENDS
from llm_sandbox_mcp.backends.embedded import landlock
from tests.engines import need_open_network
from tests.promises import ROOT, TABLE, listed, showing
from tests.watched import MEMORY, PIDS, SECRET, Watched, watched

NAMESPACES = {
    "user": "user",
    "mount": "mnt",
    "process": "pid",
    "network": "net",
    "ipc": "ipc",
    "host name": "uts",
    "control group": "cgroup",
}
"""The table's names of namespaces, and the kernel's."""
MOST_LAYERS = 16
"""How many Landlock layers a process can have."""
SERVERS = {
    "root": ("root", "none"),
    "root, open network": ("root", "open"),
    "ordinary user, uids lent": ("lent", "none"),
    "ordinary user": ("without", "none"),
}
"""The user that runs the server, and the network mode of its profile."""
KINDS = (
    "/opt/handlers/python/importlib_bootstrap/runner.py",
    "sleep\0001000",
    "sleep\0002000",
    "sleep\0003000",
)
"""The processes that must exist: a runner, its child, a daemon, a background process of a shell."""


@pytest.fixture(scope="module", params=SERVERS)
def seen(request: pytest.FixtureRequest) -> Iterator[Watched]:
    user, network = SERVERS[request.param]
    if os.geteuid() != 0:
        pytest.skip("only root can inspect the processes of a sandbox")
    if network == "open":
        need_open_network()
    packages: Path = request.getfixturevalue("ordinary_packages") if user != "root" else ROOT
    with watched(packages, user=user, network=network) as found:
        commands = [process.read("cmdline") for process in found.inside]
        assert not [kind for kind in KINDS if not any(kind in command for command in commands)], commands
        assert any("uv\0pip" in command for command in commands), "no installation runs"
        if shutil.which("g++", path="/usr/bin"):
            assert any(command.startswith("/sandbox") or "/home" in command for command in commands), commands
        yield found


def namespaces(seen: Watched) -> None:
    """The table lists exactly the namespaces that the sandbox does not share; only the time namespace is shared."""
    names = [name for name in os.listdir("/proc/self/ns") if not name.endswith("_for_children")]
    for sandbox in seen.sandboxes:
        for process in sandbox:
            theirs = {name: process.namespace(name) for name in names}
            own = {name for name in names if theirs[name] != seen.server.namespace(name)}
            assert own == {NAMESPACES[word] for word in listed("namespaces")}, process
            assert theirs == {name: sandbox[0].namespace(name) for name in names}, process
    for name in NAMESPACES.values():
        assert len({first.namespace(name) for first, *_ in seen.sandboxes}) == len(seen.sandboxes)


def capabilities(seen: Watched) -> None:
    assert listed("capabilities") == {"none"}
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert {process.status(kind) for process in seen.inside} == {"0" * 16}, kind


def gain(seen: Watched) -> None:
    assert {process.status("NoNewPrivs") for process in (*seen.inside, *seen.outside)} == {"1"}
    for place, (_, options, kind, _) in seen.runner.mounts().items():
        assert "nosuid" in options, place
        assert "nodev" in options or kind in ("devtmpfs", "devpts"), place


def system_calls(seen: Watched) -> None:
    assert {process.status("Seccomp") for process in seen.inside} == {"2"}
    # A fork also has the filter of its zygote, which allows all that its own allows.
    assert {process.status("Seccomp_filters") for process in seen.inside} == {"2" if seen.zygotes else "1"}


def second_layer(seen: Watched) -> None:
    """PID 1 has Landlock before it starts anything, and no process can remove it.

    From outside it cannot be seen, so code in the sandbox counts how many layers it can add.
    """
    assert seen.said["layers"] == MOST_LAYERS - bool(landlock.version())


def user(seen: Watched) -> None:
    """Each sandbox has its own user if uids are available, otherwise the user of the server."""
    of_each = []
    for sandbox in seen.sandboxes:
        ids = {number for process in sandbox for key in ("Uid", "Gid") for number in process.status(key).split()}
        assert len(ids) == 1, ids
        of_each.append(int(ids.pop()))
        assert of_each[-1] in seen.users
        assert {process.status("Groups") for process in sandbox} == {""}
    if len(seen.users) > 1:
        assert len(set(of_each)) == len(of_each)
        assert int(seen.server.status("Uid").split()[0]) not in of_each


def root(seen: Watched) -> None:
    """The only writable mounts are the listed folders, /proc, and device nodes."""
    assert listed("root folder") == {"read-only"}
    mounts = seen.runner.mounts()
    writable = {place for place, (_, options, _, _) in mounts.items() if "rw" in options}
    devices = {place for place, (_, _, kind, _) in mounts.items() if kind in ("devtmpfs", "devpts")}
    assert writable - devices - {"/proc"} == listed("writable folders")
    assert all("ro" in mounts[place][1] for place in ("/", "/dev", "/proc/sys"))
    # Nothing is mounted below a folder that code can write: code could put a link in the way.
    assert not [place for place in mounts for folder in listed("writable folders") if place.startswith(f"{folder}/")]
    assert not any(place.startswith("/sys") for place in mounts)


def writable_folders(seen: Watched) -> None:
    for place in listed("writable folders"):
        _, options, kind, own = seen.runner.mounts()[place]
        assert kind == "tmpfs" and "size=" in own and {"rw", "nosuid", "nodev"} <= options, place


def environment(seen: Watched) -> None:
    assert listed("environment") == {"nothing of the server's"}
    handlers = [tomllib.loads(path.read_text(encoding="utf-8")) for path in ROOT.glob("handlers/*/handler.toml")]
    of_all = {name for one in handlers for name in one.get("libraries", {}).get("env", ())}
    offline = {name for one in handlers for name in one.get("offline", ())}
    own = next(one["env"] for one in handlers if one["name"] == "python")
    named = {"PATH", "HOME", "USER", "LOGNAME", "LANG", *own, *of_all}
    names = {entry.partition("=")[0] for entry in seen.runner.variables()}
    named |= offline if offline & names else set()
    assert {name for name in names ^ named if not name.startswith("SANDBOX_")} == set()
    assert {frozenset(first.variables()) for first, *_ in seen.sandboxes} == {
        frozenset(() if seen.zygotes else ("PWD=/",))
    }
    assert not [process for process in seen.inside if SECRET in process.read("environ")]
    assert {process.read("environ") for process in seen.outside} <= {""}
    assert SECRET in seen.server.read("environ"), "the server has no secret to find"


def descriptors(seen: Watched) -> None:
    """Only pipes to the server, and files that processes opened in their own file system; PID 1 also has its socket."""
    kinds = {re.sub(r":\[\d+\]$", "", target) for target in seen.runner.descriptors().values()}
    assert kinds <= {"pipe", "/dev/null", "anon_inode"}
    theirs = {target for process in (seen.server, *seen.outside) for target in process.descriptors().values()}
    for first, *others in seen.sandboxes:
        mounts = {number for number, *_ in first.mounts().values()}
        assert len([target for target in first.descriptors().values() if target.startswith("socket")]) == 1
        for process in (first, *others):
            found = process.descriptors()
            assert not [target for target in found.values() if target.startswith("socket") and target in theirs]
            opened = {number: target for number, target in found.items() if target.startswith("/")}
            strange = {number: target for number, target in opened.items() if process.mount_of(number) not in mounts}
            # bubblewrap was started with /dev/null as its stdin, and with a file for its error messages.
            assert set(strange.values()) <= ({"/dev/null", "/memfd:log (deleted)"} if process == first else set())


def pseudo_terminals(seen: Watched) -> None:
    """Each sandbox has its own devpts instance, with the promised maximum."""
    number = re.match(r"(\d+) of its own", TABLE["pseudo-terminals"]["embedded"])
    assert number
    assert "pseudo-terminals" not in seen.said["probed"]  # it would say that they are shared
    _, _, kind, own = seen.runner.mounts()["/dev/pts"]
    assert kind == "devpts" and f"max={number[1]}" in own.split(",")
    devices = {os.stat(f"/proc/{first.pid}/root/dev/pts").st_dev for first, *_ in seen.sandboxes}
    assert len(devices - {os.stat("/dev/pts").st_dev}) == len(seen.sandboxes)


def limits(seen: Watched) -> None:
    """Each sandbox has its own control group, which includes bwrap and slirp4netns; or each process has limits."""
    if not seen.limited():
        expected = {"Max processes": str(PIDS), "Max data size": str(MEMORY)}
        assert all(expected.items() <= process.limits().items() for process in seen.inside)
        return
    for controller in ("memory", "pids", "cpu"):
        groups = [{process.group(controller) for process in sandbox} for sandbox in seen.sandboxes]
        assert {len(group) for group in groups} == {1}
        own = {group.pop() for group in groups}
        assert len(own) == len(seen.sandboxes) and seen.server.group(controller) not in own
        assert {process.group(controller) for process in seen.outside} <= own


def network(seen: Watched) -> None:
    expected = {"lo", "tap0"} if any(process.read("comm") == "slirp4netns\n" for process in seen.outside) else {"lo"}
    assert {frozenset(process.interfaces()) for process in seen.inside} == {frozenset(expected)}


CHECKS: Mapping[str, Callable[[Watched], None]] = {
    "namespaces": namespaces,
    "capabilities": capabilities,
    "gaining privileges": gain,
    "system calls": system_calls,
    "Landlock": second_layer,
    "user of the machine": user,
    "root folder": root,
    "writable folders": writable_folders,
    "environment": environment,
    "pseudo-terminals": pseudo_terminals,
    "descriptors": descriptors,
    "memory, processes, processors": limits,
    "network": network,
}


@pytest.mark.parametrize("layer", CHECKS)
def test_a_layer_is_as_the_readme_describes(seen: Watched, layer: str) -> None:
    CHECKS[layer](seen)


def test_programs_that_serve_a_sandbox_from_outside_have_its_user_and_no_rights(seen: Watched) -> None:
    """bubblewrap, which waits outside of each sandbox that is no fork, and slirp4netns, which is root only in its
    namespace."""
    programs = [process.read("comm").strip() for process in seen.outside]
    assert programs.count("bwrap") == (0 if seen.zygotes else len(seen.sandboxes))
    users = {number for process in seen.inside for number in process.status("Uid").split()}
    for process, program in zip(seen.outside, programs, strict=True):
        assert {*process.status("Uid").split(), *process.status("Gid").split()} <= users
        assert process.status("Groups") == ""
        if program == "bwrap":
            assert process.status("CapEff") == process.status("CapPrm") == "0" * 16
        else:
            # Its user namespace maps only the sandbox's user, and contains the user namespace of the code.
            assert process.namespace("user") != seen.server.namespace("user")
            (mapped,) = process.read("uid_map").splitlines()
            assert mapped.split()[1:] == [process.status("Uid").split()[0], "1"]
            assert process.status("Seccomp") == "2"


def test_what_sandboxes_are_forked_from_has_no_rights_and_namespaces_and_a_user_of_its_own(seen: Watched) -> None:
    """Where sandboxes have an open network, they are no forks."""
    assert bool(seen.zygotes) == (not seen.outside or "slirp4netns\n" not in [one.read("comm") for one in seen.outside])
    used = {number for process in seen.inside for number in process.status("Uid").split()}
    for zygote in seen.zygotes:
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert zygote.status(kind) == "0" * 16, kind
        assert (zygote.status("NoNewPrivs"), zygote.status("Seccomp"), zygote.status("Threads")) == ("1", "2", "1")
        assert zygote.interfaces() == {"lo"}
        assert zygote.variables() == set()
        others = {process.namespace(name) for process in (seen.server, *seen.inside) for name in ("pid", "mnt", "net")}
        assert not others & {zygote.namespace(name) for name in ("pid", "mnt", "net")}
        if len(seen.users) > 1:
            assert not used & {*zygote.status("Uid").split()}


def test_every_layer_of_the_table_is_checked() -> None:
    assert set(TABLE) == set(CHECKS)


def covered(file: str) -> set[str]:
    """The backends that a test file covers, by its folder and its parameters."""
    if file.startswith("hostile/"):
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        chosen = re.search(r'for name in \("embedded",\)|"backend_name", PODS', text)
        return set(BACKENDS) if chosen is None else {"kubernetes"} if "PODS" in chosen[0] else {"embedded"}
    places = {"containers/": {"docker", "podman"}, "cluster/": {"kubernetes"}}
    return next((backends for place, backends in places.items() if file.startswith(place)), {"embedded"})


@pytest.mark.parametrize("layer", TABLE)
def test_a_layer_has_tests_for_each_backend_that_has_it(layer: str) -> None:
    named = showing(layer)
    assert named and all((ROOT / "tests" / name).exists() for name in named), named
    shown = {backend for name in named for backend in covered(name)}
    columns = {name for name in TABLE[layer] if name != "shown by" and TABLE[layer][name] != "no"}
    assert {backend.lower() for column in columns for backend in column.split(", ")} <= shown
