"""Records which matplotlib figures the code itself has saved in the working directory, with any backend."""

from __future__ import annotations

import functools
import os
import weakref

_saved: weakref.WeakSet = weakref.WeakSet()


def watch(backend_bases) -> None:
    """Makes every canvas record the figures that it saves; `backend_bases` is matplotlib's module of that name."""
    canvas = backend_bases.FigureCanvasBase
    original = canvas.print_figure

    @functools.wraps(original)
    def print_figure(self, filename, *args, **kwargs):
        printed = original(self, filename, *args, **kwargs)
        if isinstance(filename, (str, os.PathLike)) and _in_workdir(filename):
            _saved.add(self.figure)
            self.figure.stale = False  # any later change of the figure makes it true again
        return printed

    canvas.print_figure = print_figure


def was_saved(figure) -> bool:
    """Whether the code has saved this figure in the working directory in its present form."""
    return figure in _saved and not figure.stale


def _in_workdir(filename) -> bool:
    workdir = os.path.realpath(os.environ["SANDBOX_WORKDIR"])
    return os.path.realpath(filename).startswith(os.path.join(workdir, ""))
