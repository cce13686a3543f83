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
from mcp.types import CallToolResult, ImageContent

from llm_sandbox_mcp.cli.console import table

from .conversation import Exchange, draw

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
sizes = penguins[["bill_length_mm", "bill_depth_mm", "flipper_length_mm"]]
weight = sizes.corrwith(penguins["body_mass_g"])
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
    grams = birds["body_mass_g"]
    axes.scatter(birds[weight.idxmax()], grams, s=12, label=species)
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
const text = require('fs').readFileSync('penguins.csv', 'utf8').trim();
const [head, ...rows] = text.split('\\n').map(line => line.split(','));
const heaviest = {};
for (const row of rows) {
  const island = row[head.indexOf('island')];
  const grams = Number(row[head.indexOf('body_mass_g')]);
  heaviest[island] = Math.max(heaviest[island] ?? 0, grams || 0);
}
Object.entries(heaviest).map(words => words.join(' ') + ' g').join(', ')
""",
    ),
    Step(
        "birds of each species",
        "bash",
        """
tail -n +2 penguins.csv | cut -d, -f1 | sort | uniq -c |
  awk '{printf "%s%s %s", s, $2, $1; s = ", "} END {print ""}'
""",
    ),
)


async def main() -> None:
    """Runs the analysis, writes the figure and a picture of the conversation, and prints what ran."""
    OUT.mkdir(exist_ok=True)
    # Pass on the whole environment: downloads of libraries may need the proxy and certificates of this machine.
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "llm_sandbox_mcp", "serve", "--folder", str(TABLE.parent), "--folder", f"{OUT}:rw"],
        env=dict(os.environ),
    )
    rows: list[tuple[str, str, str, str]] = []
    exchanges: list[Exchange] = []
    async with Client(server) as client:
        # The first call opens the session. On a new machine it also prepares Python's libraries, which takes a while.
        result, spent = await call(
            client, "execute_code", code="import pandas\npandas.__version__", progress=show_progress
        )
        opened = answer(result)
        session_id = opened["session_id"]
        rows.append(("open a session", "python", spent, f"pandas {plain(opened['result'])}"))

        _, spent = await call(client, "copy_file", session_id=session_id, path="penguins.csv", host_path=str(TABLE))
        rows.append(("copy the table in", "", spent, f"{TABLE.stat().st_size} bytes"))

        for step in STEPS:
            result, spent = await call(
                client, "execute_code", code=step.code, language=step.language, session_id=session_id
            )
            ran = answer(result)
            found = plain(ran["result"] or ran["stdout"])
            rows.append((step.title, step.language, spent, found))
            kind = "result" if ran["result"] else "stdout"
            exchanges.append(Exchange(f"execute_code, {step.language}", step.code, kind, found, figure(result)))

        result, spent = await call(
            client, "get_artifacts", session_id=session_id, names=["penguins.png"], save_to=str(OUT)
        )
        rows.append(("save the figure", "", spent, ", ".join(answer(result)["saved"])))

        await call(client, "manage_session", action="close", session_id=session_id)
    picture = OUT / "session.svg"
    picture.write_text(draw(exchanges), encoding="utf-8")
    print(table(("step", "language", "took", "found"), rows))
    print(f"\nEvery run was in one isolated sandbox, which is gone now. {picture} shows what was said.")


async def call(
    client: Client, tool: str, *, progress: ProgressFnT | None = None, **arguments: Any
) -> tuple[CallToolResult, str]:
    """Calls a tool; returns what a host gets, and how long it took."""
    start = time.perf_counter()
    result = await client.call_tool(tool, arguments, progress_callback=progress)
    spent = time.perf_counter() - start
    if result.is_error or answer(result).get("status", "ok") != "ok":
        sys.exit("\n".join(getattr(part, "text", "") for part in result.content))
    return result, f"{spent * 1000:.1f} ms"


def answer(result: CallToolResult) -> dict[str, Any]:
    """The structured answer of a tool."""
    return result.structured_content or {}


def figure(result: CallToolResult) -> str:
    """The first picture that a model sees in an answer; nothing if there is none."""
    return next((part.data for part in result.content if isinstance(part, ImageContent)), "")


async def show_progress(progress: float, total: float | None, message: str | None) -> None:
    """Prints the messages that the server sends during a call, such as that it prepares libraries."""
    sys.stderr.write(message or "")


def plain(text: str) -> str:
    """Returns a printed value, without quotes if it is a string."""
    return text.strip().strip("'")


if __name__ == "__main__":
    anyio.run(main)
