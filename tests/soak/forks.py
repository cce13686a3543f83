"""python -m tests.soak.forks --number 100000: makes so many sandboxes, eight at once, as forks.

Prints after each tenth what the server and its launcher have, and the growth per 10,000 from the second tenth on; exits
with 1 if anything is left behind, or the server grows by more than is promised. It grows most at first: fewer than some
50,000 sandboxes show more than what stays.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from llm_sandbox_mcp.testing.profiles import host_folder

from ..benchmarks.fresh import AT_ONCE, PANDAS, PRINT, Wire, begin, served
from .serving import Server

GROWTH = 2 << 20
"""Bytes by which the server may grow for each 10,000 sandboxes."""
_PROFILE = """
[server]
runtime = "{folder}/runtime"
[sessions]
max = 100
starts_per_second = 100000.0
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.forks", description=(__doc__ or "").partition("\n\n")[2]
    )
    parser.add_argument("--number", type=int, default=100_000, help="number of sandboxes (default: %(default)s)")
    parser.add_argument("--pandas", action="store_true", help="each uses pandas, which takes twice as long")
    options = parser.parse_args()
    with host_folder() as folder:
        temporary = folder / "temporary"
        temporary.mkdir()
        profile = folder / "profile.toml"
        profile.write_text(_PROFILE.format(folder=folder))
        with served(str(profile)) as wire:
            server = Server(wire.process, "", "embedded", folder / "runtime", temporary)
            begin(wire)
            return _soak(wire, server, PANDAS if options.pandas else PRINT, options.number // 10)


def _soak(wire: Wire, server: Server, code: str, tenth: int) -> int:
    rows = [_row(wire, server, 1)]
    print(*(name.rjust(12) for name in ("sandboxes", *rows[0])))
    for part in range(10):
        for _ in range(AT_ONCE):
            wire.start(code, keep_session=False)
        for number in range(tenth):
            assert wire.receive()["result"]["structuredContent"]["status"] == "ok"
            if number < tenth - AT_ONCE:
                wire.start(code, keep_session=False)
        rows.append(_row(wire, server, AT_ONCE))
        print(*(str(value).rjust(12) for value in ((part + 1) * tenth, *rows[-1].values())), flush=True)
    growth = {name: (rows[-1][name] - rows[2][name]) * 10_000 // (8 * tenth) for name in ("server", "launcher")}
    left = [name for name in rows[-1] if name not in growth and rows[-1][name] > max(row[name] for row in rows[:3])]
    print("growth per 10,000:", growth, "left behind:", left or "nothing")
    return 1 if left or max(growth.values()) > GROWTH else 0


def _row(wire: Wire, server: Server, warm: int) -> Mapping[str, int]:
    """What there is, in numbers and in bytes, while so many sandboxes are warm."""
    wire.stocked(warm)
    mounts = len(Path("/proc/self/mountinfo").read_text().splitlines())
    return {**server.memory(), **server.counts(), "mounts": mounts}


if __name__ == "__main__":
    sys.exit(main())
