"""A matplotlib backend, chosen by `MPLBACKEND`: writes figures that the code shows to `$SANDBOX_FIGURES`, as PNG."""

from __future__ import annotations

import io
import traceback
import weakref

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from sandbox_saved import was_saved
from sandbox_shown import write

_written: weakref.WeakSet = weakref.WeakSet()
"""The figures that this run has written."""


class FigureManager(FigureManagerBase):
    """Replaces a figure's window: showing a figure writes it, unless the code saved it already, and closes it."""

    def show(self) -> None:
        """Writes and closes this figure."""
        try:
            if not was_saved(self.canvas.figure):
                _write(self.canvas.figure)
        finally:
            Gcf.destroy(self)

    @classmethod
    def pyplot_show(cls, *, block=None) -> None:
        """Writes and closes every open figure."""
        for manager in Gcf.get_all_fig_managers():
            manager.show()


class FigureCanvas(FigureCanvasAgg):
    """Agg's canvas with the manager above."""

    manager_class = FigureManager


def draw_figure(figure) -> str:
    """Writes a figure that is a run's value, unless the run has already written it or will write it when it ends."""
    if not was_saved(figure) and figure not in _written and figure not in _open():
        _write(figure)
    return "the figures"


def write_open() -> None:
    """Ends a run: writes its open figures, except those that the code saved itself, and closes all; prints errors."""
    for manager in Gcf.get_all_fig_managers():
        figure = manager.canvas.figure
        try:
            if not was_saved(figure):
                _write(figure)
        except Exception:
            traceback.print_exc()
        finally:
            Gcf.destroy(manager)
    _written.clear()


def _open() -> list:
    return [manager.canvas.figure for manager in Gcf.get_all_fig_managers()]


def _write(figure) -> None:
    if len(figure.get_children()) == 1:
        return  # only its background: pandas, for example, leaves an empty figure open when it makes its own
    image = io.BytesIO()
    # figure.savefig would use the figure's own canvas, which the code may have chosen and which may not support PNG.
    FigureCanvasAgg(figure).print_figure(image, format="png")
    write(image.getbuffer(), "png")
    _written.add(figure)
