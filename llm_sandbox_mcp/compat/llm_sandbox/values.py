"""Arguments and results of programs: LLM Sandbox's names for languages, backends, results and figures."""

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum, StrEnum

from ...base.results import Execution, Output

StreamCallback = Callable[[str], object]
"""Receives text as code prints it, in the thread that waits for the run. An exception in it stops the run."""


class Named(StrEnum):
    """Names that are accepted in upper and lower case."""

    @classmethod
    def _missing_(cls, value: object) -> "Named | None":
        return next((one for one in cls if isinstance(value, str) and one.value == value.lower()), None)


class SupportedLanguage(Named):
    """The included languages; any other language that a handler defines is named by a string."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"
    JAVA = "java"
    CPP = "cpp"
    GO = "go"
    R = "r"
    RUBY = "ruby"
    BASH = "bash"


class SandboxBackend(Named):
    """Engines that can make sandboxes."""

    AUTO = "auto"
    EMBEDDED = "embedded"
    BUBBLEWRAP = "bubblewrap"
    """The same as `EMBEDDED`."""
    DOCKER = "docker"
    PODMAN = "podman"
    KUBERNETES = "kubernetes"
    MICROMAMBA = "micromamba"
    """Docker, with each command run in an environment of micromamba."""


class FileType(Enum):
    """Formats of figures and files."""

    PNG = "png"
    JPEG = "jpeg"
    SVG = "svg"
    PDF = "pdf"
    HTML = "html"
    CSV = "csv"
    JSON = "json"
    TXT = "txt"


@dataclass(frozen=True)
class PlotOutput:
    """A figure."""

    format: FileType
    content_base64: str
    width: int | None = None
    """In pixels, like `height`; None if unknown."""
    height: int | None = None
    dpi: int | None = None


@dataclass(frozen=True)
class ConsoleOutput:
    """The result of a run or a command."""

    exit_code: int = 0
    stderr: str = ""
    stdout: str = ""
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    """Notes on the run: state that was lost, files that were not kept, warnings of rules."""

    def success(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    def to_json(self, include_plots: bool = False) -> str:
        """The result as JSON; figures only on request, because they are large."""
        values = asdict(self)
        if not include_plots:
            values.pop("plots", None)
        return json.dumps(values, indent=2, default=lambda value: value.value)

    def text(self) -> str:
        """The standard output; deprecated name of `stdout`."""
        warnings.warn("text() is deprecated; use stdout", DeprecationWarning, stacklevel=2)
        return self.stdout


@dataclass(frozen=True)
class ExecutionResult(ConsoleOutput):
    """The result of a run, and the figures that it made."""

    plots: list[PlotOutput] = field(default_factory=list)


def output(done: Execution, errors: str) -> ConsoleOutput:
    """The outputs and the exit code of a run; `errors` is the error handler of `bytes.decode` for invalid UTF-8."""
    return ConsoleOutput(done.exit_code, _stderr(done, errors), _text(done.stdout, errors), notes=done.notes)


def _stderr(done: Execution, errors: str) -> str:
    """What code wrote to standard error, followed by the reason if it was stopped."""
    text = _text(done.stderr, errors)
    if done.status in ("ok", "error"):
        return text
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}{': '.join(filter(None, (done.status, '; '.join(done.notes))))}\n"


def can_decode(errors: object) -> bool:
    """Whether `bytes.decode` accepts this error handler."""
    try:
        b"\xff".decode(errors=errors)  # type: ignore[arg-type]
    except UnicodeDecodeError:
        return True
    except (LookupError, TypeError):  # some handlers are only for encoding
        return False
    return True


def _text(printed: Output, errors: str) -> str:
    return printed.text if printed.raw is None else printed.raw.decode(errors=errors)
