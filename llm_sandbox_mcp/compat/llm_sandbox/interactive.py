"""Sessions that keep the interpreter from run to run: IPython if the sandbox has it, otherwise our own runner."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .exceptions import LanguageNotSupportedError, SandboxTimeoutError, ValidationError
from .options import check_libraries, check_seconds, language_name
from .pip_lines import without_pip
from .session import SandboxSession
from .values import ConsoleOutput, Named, SandboxBackend, StreamCallback

_START = """\
def _sandbox_begin(history):
    import sys, types
    if "_sandbox_ipython" not in sys.modules:
        try:
            from IPython.core.interactiveshell import InteractiveShell
            from traitlets.config import Config
        except ImportError:
            return False
        config = Config()
        config.HistoryManager.enabled = False  # only its file; the cells of this session are still listed
        config.InteractiveShell.cache_size = max(3, history)
        config.InteractiveShell.colors = "NoColor"
        module = sys.modules["__main__"]
        shell = InteractiveShell.instance(config=config, user_module=module, user_ns=module.__dict__)
        shell.system = shell.system_raw  # the default uses a terminal, which changes line ends
        shell._showtraceback = lambda kind, error, lines: print(shell.InteractiveTB.stb2text(lines), file=sys.stderr)
        # Figures always go to our own backend, whatever backend the code selects, and `exit` ends only the cell.
        shell.enable_matplotlib = lambda gui=None: (gui, "sandbox_figures")
        shell.enable_gui = lambda gui=None: None
        shell.ask_exit = sys.exit
        def run(code):
            done = shell.run_cell(code, store_history=True)
            if isinstance(done.error_in_exec, SystemExit):
                raise SystemExit(done.error_in_exec.code)
            if not done.success:
                raise SystemExit(1)
        # Kept outside of the code's names, because `%reset` deletes those.
        sys.modules["_sandbox_ipython"] = types.SimpleNamespace(run=run)
    return True
print(_sandbox_begin(_sandbox_history))
del _sandbox_begin, _sandbox_history
"""
"""Makes IPython's shell work in the runner's own namespace; prints whether IPython is installed."""

_CELL = "__import__('_sandbox_ipython').run(_sandbox_code)"

_MAGIC = re.compile(r"^[ \t]*[%!]", re.MULTILINE)
_ADVICE = """\
magics need IPython, which this sandbox does not have; make the session with libraries=["ipython"], or add it to \
languages.python.libraries in the profile (for containers, then build images again)
"""
LOST = "the interpreter ended; variables of earlier runs are lost"
_STARTING = 30.0
"""Seconds for IPython to start."""


class KernelType(Named):
    """What runs the code."""

    IPYTHON = "ipython"
    RUNNER = "runner"
    """Our own runner, without magics."""


@dataclass(frozen=True)
class InteractiveSettings:
    """How an interactive session runs code; `timeout` is in seconds."""

    kernel_type: KernelType = KernelType.IPYTHON
    max_memory: str | None = None
    history_size: int = 1000
    timeout: float | None = 300.0
    poll_interval: float = 0.1
    """No effect: results arrive as they are there."""

    def __post_init__(self) -> None:
        check_seconds("poll_interval", self.poll_interval)
        if self.history_size < 0:
            raise ValidationError(f"history_size is {self.history_size}", "give 0 or more")


@dataclass(frozen=True)
class InteractiveOutput(ConsoleOutput):
    """The result of a run, and the kernel that ran it."""

    kernel: KernelType = KernelType.RUNNER


class InteractiveSandboxSession(SandboxSession):
    """A Python session that keeps variables from run to run and shows the value of the last line.

    Magics such as `%timeit`, `%%bash` and `!ls` come from IPython; `%pip install` installs as `install` does. A run
    that takes too long is interrupted, and its interpreter goes on.
    """

    def __init__(
        self,
        backend: SandboxBackend | str = SandboxBackend.AUTO,
        *,
        lang: str = "python",
        kernel_type: KernelType | str = KernelType.IPYTHON,
        max_memory: str | None = "1GB",
        history_size: int = 1000,
        timeout: float | None = 300.0,
        runtime_configs: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        if language_name(lang) != "python":
            raise LanguageNotSupportedError(f"{lang}: interactive sessions support only python", "use SandboxSession")
        if arguments.get("pool") is not None:
            raise ValidationError("pool: an interactive session has its own sandbox", "leave pool out")
        try:
            kernel = KernelType(kernel_type)
        except ValueError:
            known = ", ".join(KernelType)
            raise ValidationError(f"unknown kernel {kernel_type!r}", f"available: {known}") from None
        self.settings = InteractiveSettings(kernel, max_memory, history_size, timeout)
        arguments.setdefault("default_timeout", timeout)
        super().__init__(backend, lang="python", runtime_configs=runtime_configs, max_memory=max_memory, **arguments)
        self.kernel = KernelType.RUNNER
        """The kernel that runs the code, once the session is open."""
        self._ready = False

    def run(
        self,
        code: str,
        libraries: Sequence[str] | None = None,
        timeout: float | None = None,
        on_stdout: StreamCallback | None = None,
        on_stderr: StreamCallback | None = None,
    ) -> InteractiveOutput:
        """Runs code with the variables of earlier runs; the arguments and errors are those of `SandboxSession.run`."""
        self._opened()
        check_libraries(libraries)
        code, requested = without_pip(code)
        self.install([*(libraries or ()), *requested])
        if not code.strip():
            return InteractiveOutput(kernel=self.kernel)
        if not self._ready:
            self._start(code)
        with_ipython = self.kernel is KernelType.IPYTHON
        variables = {"_sandbox_code": code} if with_ipython else None
        wrap: Callable[[str], str] = (lambda _: _CELL) if with_ipython else str  # our own runner gets it as it is
        try:
            done = self._execute(code, "python", timeout, on_stdout, on_stderr, variables, wrap=wrap)
        except SandboxTimeoutError:
            self._ready = False  # the interpreter may have been killed; the next start checks whether IPython runs
            raise
        self._ready = done.session_state == "kept"
        output = self._output(done)
        shown = "" if with_ipython or done.result is None else f"{done.result}\n"
        advice = _ADVICE if not with_ipython and done.status == "error" and _MAGIC.search(code) else ""
        lost = "" if self._ready else f"{LOST}\n"
        return InteractiveOutput(
            output.exit_code, output.stderr + advice + lost, output.stdout + shown, self.kernel, notes=output.notes
        )

    def _start(self, code: str) -> None:
        """Starts IPython's shell for this code if it does not run yet; a live interpreter keeps its variables."""
        if self.settings.kernel_type is KernelType.IPYTHON:
            variables = {"_sandbox_history": self.settings.history_size}
            seconds = min(_STARTING, self._longest)
            started = self._execute(code, "python", seconds, None, None, variables, wrap=lambda _: _START, quiet=True)
            self.kernel = KernelType.IPYTHON if started.stdout.text == "True\n" else KernelType.RUNNER
        self._ready = True
