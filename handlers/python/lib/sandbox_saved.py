"""Notes which matplotlib figures the code has saved in the working directory itself, with whatever backend."""

from __future__ import annotations

import functools
import os
import weakref

_saved: weakref.WeakSet = weakref.WeakSet()


def watch(backend_bases) -> None:
    """Makes every canvas note the files it prints; `backend_bases` is matplotlib's module of that name."""
    canvas = backend_bases.FigureCanvasBase
    original = canvas.print_figure

    @functools.wraps(original)
    def print_figure(self, filename, *args, **kwargs):
        printed = original(self, filename, *args, **kwargs)
        if isinstance(filename, (str, os.PathLike)) and _in_workdir(filename):
            _saved.add(self.figure)
            self.figure.stale = False  # whatever changes the figure from now on makes it true again
        return printed

    canvas.print_figure = print_figure


def was_saved(figure) -> bool:
    """Whether the code has saved this figure in the working directory as it is now."""
    return figure in _saved and not figure.stale


def _in_workdir(filename) -> bool:
    workdir = os.path.realpath(os.environ["SANDBOX_WORKDIR"])
    return os.path.realpath(filename).startswith(os.path.join(workdir, ""))
