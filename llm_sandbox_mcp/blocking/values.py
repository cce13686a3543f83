"""What programs give and get: LLM Sandbox's names for languages, backends, results and figures."""

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum, StrEnum

StreamCallback = Callable[[str], object]
"""Receives text as code prints it; called in the thread that waits for the run. What it raises stops the run."""


class Named(StrEnum):
    """Names that are found in any case."""

    @classmethod
    def _missing_(cls, value: object) -> "Named | None":
        return next((one for one in cls if isinstance(value, str) and one.value == value.lower()), None)


class SupportedLanguage(Named):
    """Languages that come along; any other that a handler defines is named by its string."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"
    JAVA = "java"
    CPP = "cpp"
    GO = "go"
    R = "r"
    RUBY = "ruby"
    BASH = "bash"


class SandboxBackend(Named):
    """Engines that sandboxes can be made on."""

    AUTO = "auto"
    EMBEDDED = "embedded"
    BUBBLEWRAP = "bubblewrap"
    """The same as `EMBEDDED`."""
    DOCKER = "docker"
    PODMAN = "podman"
    KUBERNETES = "kubernetes"
    MICROMAMBA = "micromamba"
    """Docker, each command run in an environment of micromamba's."""


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
    """Pixels, as `height`, where that is known."""
    height: int | None = None
    dpi: int | None = None


@dataclass(frozen=True)
class ConsoleOutput:
    """What a run or a command came to."""

    exit_code: int = 0
    stderr: str = ""
    stdout: str = ""
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    """What there is to say of the run: state that was lost, files that were not kept, rules that warn."""

    def success(self) -> bool:
        """Whether it ended with 0."""
        return self.exit_code == 0

    def to_json(self, include_plots: bool = False) -> str:
        """All of it as JSON; figures only when asked for, since they are large."""
        values = asdict(self)
        if not include_plots:
            values.pop("plots", None)
        return json.dumps(values, indent=2, default=lambda value: value.value)

    def text(self) -> str:
        """The standard output, under an old name."""
        warnings.warn("text() is deprecated; use stdout", DeprecationWarning, stacklevel=2)
        return self.stdout


@dataclass(frozen=True)
class ExecutionResult(ConsoleOutput):
    """What a run came to, and the figures that it made."""

    plots: list[PlotOutput] = field(default_factory=list)
