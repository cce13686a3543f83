"""python -m tests.soak --backend docker --minutes 30: lets clients use a server in every way, and prints its usage.

Prints a line after each tenth of the time, and the growth at the end; exits with 1 if an answer was wrong, or if
anything has grown with the number of runs.
"""

import argparse
import sys
from functools import partial

import anyio

from llm_sandbox_mcp.backends import BACKENDS

from .serving import available, served
from .soaking import Part, grown, rates, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--backend", choices=BACKENDS, default="embedded")
    parser.add_argument("--minutes", type=float, default=10.0, help="duration (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random order of jobs (default: %(default)s)")
    options = parser.parse_args()
    parts = anyio.run(partial(_run, options.backend, options.minutes * 60, options.seed))
    print("growth per 10,000 runs:", ", ".join(f"{name} {rate}" for name, rate in rates(parts).items()))
    found = grown(parts, options.backend)
    print(*found, sep="\n")
    return 1 if found else 0


async def _run(backend: str, seconds: float, seed: int) -> list[Part]:
    parts: list[Part] = []
    languages = available(backend)
    with served(backend) as server:
        print(
            f"{backend}, several users at once, with {len(languages)} languages in addition to Python:",
            ", ".join(languages),
        )
        async for part in soak(server, languages, seconds, seed=seed):
            row = part.row()
            if not parts:
                print(*(name.rjust(12) for name in row))
            print(*(cell.rjust(max(12, len(name))) for name, cell in row.items()), flush=True)
            parts.append(part)
    return parts


if __name__ == "__main__":
    sys.exit(main())
