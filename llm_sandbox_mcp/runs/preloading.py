"""Imports modules in an interpreter before any code asks for them, and finds out which it had better not import."""

from collections.abc import Sequence

from ..base.errors import EngineUnavailable, SandboxLost
from ..base.results import Preload
from ..base.text import one_line
from ..base.units import format_size
from .interpreter import Interpreter
from .requests import RunRequest
from .run import Outcome

PATIENCE = 60.0
"""Seconds for the import of one module."""
_OUTPUT = 1 << 16
"""Bytes that an import may print until it is stopped; a module that prints any is not imported ahead."""
_LONGEST = 200
"""Characters of an error of a module."""
_LOST = "importing it ended the sandbox"


async def preload(
    interpreter: Interpreter, modules: Sequence[str], avoided: dict[str, str], memory: int
) -> Preload | None:
    """Imports modules, one after the other, in an interpreter that has run no code, in a sandbox of its own.

    `avoided` maps modules that are not imported to the reasons. If something goes wrong with a module, it is added, and
    the result is None: nobody knows what it left, so the sandbox is of no use. All are added if they take more than
    half of `memory`, in bytes. Raises `EngineUnavailable` if the engine is silent.
    """
    loaded, missing = list[str](), dict[str, str]()
    seconds, taken = 0.0, 0
    interpreter.missed = frozenset()
    for module in dict.fromkeys(modules):
        if module in avoided:
            continue
        # Without grace: an interpreter whose import is broken off is not kept.
        request = RunRequest("", timeout=PATIENCE, output=_OUTPUT, grace=0, preload=module)
        try:
            outcome = await interpreter.run(request, cell=0)
        except SandboxLost:
            avoided[module] = _LOST
            return None
        if outcome.silence:
            raise EngineUnavailable(*outcome.silence)
        if outcome.report is not None and (found := outcome.report.preloaded) is not None and found.missing:
            missing[module] = "it is not installed"
            continue
        if problem := _problem(outcome):
            avoided[module] = problem
            return None
        assert outcome.report is not None and outcome.report.preloaded is not None  # otherwise there is a problem
        loaded.append(module)
        seconds += outcome.duration
        taken += outcome.report.preloaded.memory
        interpreter.missed |= set(outcome.report.preloaded.missed)
        if not fits(taken, memory):
            reason = f"more than half of the {format_size(memory)} that a sandbox has would be gone"
            avoided.update({one: reason for one in modules if one not in avoided})
            return None
    return Preload(tuple(loaded), {**avoided, **missing}, round(seconds, 3), taken)


def fits(taken: int, memory: int) -> bool:
    """Whether modules that take so many bytes leave enough of the memory that a sandbox has."""
    return taken * 2 <= memory


def _problem(outcome: Outcome) -> str:
    """Why a module is not imported ahead; empty if it is."""
    if outcome.ending == "lost":
        return _LOST
    if outcome.ending == "timeout":
        return f"importing it takes longer than {PATIENCE:g} s"
    if outcome.ending == "exited":
        return f"importing it ends the interpreter with exit code {outcome.exit_code}"
    if outcome.report is not None and outcome.report.exit_code:
        lines = outcome.stderr.decode(errors="replace").strip().splitlines()
        return f"importing it fails: {one_line(lines[-1])[:_LONGEST]}" if lines else "importing it fails"
    if outcome.stdout or outcome.stderr:
        return "it prints when it is imported"
    found = outcome.report.preloaded if outcome.report is not None else None
    if found is None or not outcome.alive:
        return "importing it ends too early"
    return f"importing it starts {found.starts}" if found.starts else ""
