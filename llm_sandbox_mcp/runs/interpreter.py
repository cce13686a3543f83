"""What runs code of one language in one sandbox."""

from typing import Protocol

from ..backends.base import Sandbox
from ..errors import StartFailed
from ..places import Places
from ..results import Library
from .execution import Ending, Outcome
from .kernel import Kernel
from .program import Program
from .requests import RunRequest


class Interpreter(Protocol):
    """A live runner, a `Kernel`, or builds of programs, a `Program`."""

    alive: bool
    """Whether it can take another request."""
    keeps_state: bool
    """Whether a run finds what an earlier one left in it, such as variables."""

    @property
    def running(self) -> bool:
        """Whether it has not ended, which code can bring about at any time."""

    async def run(self, request: RunRequest, cell: int) -> Outcome:
        """Runs code to its end, as the session's run of that number; one at a time.

        When this is cancelled, or raises, `alive` still says whether the code answered the interrupt.
        """

    async def check(self, timeout: float) -> None:
        """Returns once it could run code; raises `StartFailed` or `SandboxLost` if not within so many seconds."""

    def use_libraries(self, installed: tuple[Library, ...]) -> None:
        """Takes note of the libraries that the session has now."""

    def stop(self, reason: Ending = "cancelled") -> bool:
        """Stops what runs now; false when nothing does."""

    async def close(self) -> None:
        """Ends it."""


async def start_interpreter(sandbox: Sandbox, places: Places) -> Interpreter:
    """The interpreter of a language in a sandbox; it need not be up yet when it is first asked for something.

    Raises `StartFailed` when the sandbox lacks a program that the language needs.
    """
    handler = places.language.handler
    if lacking := await sandbox.lacking(handler.requires.commands, places.env(sandbox.path)):
        step = handler.requires.install or "install it"
        if sandbox.image:
            step = f"use a session of its own for {handler.name}, or make its image: llm-sandbox-mcp images build"
            if handler.environment is not None:
                step += ", or say where it is: containers.environment, or kubernetes.environment, in the profile"
        raise StartFailed(f"{handler.name} needs {', '.join(lacking)}, which {sandbox.origin} does not have", step)
    if handler.build is not None:
        return Program(sandbox, places, handler.build)
    assert handler.runner is not None  # the handler's model has one of the two
    return await Kernel.start(sandbox, places, handler.runner)
