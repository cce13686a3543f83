"""Hides the runner's frames from modules that look at the stack, when the code imports them."""

from __future__ import annotations

import functools
import os
import sys
import warnings

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


def hide_from_traceback(traceback) -> None:
    """For `traceback.print_stack`, and all that prints a stack with this module, such as `logging`."""
    original = traceback.walk_stack

    @functools.wraps(original)
    def walk_stack(f):
        frames = original(f)  # without a frame, it counts the frames from itself to its caller
        return frames if f is None else ((frame, line) for frame, line in frames if not _is_ours(frame))

    traceback.walk_stack = walk_stack


def hide_from_inspect(inspect) -> None:
    """For `inspect.stack`."""
    original = inspect.getouterframes

    @functools.wraps(original)
    def getouterframes(frame, context=1):
        return [info for info in original(frame, context) if not _is_ours(info.frame)]

    inspect.getouterframes = getouterframes


def hide_from_matplotlib(api) -> None:
    """For warnings of matplotlib, which name the line that called it: also if the runner is between the two."""

    @functools.wraps(api.warn_external)
    def warn_external(message, category=None):
        level, frame = 1, sys._getframe()
        while frame is not None and (_is_ours(frame) or _is_matplotlib(frame)):
            level, frame = level + 1, frame.f_back
        warnings.warn(message, category, level)

    api.warn_external = warn_external


def _is_matplotlib(frame) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in ("matplotlib", "mpl_toolkits")


def _is_ours(frame) -> bool:
    return frame.f_code.co_filename.startswith(_FOLDER)
