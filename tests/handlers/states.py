"""Saves the variables of one session and opens them in another, as the server does: with the snippets of a handler."""

import io
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from llm_sandbox_mcp import Execution, Sandboxes, Session
from tests.engines import need, small_profile

SNIPPETS = {
    "bash": (
        "builtin jobs -r >|{folder}/jobs; builtin jobs -s >>{folder}/jobs; "
        '(builtin source {handler}/state.sh save {handler} {folder} "$@") >/dev/null 2>&1',
        'builtin source {handler}/state.sh open {handler} {folder} >/dev/null 2>&1; builtin eval "$__sandbox_state_rest"',
    ),
    "ruby": (
        "::Kernel.require('{handler}/state.rb'); ::Sandbox::State.save('{folder}')",
        "::Kernel.require('{handler}/state.rb'); ::Sandbox::State.open('{folder}')",
    ),
}
"""The code that saves, and the code that opens."""


@dataclass(frozen=True)
class Report:
    """The file that both write."""

    lost: dict[str, tuple[str, str]]
    """The type and the reason, by the name."""
    notes: list[str]
    kept: int

    @classmethod
    def read(cls, content: bytes) -> "Report":
        *lines, last = [line.split("\t") for line in content.decode().splitlines()]
        assert last[0] == "kept"
        assert {line[0] for line in lines} <= {"lost", "note"}
        lost = {line[1]: (line[2], line[3]) for line in lines if line[0] == "lost"}
        return cls(lost, [line[1] for line in lines if line[0] == "note"], int(last[1]))


@dataclass
class Pair:
    """A session that is saved, and one in which it is opened."""

    language: str
    first: Session
    second: Session

    async def run(self, code: str) -> Execution:
        """Runs code that must not fail in the first session."""
        ran = await self.first.run(code)
        assert ran.status == "ok", ran.stderr.text
        return ran

    async def then(self, code: str) -> Execution:
        """Runs code that must not fail in the second session."""
        ran = await self.second.run(code)
        assert ran.status == "ok", ran.stderr.text
        return ran

    async def save(self) -> Report:
        await self.first.make_folder("saved")
        await self._snippet(self.first, 0)
        return Report.read(await self.first.read("saved/report"))

    async def carry(self) -> None:
        """Takes what was saved into the second session."""
        with tarfile.open(fileobj=io.BytesIO(await self.first.pack("saved"))) as archive:
            for member in archive:
                if (file := archive.extractfile(member)) and not member.name.endswith("/report"):
                    await self.second.write(member.name, file.read())

    async def open(self) -> Report:
        await self._snippet(self.second, 1)
        return Report.read(await self.second.read("saved/report"))

    async def move(self) -> tuple[Report, Report]:
        """Saves, carries and opens."""
        saved = await self.save()
        await self.carry()
        opened = await self.open()
        return saved, opened

    async def _snippet(self, session: Session, which: int) -> None:
        code = SNIPPETS[self.language][which]
        code = code.replace("{folder}", "/sandbox/saved").replace("{handler}", f"/opt/handlers/{self.language}")
        ran = await session.run(code)
        assert (ran.status, ran.stdout.text, ran.stderr.text, ran.result) == ("ok", "", "", None), ran


@asynccontextmanager
async def pair(language: str, folder: Path, **limits: float) -> AsyncIterator[Pair]:
    await need("embedded")
    async with (
        Sandboxes(small_profile("embedded", folder)) as sandboxes,
        sandboxes.session(language, limits=limits) as first,
        sandboxes.session(language) as second,
    ):
        yield Pair(language, first, second)
