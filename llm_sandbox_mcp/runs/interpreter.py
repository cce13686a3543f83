"""The interface of everything that runs code of one language in one sandbox."""

from typing import Protocol

from ..backends.base import Sandbox
from ..base.errors import StartFailed
from ..base.messages import Problem
from ..base.results import Library
from ..languages.places import Places
from .kernel import Kernel
from .program import Program
from .requests import RunRequest
from .run import Ending, Outcome


class Interpreter(Protocol):
    """Runs code, either in a live runner (`Kernel`) or as programs that it builds (`Program`)."""

    alive: bool
    """Whether it can take another request."""
    keeps_state: bool
    """Whether a run finds the state that an earlier run left, such as variables."""
    missed: frozenset[str] | None
    """The modules for which those looked in vain that it imported before any code asked; None if it imported none."""

    @property
    def running(self) -> bool:
        """Whether it has not ended; code can end it at any time."""

    @property
    def silence(self) -> Problem | None:
        """Why its last run is cut off: the engine passed nothing on; None if it did."""

    async def catch_up(self) -> None:
        """Asks the engine again after such a run, and stops the code; then `silence` and `alive` say what came of it.

        It is not `alive` if it cannot be used again.
        """

    async def run(self, request: RunRequest, cell: int) -> Outcome:
        """Runs code to its end, one run at a time; `cell` is the number of the run in its session.

        If this is cancelled, or raises, `alive` still shows whether the code answered the interrupt.
        """

    async def check(self, timeout: float) -> None:
        """Returns once it can run code; raises `StartFailed` or `SandboxLost` if it cannot within `timeout` seconds."""

    def use_libraries(self, installed: tuple[Library, ...]) -> None:
        """Takes note of the libraries that the session has now."""

    def stop(self, reason: Ending = "cancelled") -> bool:
        """Stops the current run; returns false if there is none."""

    async def close(self) -> None:
        """Ends the interpreter."""


async def start_interpreter(sandbox: Sandbox, places: Places) -> Interpreter:
    """Starts the interpreter of a language in a sandbox; it takes requests even before it is up.

    Raises `StartFailed` if a program that the language needs is missing in the sandbox.
    """
    handler = places.language.handler
    if missing := await sandbox.lacking(handler.requires.commands, places.env(sandbox.path)):
        step = handler.requires.install or "install it"
        if sandbox.image:
            step = f"use a separate session for {handler.name}, or build its image: llm-sandbox-mcp images build"
            if handler.environment is not None:
                step += ", or set its folder in the profile: containers.environment or kubernetes.environment"
        raise StartFailed(f"{handler.name} needs {', '.join(missing)}, which {sandbox.origin} does not have", step)
    if handler.build is not None:
        return Program(sandbox, places, handler.build)
    assert handler.runner is not None  # the handler's model requires one of the two
    return await Kernel.start(sandbox, places, handler.runner)
