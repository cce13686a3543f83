"""Sessions whose runs return the figures that they drew."""

import base64
import os
from collections.abc import Sequence
from typing import Any

from ...base.results import Artifact
from .exceptions import LanguageNotSupportPlotError, translated
from .lifetime import Pool
from .portal import portal
from .session import SandboxSession
from .values import ExecutionResult, FileType, PlotOutput, SandboxBackend, StreamCallback

_FORMATS = {
    "image/png": FileType.PNG,
    "image/jpeg": FileType.JPEG,
    "image/svg+xml": FileType.SVG,
    "application/pdf": FileType.PDF,
    "text/html": FileType.HTML,
}
"""The formats of figures."""


class ArtifactSandboxSession(SandboxSession):
    """A session whose runs return each figure once, whether it was shown, saved, or left open at the end of the run.

    A figure of plotly or Altair is a page and, if the libraries for it are installed, also a picture.
    """

    def __init__(
        self,
        backend: SandboxBackend | str = SandboxBackend.AUTO,
        image: str | None = None,
        dockerfile: str | os.PathLike[str] | None = None,
        lang: str | None = None,
        *,
        enable_plotting: bool = True,
        pool: Pool | None = None,
        **arguments: Any,
    ) -> None:
        if lang is not None:
            arguments["lang"] = lang
        super().__init__(backend, pool, image=image, dockerfile=dockerfile, **arguments)
        self.enable_plotting = enable_plotting

    def run(  # type: ignore[override]  # LLM Sandbox has another order here
        self,
        code: str,
        libraries: Sequence[str] | None = None,
        timeout: float | None = None,
        clear_plots: bool = False,
        on_stdout: StreamCallback | None = None,
        on_stderr: StreamCallback | None = None,
    ) -> ExecutionResult:
        """Runs code, as `SandboxSession.run` does, and returns its figures too.

        Raises `LanguageNotSupportPlotError` for a language that cannot draw figures.
        """
        session = self._opened()
        if clear_plots:
            self.clear_plots()
        if self.enable_plotting:
            self._can_draw()
        done = self._run(code, libraries, timeout, on_stdout, on_stderr)
        with translated():
            contents = [(one, portal.call(session.artifact, one.name)) for one in done.artifacts if self._drawn(one)]
        plots = [_plot(artifact, content) for artifact, content in contents]
        output = self._output(done)
        return ExecutionResult(output.exit_code, output.stderr, output.stdout, plots, notes=output.notes)

    def clear_plots(self) -> None:
        """Deletes the kept figures of earlier runs; results never contain figures of another run anyway."""
        session = self._free()
        with translated():
            portal.call(session.clear)

    def _can_draw(self) -> None:
        handler = self._sandboxes().service.languages[self.options.lang].handler
        if not handler.figures:
            raise LanguageNotSupportPlotError(
                f"{self.options.lang} cannot draw figures here", "use python or r, or enable_plotting=False"
            )

    def _drawn(self, artifact: Artifact) -> bool:
        return self.enable_plotting and artifact.mime_type in _FORMATS


def _plot(artifact: Artifact, content: bytes) -> PlotOutput:
    shown = base64.b64encode(content).decode()
    return PlotOutput(_FORMATS[artifact.mime_type], shown, artifact.width or None, artifact.height or None)
