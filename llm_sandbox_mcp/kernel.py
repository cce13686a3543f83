"""The conversation with one runner: the live interpreter of one language in one sandbox."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from .backends.base import Process, Sandbox
from .backends.layout import FIGURES, HANDLERS, HOME, LIBRARIES, WORKDIR
from .backends.listening import PROXY_PORT
from .errors import SandboxLost, StartFailed
from .execution import Ending, Outcome, Run
from .languages import Language, Runner
from .protocol import encode_request, new_nonce
from .results import OnOutput

_SAID = 1 << 16
"""Bytes that a runner may print before and while it answers an empty program."""

_PROXY = {
    **dict.fromkeys(
        [form(f"{kind}_proxy") for kind in ("http", "https", "all") for form in (str.lower, str.upper)],
        f"http://127.0.0.1:{PROXY_PORT}",
    ),
    # What listens in the sandbox itself.
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
}
"""How programs find the proxy. Some read the names in lower case only, others those in upper case."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a language finds its things inside a sandbox; the placeholders of `handler.toml`."""

    language: Language
    environment: str = ""
    """Folder of the prepared environment, where the language has one."""
    tools: str = ""
    """Folder of our own tools."""
    index: str = ""
    """URL of the package index, during an installation."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What the profile sets in the environment of the language's processes."""
    memory: int = 0
    """Bytes that all processes of the sandbox may use together, for those that would go by the machine's."""
    proxied: bool = False
    """Whether its processes are told of the proxy."""

    @property
    def libraries(self) -> str:
        return f"{LIBRARIES}/{self.language.name}"

    def build_folder(self, number: int) -> str:
        """Where one program of a compiled language is built."""
        return f"{HOME}/build/{self.language.name}/{number}"

    def expand(self, text: str) -> str:
        """Fills the placeholders in one word; any other brace stays as it is."""
        places = {
            "handler": f"{HANDLERS}/{self.language.name}",
            "environment": self.environment,
            "libraries": self.libraries,
            "workdir": WORKDIR,
            "tools": self.tools,
            "index": self.index,
        }
        for name, place in places.items():
            text = text.replace("{" + name + "}", place)
        return text

    def argv(self, words: tuple[str, ...]) -> list[str]:
        """A command of the handler, its placeholders filled."""
        return [self.expand(word) for word in words]

    def env(self, path: str) -> dict[str, str]:
        """The whole environment of the language's processes in a sandbox with this search path."""
        common = {
            "PATH": f"{self.environment}/bin:{path}" if self.environment else path,
            "HOME": HOME,
            # Where nobody has told the system of the user, programs look here.
            "USER": "sandbox",
            "LOGNAME": "sandbox",
            "LANG": "C.UTF-8",
            "SANDBOX_WORKDIR": WORKDIR,
            "SANDBOX_FIGURES": FIGURES,
            "SANDBOX_LIBRARIES": self.libraries,
            "SANDBOX_MEMORY": str(self.memory),
        }
        if self.proxied:
            common |= _PROXY
        return common | {
            key: self.expand(value) for key, value in {**self.language.handler.env, **self.settings}.items()
        }


class Kernel:
    """A live runner, and what it is doing now."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._run: Run | None = None
        self.alive = True
        """Whether it can take another request."""

    @classmethod
    async def start(cls, sandbox: Sandbox, places: Places, runner: Runner) -> "Kernel":
        """Starts the runner; it need not be up yet when its first request is sent."""
        return cls(await sandbox.spawn(places.argv(runner.argv), places.env(sandbox.path)))

    async def run(
        self,
        code: str,
        *,
        cell: int,
        variables: Mapping[str, object],
        timeout: float,
        output: int,
        grace: float,
        on_output: OnOutput | None = None,
        tell: bool = False,
        last: bool = False,
    ) -> Outcome:
        """Runs code to its end; one run at a time. `tell`: the report says what the names that it bound stand for.

        `last`: the run has all that an interpreter does at its end, and nothing can be run after it.

        When this is cancelled, or raises, `alive` still says whether the runner answered the interrupt.
        """
        nonce = new_nonce()
        request = encode_request(nonce, cell, variables, code, tell=tell, last=last)
        self._run = run = Run(self._process, request, nonce, output=output, grace=grace, on_output=on_output)
        try:
            return await run.finish(timeout)
        finally:
            self._run = None
            self.alive = run.answered

    async def check(self, timeout: float) -> None:
        """Returns once the runner has answered an empty program; raises `StartFailed` when it does not in time."""
        # Without grace: one that does not answer in time is not kept.
        outcome = await self.run("", cell=0, variables={}, timeout=timeout, output=_SAID, grace=0)
        if outcome.ending != "answered":
            said = outcome.stderr.decode(errors="replace").strip().splitlines()
            raise StartFailed(
                f"the runner does not answer ({outcome.ending}): {said[-1] if said else 'it said nothing'}"
            )

    @property
    def running(self) -> bool:
        """Whether its process has not ended, which code can bring about at any time."""
        return self._process.running

    def stop(self, reason: Ending = "cancelled") -> bool:
        """Stops what runs now; false when nothing does."""
        if self._run is None:
            return False
        self._run.stop(reason)
        return True

    async def close(self) -> None:
        """Ends the runner; a sandbox that is gone has ended it already."""
        with contextlib.suppress(SandboxLost):
            await self._process.aclose()
