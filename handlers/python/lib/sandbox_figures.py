"""A matplotlib backend, chosen by `MPLBACKEND`: what the code shows is written into `$SANDBOX_FIGURES` as PNG files."""

from __future__ import annotations

import io
import itertools
import os
import traceback

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from sandbox_saved import was_saved

_numbers = itertools.count(1)


class FigureManager(FigureManagerBase):
    """A figure's window, of which there is none: to show it is to write it and close it."""

    def show(self) -> None:
        """Writes and closes this figure."""
        try:
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


def write_open() -> None:
    """Writes the figures a run has left open, but for those it saved itself, and closes all; prints errors."""
    for manager in Gcf.get_all_fig_managers():
        figure = manager.canvas.figure
        try:
            if not was_saved(figure):
                _write(figure)
        except Exception:
            traceback.print_exc()
        finally:
            Gcf.destroy(manager)


def _write(figure) -> None:
    if len(figure.get_children()) == 1:
        return  # only its background: pandas, for one, leaves an empty figure behind when it makes one of its own
    image = io.BytesIO()
    # Not figure.savefig, whose canvas may be one that the code has chosen and that knows no PNG.
    FigureCanvasAgg(figure).print_figure(image, format="png")
    for number in _numbers:
        try:
            # Exclusive, because processes that the code started draw into the same folder.
            with open(os.path.join(os.environ["SANDBOX_FIGURES"], f"figure-{number}.png"), "xb") as file:
                file.write(image.getbuffer())
            return
        except FileExistsError:
            continue
