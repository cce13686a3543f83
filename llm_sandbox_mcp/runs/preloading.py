"""Imports modules in an interpreter before any code asks for them, and finds out which it had better not import."""

from collections.abc import Awaitable, Callable, Sequence

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


async def preload(
    interpreter: Interpreter,
    start: Callable[[], Awaitable[Interpreter]],
    modules: Sequence[str],
    avoided: dict[str, str],
    memory: int,
) -> tuple[Interpreter, Preload]:
    """Imports modules, one after the other, in an interpreter that has run no code.

    `avoided` maps modules that are not imported to the reasons, and gets those with which something went wrong: they
    leave an interpreter that is of no use, so `start` starts another one, which is returned instead. If the modules
    take more than half of `memory`, in bytes, none is imported. Raises `EngineUnavailable` if the engine is silent,
    and `SandboxLost` if a module ended the whole sandbox; it is avoided from then on.
    """
    while True:
        loaded, missing = list[str](), dict[str, str]()
        seconds, taken = 0.0, 0
        for module in modules:
            if module in avoided:
                continue
            outcome = await _import(interpreter, module, avoided)
            found = outcome.report.preloaded if outcome.report is not None else None
            if found is not None and found.missing:
                missing[module] = "it is not installed"
                continue
            problem = _problem(outcome)
            if found is None or problem:
                avoided[module] = problem or "its interpreter does not report on it"
                break
            loaded.append(module)
            seconds += outcome.duration
            taken += found.memory
            interpreter.missed = frozenset((*(interpreter.missed or ()), *found.missed))
            if taken * 2 > memory:
                reason = f"it takes more than half of the {format_size(memory)} that a sandbox has"
                avoided.update(dict.fromkeys(modules, reason))
                break
        else:
            return interpreter, Preload(tuple(loaded), {**avoided, **missing}, round(seconds, 3), taken)
        await interpreter.close()
        interpreter = await start()


async def _import(interpreter: Interpreter, module: str, avoided: dict[str, str]) -> Outcome:
    lost = f"importing it ended the sandbox within {PATIENCE:g} s"
    try:
        # Without grace: an interpreter whose import is broken off is not kept.
        request = RunRequest("", timeout=PATIENCE, output=_OUTPUT, grace=0, preload=module)
        outcome = await interpreter.run(request, cell=0)
    except SandboxLost:
        avoided[module] = lost
        raise
    if outcome.silence:
        raise EngineUnavailable(*outcome.silence)
    if outcome.ending == "lost":
        avoided[module] = lost
        raise SandboxLost(f"a sandbox ended while {module} was imported")
    return outcome


def _problem(outcome: Outcome) -> str:
    """Why an interpreter that was to import a module is of no use; empty if it is."""
    if outcome.ending == "timeout":
        return f"importing it takes longer than {PATIENCE:g} s"
    if outcome.ending == "exited":
        return f"importing it ends the interpreter with exit code {outcome.exit_code}"
    if outcome.report is not None and outcome.report.exit_code:
        lines = outcome.stderr.decode(errors="replace").strip().splitlines()
        return f"importing it fails: {one_line(lines[-1])[:_LONGEST]}" if lines else "importing it fails"
    if outcome.stdout or outcome.stderr:
        return "it prints when it is imported"
    return "" if outcome.alive else f"importing it ended with {outcome.ending}"
