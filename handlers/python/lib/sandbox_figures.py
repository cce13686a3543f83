"""A matplotlib backend, chosen by `MPLBACKEND`: what the code shows is written into `$SANDBOX_FIGURES` as PNG files."""

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
    """A figure's window, of which there is none: to show it is to write it, unless the code has, and close it."""

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
    """Agg's canvas with our manager."""

    manager_class = FigureManager


def draw_figure(figure) -> str:
    """Writes a figure that is a run's value, unless the run has it already or will have it at its end."""
    if not was_saved(figure) and figure not in _written and figure not in _open():
        _write(figure)
    return "the figures"


def write_open() -> None:
    """Ends a run: writes the figures it left open, but for those it saved itself, and closes all; prints errors."""
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
        return  # only its background: pandas, for one, leaves an empty figure behind when it makes one of its own
    image = io.BytesIO()
    # Not figure.savefig, whose canvas may be one that the code has chosen and that knows no PNG.
    FigureCanvasAgg(figure).print_figure(image, format="png")
    write(image.getbuffer(), "png")
    _written.add(figure)
