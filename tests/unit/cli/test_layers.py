"""The rows of `doctor` for a sandbox that it checked, with each layer turned off in turn."""

from collections.abc import Mapping

import pytest

from llm_sandbox_mcp.base.policy import Network
from llm_sandbox_mcp.cli.layers import layers
from llm_sandbox_mcp.profile.profile import load_profile

PARTS: Mapping[str, str] = {
    "status": "Name:\tsh\nUid:\t1000\t1000\t1000\t1000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
    + "".join(f"{name}:\t{'0' * 16}\n" for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")),
    "mounts": "299 272 0:81 / / ro,nosuid,nodev - tmpfs tmpfs rw\n"
    "324 322 0:79 / /dev/pts rw,nosuid,noexec - devpts devpts rw,mode=620,max=64\n"
    + "".join(
        f"32{n} 299 0:{n} / {place} rw,nosuid,nodev - tmpfs tmpfs rw,size=65536k\n"
        for n, place in enumerate(("/sandbox", "/home", "/tmp", "/dev/shm"))
    ),
    "interfaces": "Inter-|   Receive\n face |bytes\n    lo:  0 0\n",
    "namespaces": "".join(
        f"{name}:[402653240{n}]\n" for n, name in enumerate(("mnt", "pid", "net", "ipc", "uts", "user", "cgroup"))
    ),
    "descriptors": "pipe:[1]\npipe:[2]\n",
    "environment": "PATH=/usr/bin\n",
    "memory": "1024\n",
}
OWN = "".join(f"{name}:[4026531836]\n" for name in ("mnt", "pid", "net", "ipc", "uts", "user", "cgroup"))
SERVER = {"PATH": "/usr/bin", "HOME": "/root", "TOKEN": "secret"}
OFF = {
    "namespaces": ("namespaces", "net:[4026532402]", "net:[4026531836]", "network shared"),
    "namespaces of the machine": ("namespaces", "pid:[4026532401]", "pid:[4026531836]", "process shared"),
    "control groups of the machine": (
        "namespaces",
        "cgroup:[4026532406]",
        "cgroup:[4026531835]",
        "control group shared",
    ),
    "control groups of the server": (
        "namespaces",
        "cgroup:[4026532406]",
        "cgroup:[4026531836]",
        "control group shared",
    ),
    "capabilities": ("status", f"CapBnd:\t{'0' * 16}", "CapBnd:\t00000000a80425fb", "some"),
    "gaining privileges": ("status", "NoNewPrivs:\t1", "NoNewPrivs:\t0", "set-uid programs can"),
    "system calls": ("status", "Seccomp:\t2", "Seccomp:\t0", "no filter"),
    "user of the machine": ("status", "Uid:\t1000\t1000", "Uid:\t0\t1000", "root"),
    "root folder": ("mounts", "/ / ro,", "/ / rw,", "can be written"),
    "writable folders": (
        "mounts",
        "/home rw,nosuid,nodev - tmpfs tmpfs rw,size=65536k",
        "/home rw - tmpfs tmpfs rw",
        "/home",
    ),
    "a folder of the machine": (
        "mounts",
        "/sandbox rw,nosuid,nodev - tmpfs tmpfs",
        "/sandbox rw - ext4 /dev/vda",
        "/sandbox",
    ),
    "environment": ("environment", "PATH=/usr/bin", "TOKEN=secret", "TOKEN"),
    "pseudo-terminals": ("mounts", "mode=620,max=64", "mode=620", "shared with the machine"),
    "descriptors": ("descriptors", "pipe:[2]", "socket:[2]", "socket:[2]"),
    "memory": ("memory", "1024", "max", "max"),
    "network": ("interfaces", "    lo:", "  eth0: 0\n    lo:", "eth0"),
}
"""By the layer that is off: the part of the report, its text if all is well, its text now, part of the row."""


def rows_of(parts: Mapping[str, str], mode: str = "none", *, of_engine: bool = False) -> Mapping[str, tuple[str, str]]:
    policy = load_profile().policy()
    if mode == "open":
        policy = policy.model_copy(update={"network": Network(mode="open")})
    rows = layers("\x1e".join(parts.values()), policy, SERVER, OWN, of_engine=of_engine)
    return {row.name: (row.state, row.detail) for row in rows}


def test_if_every_layer_is_on_every_row_is_ok() -> None:
    assert {state for state, _ in rows_of(PARTS).values()} == {"ok"}


@pytest.mark.parametrize("off", OFF)
def test_only_the_layer_that_is_off_is_reported_as_degraded(off: str) -> None:
    part, well, instead, expected = OFF[off]
    assert well in PARTS[part]
    found = rows_of({**PARTS, part: PARTS[part].replace(well, instead)})
    degraded = {name: detail for name, (state, detail) in found.items() if state != "ok"}
    assert len(degraded) == 1
    assert expected in next(iter(degraded.values()))


def test_the_namespaces_are_those_that_the_sandbox_has() -> None:
    every = "user, mount, process, network, ipc, host name, control group"
    assert rows_of(PARTS)["namespaces"] == ("ok", every)
    assert rows_of(PARTS, of_engine=True)["namespaces"] == ("ok", every)
    text = PARTS["namespaces"].replace("cgroup:[4026532406]", "cgroup:[4026531835]").replace("user:[4026532405]\n", "")
    fewer = "mount, process, network, ipc, host name; user, control group shared with others"
    assert rows_of({**PARTS, "namespaces": text}, of_engine=True)["namespaces"] == ("ok", fewer)


def test_a_layer_that_cannot_be_checked_is_not_reported_as_on() -> None:
    """For example in an image whose shell does not have the needed commands."""
    found = rows_of({**dict.fromkeys(PARTS, ""), "environment": ""})
    assert {name for name, (state, _) in found.items() if state == "ok"} <= {"environment"}


def test_a_network_that_the_profile_opens_is_not_a_problem() -> None:
    opened = {**PARTS, "interfaces": PARTS["interfaces"] + "  tap0: 0 0\n"}
    assert rows_of(opened, "open")["network"] == ("ok", "devices: lo, tap0")
    assert rows_of(opened)["network"][0] == "degraded"
