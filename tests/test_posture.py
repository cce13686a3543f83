"""A live sandbox of bubblewrap, looked at from outside, against what the README's table promises of it."""

import os
import re
import secrets
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from llm_sandbox_mcp.backends.embedded import landlock
from llm_sandbox_mcp.wiring import open_service
from tests.engines import host_folder, need, small_profile

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[1]
NAMESPACES = {
    "user": "user",
    "mount": "mnt",
    "process": "pid",
    "network": "net",
    "ipc": "ipc",
    "host name": "uts",
    "control group": "cgroup",
}
"""The README's words, and the kernel's."""
MOST_LAYERS = 16
"""Of Landlock, one upon the other."""
COUNT_LAYERS = """
import ctypes
libc, layers = ctypes.CDLL(None), 0
while True:
    ruleset = libc.syscall(444, (4).to_bytes(8, 'little'), 8, 0)
    if ruleset < 0 or libc.syscall(446, ruleset, 0) < 0:
        break
    layers += 1
layers
"""


def promised() -> Mapping[str, Mapping[str, str]]:
    """The README's table: for each layer what each backend has of it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = iter(text[text.index("| layer | embedded |") :].splitlines())
    head = [cell.strip() for cell in next(lines).strip("|").split("|")]
    next(lines)
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            break
        layer, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[layer] = dict(zip(head[1:], cells, strict=True))
    return rows


TABLE = promised()


def listed(layer: str) -> set[str]:
    """What the table lists for embedded, before the first semicolon."""
    return set(TABLE[layer]["embedded"].partition(";")[0].replace("`", "").split(", "))


@dataclass(frozen=True)
class Seen:
    """What there is to look at, on the machine."""

    code: int
    """The process that runs code."""
    first: int
    """PID 1 of the sandbox."""
    layers: int
    """Of Landlock, that the code could add."""

    @property
    def both(self) -> tuple[int, int]:
        return self.code, self.first

    def status(self, key: str) -> set[str]:
        found = set()
        for process in self.both:
            text = Path(f"/proc/{process}/status").read_text()
            found |= set(re.findall(rf"^{key}:[ \t]*(.*)$", text, re.MULTILINE))
        return found

    def mounts(self) -> Mapping[str, tuple[set[str], str, str]]:
        """By its place, of each mount: its options, its kind, and those of the kind."""
        found = {}
        for line in Path(f"/proc/{self.code}/mountinfo").read_text().splitlines():
            here, _, there = line.partition(" - ")
            kind, _, own = there.split(maxsplit=2)
            found[here.split()[4]] = (set(here.split()[5].split(",")), kind, own)
        return found

    def group(self, process: int, controller: str) -> str:
        """Its control group for that, in whichever version the machine has."""
        groups = dict(line.split(":", 2)[1:] for line in Path(f"/proc/{process}/cgroup").read_text().splitlines())
        return groups.get(controller, groups.get("", ""))

    def descriptors(self, process: int) -> list[str]:
        folder = Path(f"/proc/{process}/fd")
        return [os.readlink(entry) for entry in folder.iterdir()]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def seen() -> AsyncIterator[Seen]:
    if os.geteuid() != 0:
        pytest.skip("only root sees what a sandbox's processes have")
    await need("embedded")
    name = f"seen{secrets.token_hex(4)}"
    with host_folder() as folder:
        async with open_service(small_profile("embedded", folder)) as service:
            layers = await service.execute(COUNT_LAYERS)
            opened = await service.execute(f"open('/proc/self/comm', 'w').write({name!r})")
            assert opened.status == layers.status == "ok", opened
            (code,) = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/comm") if _says(path, name)]
            first = code
            while _status(first, "NSpid")[-1] != "1":
                first = int(_status(first, "PPid")[0])
            yield Seen(code, first, int(layers.result or -1))


def _status(process: int, key: str) -> list[str]:
    """The words of one line about a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith(f"{key}:"))


def _says(path: Path, text: str) -> bool:
    try:
        return path.read_text().strip() == text
    except OSError:
        return False


def namespaces(seen: Seen) -> None:
    """The table lists those that are the sandbox's own, and no other is shared but that of clocks."""
    own = {
        name
        for name in os.listdir("/proc/self/ns")
        if not name.endswith("_for_children")
        for process in seen.both
        if os.readlink(f"/proc/{process}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")
    }
    assert own == {NAMESPACES[word] for word in listed("namespaces")}


