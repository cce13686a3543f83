"""The demo of `make run`: a client has the server analyse a table in three languages, over MCP on stdio."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.shared.dispatcher import ProgressFnT

from llm_sandbox_mcp.cli.console import table

TABLE = Path(__file__).parent / "data" / "penguins.csv"
OUT = Path("out").absolute()


@dataclass(frozen=True, slots=True)
class Step:
    """One run of the analysis."""

    title: str
    language: str
    code: str


STEPS = (
    Step(
        "read the table",
        "python",
        """
penguins = pandas.read_csv("penguins.csv").dropna()
f"{len(penguins)} complete rows of {penguins['species'].nunique()} species"
""",
    ),
    Step(
        "what goes with weight",
        "python",
        """
weight = penguins[["bill_length_mm", "bill_depth_mm", "flipper_length_mm"]].corrwith(penguins["body_mass_g"])
f"{weight.idxmax()}, correlation {weight.max():.2f}"
""",
    ),
    Step(
        "draw it",
        "python",
        """
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 4))
for species, birds in penguins.groupby("species"):
    axes.scatter(birds[weight.idxmax()], birds["body_mass_g"], s=12, label=species)
axes.set(xlabel=weight.idxmax(), ylabel="body_mass_g", title="Penguins")
axes.legend()
figure.savefig("penguins.png", dpi=120)
plt.close(figure)
f"penguins.png, {len(axes.collections)} species"
""",
    ),
    Step(
        "heaviest bird of each island",
        "javascript",
        """
const rows = require('fs').readFileSync('penguins.csv', 'utf8').trim().split('\\n').map(line => line.split(','));
const head = rows.shift();
const heaviest = {};
for (const line of rows) {
  const island = line[head.indexOf('island')];
  const grams = Number(line[head.indexOf('body_mass_g')]);
  if (grams) heaviest[island] = Math.max(heaviest[island] ?? 0, grams);
}
Object.entries(heaviest).map(([island, grams]) => `${island} ${grams} g`).join(', ')
""",
    ),
    Step(
        "birds of each species",
        "bash",
        """
tail -n +2 penguins.csv | cut -d, -f1 | sort | uniq -c | awk '{printf "%s%s %s", s, $2, $1; s = ", "} END {print ""}'
""",
    ),
)


async def main() -> None:
    """Runs the analysis, writes the figure and prints what ran."""
    OUT.mkdir(exist_ok=True)
    # Pass on the whole environment: downloads of libraries may need the proxy and certificates of this machine.
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "llm_sandbox_mcp", "serve", "--folder", str(TABLE.parent), "--folder", f"{OUT}:rw"],
        env=dict(os.environ),
    )
    rows: list[tuple[str, str, str, str]] = []
    async with Client(server) as client:
        # The first call opens the session. On a new machine it also prepares Python's libraries, which takes a while.
        opened, spent = await call(
            client, "execute_code", code="import pandas\npandas.__version__", progress=show_progress
        )
        session_id = opened["session_id"]
        rows.append(("open a session", "python", spent, f"pandas {plain(opened['result'])}"))

        _, spent = await call(client, "copy_file", session_id=session_id, path="penguins.csv", host_path=str(TABLE))
        rows.append(("copy the table in", "", spent, f"{TABLE.stat().st_size} bytes"))

        for step in STEPS:
            ran, spent = await call(
                client, "execute_code", code=step.code, language=step.language, session_id=session_id
            )
            rows.append((step.title, step.language, spent, plain(ran["result"] or ran["stdout"])))

        saved, spent = await call(
            client, "get_artifacts", session_id=session_id, names=["penguins.png"], save_to=str(OUT)
        )
        rows.append(("save the figure", "", spent, ", ".join(saved["saved"])))

        await call(client, "manage_session", action="close", session_id=session_id)
    print(table(("step", "language", "took", "found"), rows))
    print("\nEvery run was in one isolated sandbox, which is gone now.")


async def call(
    client: Client, tool: str, *, progress: ProgressFnT | None = None, **arguments: Any
) -> tuple[dict[str, Any], str]:
    """Calls a tool; returns its structured answer and how long it took."""
    start = time.perf_counter()
    result = await client.call_tool(tool, arguments, progress_callback=progress)
    spent = time.perf_counter() - start
    answer = result.structured_content or {}
    if result.is_error or answer.get("status", "ok") != "ok":
        sys.exit("\n".join(getattr(part, "text", "") for part in result.content))
    return answer, f"{spent * 1000:.1f} ms"


async def show_progress(progress: float, total: float | None, message: str | None) -> None:
    """Prints the messages that the server sends during a call, such as that it prepares libraries."""
    sys.stderr.write(message or "")


def plain(text: str) -> str:
    """Returns a printed value, without quotes if it is a string."""
    return text.strip().strip("'")


if __name__ == "__main__":
    anyio.run(main)
