"""Moves the variables of one session into another, as a handler folder's `[state]` says."""

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field

from llm_sandbox_mcp import Sandboxes, Session

FOLDER = "/sandbox/saved"


@dataclass(frozen=True)
class Report:
    """What a handler wrote about what it saved or opened."""

    kept: int
    lost: dict[str, tuple[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Snippets:
    """The code that saves and opens, with the placeholders of `handler.toml`."""

    language: str
    save: str
    open: str

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
    lost = {name: (kind, reason) for word, name, kind, reason in (line for line in lines if line[0] == "lost")}
    return Report(int(lines[-1][1]), lost, tuple(line[1] for line in lines if line[0] == "note"))


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