def capabilities(seen: Seen) -> None:
    assert listed("capabilities") == {"none"}
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert seen.status(kind) == {"0" * 16}, kind


def gain(seen: Seen) -> None:
    assert seen.status("NoNewPrivs") == {"1"}
    assert all({"nosuid", "nodev"} <= seen.mounts()[place][0] for place in listed("writable folders"))


def system_calls(seen: Seen) -> None:
    assert seen.status("Seccomp") == {"2"}
    assert seen.status("Seccomp_filters") == {"1"}


def second_layer(seen: Seen) -> None:
    assert seen.layers == MOST_LAYERS - bool(landlock.version())


def user(seen: Seen) -> None:
    ids = {number for line in (*seen.status("Uid"), *seen.status("Gid")) for number in line.split()}
    assert len(ids) == 1 and int(ids.pop()) >= 200_000
    assert seen.status("Groups") == {""}


def root(seen: Seen) -> None:
    """Nothing is a writable mount but the folders listed, processes' own files, and device nodes."""
    writable = {place for place, (options, _, _) in seen.mounts().items() if "rw" in options}
    assert "/" not in writable
    devices = {place for place, (_, kind, _) in seen.mounts().items() if kind in ("devtmpfs", "devpts")}
    assert writable - devices - {"/proc"} == listed("writable folders")


def writable_folders(seen: Seen) -> None:
    for place in listed("writable folders"):
        options, kind, own = seen.mounts()[place]
        assert kind == "tmpfs" and "size=" in own and "rw" in options, place


def environment(seen: Seen) -> None:
    assert Path(f"/proc/{seen.first}/environ").read_bytes() == b"PWD=/\0"
    handler = tomllib.loads((ROOT / "handlers/python/handler.toml").read_text(encoding="utf-8"))
    own = {"PATH", "HOME", "USER", "LOGNAME", "LANG", *handler["env"]}
    names = {entry.partition("=")[0] for entry in Path(f"/proc/{seen.code}/environ").read_text().split("\0") if entry}
    assert {name for name in names if not name.startswith("SANDBOX_")} == own


def descriptors(seen: Seen) -> None:
    """Pipes to the server and what the interpreter itself opened; PID 1 has its socket."""
    kinds = {re.sub(r":\[\d+\]$", "", target) for target in seen.descriptors(seen.code)}
    assert kinds <= {"pipe", "/dev/null", "anon_inode"}
    assert len([target for target in seen.descriptors(seen.first) if target.startswith("socket")]) == 1


def pseudo_terminals(seen: Seen) -> None:
    """So many, of an instance that no other process has."""
    number = re.match(r"(\d+) of its own", TABLE["pseudo-terminals"]["embedded"])
    assert number
    _, kind, own = seen.mounts()["/dev/pts"]
    assert kind == "devpts" and f"max={number[1]}" in own.split(",")
    theirs, ours = (os.stat(f"{root}/dev/pts").st_dev for root in (f"/proc/{seen.code}/root", ""))
    assert theirs != ours


def limits(seen: Seen) -> None:
    for controller in ("memory", "pids", "cpu"):
        own = seen.group(seen.code, controller)
        assert own == seen.group(seen.first, controller) != seen.group(os.getpid(), controller)


def network(seen: Seen) -> None:
    lines = Path(f"/proc/{seen.code}/net/dev").read_text().splitlines()[2:]
    assert [line.partition(":")[0].strip() for line in lines] == ["lo"]


CHECKS: Mapping[str, Callable[[Seen], None]] = {
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
async def test_a_layer_is_as_the_readme_says(seen: Seen, layer: str) -> None:
    CHECKS[layer](seen)


def test_every_layer_of_the_table_is_checked() -> None:
    assert set(TABLE) == set(CHECKS)


@pytest.mark.parametrize("layer", TABLE)
def test_what_shows_a_layer_is_there(layer: str) -> None:
    named = re.findall(r"`([a-z_/]+(?:\.py)?)`", TABLE[layer]["shown by"])
    assert named and all((ROOT / "tests" / name).exists() for name in named), named
