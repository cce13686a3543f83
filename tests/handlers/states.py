"""Moves the variables of one session into another, as a handler folder's `[state]` says."""

import io
import tarfile
import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from llm_sandbox_mcp import Execution, Sandboxes, Session
from llm_sandbox_mcp.host.folders import HANDLERS
from tests.engines import need, small_profile

FOLDER = "/sandbox/saved"


@dataclass(frozen=True)
class Report:
    """What a handler wrote about what it saved or opened."""

    kept: int
    lost: dict[str, tuple[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Snippets:
    """The code that saves and opens, with the placeholders of `handler.toml`."""

    language: str
    save: str
    open: str

    @classmethod
    def of(cls, language: str) -> "Snippets":
        state = tomllib.loads((HANDLERS / language / "handler.toml").read_text())["state"]
        return cls(language, state["save"], state["open"])

    def filled(self, code: str) -> str:
        return code.replace("{folder}", FOLDER).replace("{handler}", f"/opt/handlers/{self.language}")


async def run(session: Session, code: str) -> str | None:
    """The result of code that must succeed."""
    ran = await session.run(code)
    assert ran.status == "ok", ran
    return ran.result


async def save(session: Session, snippets: Snippets) -> Report:
    """Saves the variables of a session in its folder; the code that does it says nothing."""
    await session.make_folder("saved")
    ran = await session.run(snippets.filled(snippets.save))
    assert (ran.status, ran.stdout.text, ran.stderr.text, ran.result) == ("ok", "", "", None), ran
    return await report(session)


async def carry(one: Session, other: Session) -> None:
    """Copies what one session has saved into another."""
    with tarfile.open(fileobj=io.BytesIO(await one.pack("saved"))) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            if file is not None:
                await other.write(member.name, file.read())


async def opened(session: Session, snippets: Snippets) -> Report:
    """Opens what is in the folder of a session."""
    ran = await session.run(snippets.filled(snippets.open))
    assert (ran.status, ran.stdout.text, ran.stderr.text, ran.result) == ("ok", "", "", None), ran
    return await report(session)


async def report(session: Session) -> Report:
    lines = [line.split("\t") for line in (await session.read("saved/report")).decode().splitlines()]
    assert lines[-1][0] == "kept", lines
    assert {line[0] for line in lines[:-1]} <= {"lost", "note"}, lines
    lost = {line[1]: (line[2], line[3]) for line in lines if line[0] == "lost"}
    return Report(int(lines[-1][1]), lost, [line[1] for line in lines if line[0] == "note"])


async def move(
    sandboxes: Sandboxes, snippets: Snippets, cells: Sequence[str], looks: Sequence[str]
) -> tuple[Report, Report, list[str | None]]:
    """Runs cells in one session, and in another one that has its variables runs others; returns both reports, and results."""
    async with (
        sandboxes.session(language=snippets.language) as one,
        sandboxes.session(language=snippets.language) as other,
    ):
        for cell in cells:
            await run(one, cell)
        before = await save(one, snippets)
        await carry(one, other)
        after = await opened(other, snippets)
        return before, after, [await run(other, look) for look in looks]


@dataclass
class Pair:
    """A session that is saved, and one in which it is opened."""

    snippets: Snippets
    first: Session
    second: Session

    async def run(self, code: str) -> Execution:
        """Runs code that must not fail in the first session."""
        return await _ran(self.first, code)

    async def then(self, code: str) -> Execution:
        """Runs code that must not fail in the second session."""
        return await _ran(self.second, code)

    async def save(self) -> Report:
        return await save(self.first, self.snippets)

    async def carry(self) -> None:
        """Takes what was saved into the second session."""
        await carry(self.first, self.second)

    async def open(self) -> Report:
        return await opened(self.second, self.snippets)

    async def move(self) -> tuple[Report, Report]:
        """Saves, carries and opens."""
        before = await self.save()
        await self.carry()
        return before, await self.open()


async def _ran(session: Session, code: str) -> Execution:
    ran = await session.run(code)
    assert ran.status == "ok", ran.stderr.text
    return ran


@asynccontextmanager
async def pair(language: str, folder: Path, **limits: float) -> AsyncIterator[Pair]:
    """Two sessions in a language; the first has these limits."""
    await need("embedded")
    async with (
        Sandboxes(small_profile("embedded", folder)) as sandboxes,
        sandboxes.session(language, limits=limits) as first,
        sandboxes.session(language) as second,
    ):
        yield Pair(Snippets.of(language), first, second)
