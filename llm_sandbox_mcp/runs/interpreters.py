"""The interpreters of one sandbox: one for each language, from its first use on."""

from collections.abc import Collection, Iterator

import anyio

from ..backends.base import Sandbox
from ..base.errors import EngineUnavailable
from ..base.results import Library
from ..languages.places import Places
from .cpu_time import cpu_bound
from .interpreter import Interpreter, start_interpreter
from .requests import RunRequest
from .run import Outcome

_OWN_OUTPUT = 1 << 16
"""Bytes that code of the server's own may print: none, unless code of the session makes it print."""

_OWN_GRACE = 10.0
"""Seconds that such code may take to stop."""


class Interpreters:
    """The live interpreters of a sandbox, and which of them have the state of a run."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._live: dict[str, Interpreter] = {}
        self.ran: set[str] = set()
        """The languages that have run something since they were refreshed, or have the state of another session."""

    def __iter__(self) -> Iterator[Interpreter]:
        return iter(list(self._live.values()))

    def __contains__(self, language: str) -> bool:
        return language in self._live

    def get(self, language: str) -> Interpreter | None:
        """The interpreter of a language, if there is one."""
        return self._live.get(language)

    def has(self, sandbox: Sandbox) -> bool:
        """Whether this is their sandbox, which has not ended."""
        return self.sandbox is sandbox and sandbox.alive

    @property
    def languages(self) -> tuple[str, ...]:
        """Those that have an interpreter."""
        return tuple(self._live)

    @property
    def used(self) -> tuple[str, ...]:
        """Those whose interpreters have the state of an earlier run."""
        return tuple(filter(self.has_run, self._live))

    def has_run(self, language: str) -> bool:
        """Whether the interpreter of a language has the state of an earlier run."""
        return language in self.ran and language in self._live and self._live[language].keeps_state

    def missed(self, language: str) -> Collection[str]:
        """The modules that the interpreter of a language looked for in vain before any code asked."""
        interpreter = self._live.get(language)
        return (interpreter.missed or ()) if interpreter is not None else ()

    async def start(self, places: Places) -> Interpreter:
        """The interpreter of a language; it is started if there is none."""
        name = places.language.name
        if name not in self._live:
            self._live[name] = await start_interpreter(self.sandbox, places)
        return self._live[name]

    async def end(self, language: str) -> None:
        """Ends the interpreter of a language, if there is one."""
        interpreter = self._live.pop(language, None)
        if interpreter is not None:
            await interpreter.close()

    async def remove_ended(self) -> list[str]:
        """Removes the interpreters that have ended by themselves; returns their languages."""
        ended = [name for name, interpreter in self._live.items() if not interpreter.running]
        for name in ended:
            await self.end(name)
        return ended

    async def refresh(self, places: Places) -> None:
        """Starts an interpreter of a language that has run nothing yet; one that keeps no state stays."""
        if self.has_run(places.language.name):
            await self.end(places.language.name)
        await self.start(places)
        self.ran.discard(places.language.name)

    async def restart(self) -> None:
        """Ends those that keep state."""
        for name, interpreter in list(self._live.items()):
            if interpreter.keeps_state:
                await self.end(name)
        self.ran.clear()

    async def use_libraries(self, language: str, installed: tuple[Library, ...]) -> None:
        """Takes note of the libraries that are installed in the sandbox now.

        An interpreter that has preloaded modules, and run nothing, ends: they may be other ones now, or do more with
        the new libraries.
        """
        interpreter = self._live.get(language)
        if interpreter is not None and interpreter.missed is not None and language not in self.ran:
            await self.end(language)
        elif interpreter is not None:
            interpreter.use_libraries(installed)
        self.sandbox.zygote = None  # whose modules are the same

    async def act(self, places: Places, code: str, timeout: float) -> Outcome:
        """Runs code of the server's own in the interpreter of a language, such as what saves its variables.

        This is no run of a session, but has the limits of one. An interpreter that does not answer in time is lost.
        """
        name, policy = places.language.name, self.sandbox.policy
        timeout = min(timeout, policy.timeout)
        before = await self.sandbox.usage()
        interpreter = await self.start(places)
        # Killing it would cost variables, and some languages cannot stop in the middle of saving them.
        grace = max(policy.grace, _OWN_GRACE)
        request = RunRequest(code, timeout=timeout, output=_OWN_OUTPUT, grace=grace)
        async with cpu_bound(self.sandbox, before, policy, timeout, lambda: interpreter.stop("cpu_limit")):
            outcome = await interpreter.run(request, cell=0)
        if outcome.silence:
            raise EngineUnavailable(*outcome.silence)
        if not outcome.alive and outcome.ending != "lost":
            with anyio.CancelScope(shield=True):
                await self.end(name)
        return outcome
