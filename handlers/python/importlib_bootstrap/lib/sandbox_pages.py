"""Writes plotly figures and Altair charts as pages, and beside each page a still picture, because models see no pages.

Where a picture cannot be made, a line on standard error says why; the code does not fail.
"""

from __future__ import annotations

import json
import os
import re
import sys
from importlib.util import find_spec

from sandbox_shown import write, write_beside
from sandbox_still import LACKING

LIMIT = 60.0
"""Seconds for one picture. Most take one to five, but a browser that does not work here may never answer."""
_BROWSERS = (
    "kaleido==0.2.1 with plotly<7 brings its own browser; kaleido 1 and later need Chrome, which the operator installs"
)
_SCRIPTS = re.compile(r'(?:<script\b[^>]*\ssrc="https?://[^"]*"[^>]*></script>\s*)+')
"""What an Altair page loads from the network."""

_said: set = set()
_too_slow: set = set()
"""What reached the limit once: otherwise each further figure would wait that long again."""
_scripts: dict = {}
"""For pages that need no network, by schema, because each takes vl-convert seconds; empty if there is none."""


def show_plotly(figure, *_args, **_options) -> None:
    """Replaces `plotly.io.show` for every renderer, because there is no browser and no notebook here."""
    draw_plotly(figure)


def show_altair(chart, *_args, **_options) -> None:
    """Replaces the methods `show` and `display` of Altair's charts, which need IPython or a browser."""
    draw_altair(chart)


def draw_plotly(figure) -> str:
    """Writes a figure and returns the names of its files."""
    from plotly.io import to_html, to_json

    # The page includes its own copy of the script, 4 MB, because it may be opened without a network.
    page = write(to_html(figure, include_plotlyjs=True), "html")
    missing = "no still picture of plotly figures"
    if find_spec("kaleido") is None:
        _say_once(f"{missing}: kaleido is not installed ({_BROWSERS})")
        return page
    request = to_json(figure, validate=False)
    return _beside(page, _make("plotly_picture", request, missing, f" ({_BROWSERS})"))


def draw_altair(chart) -> str:
    """Writes a chart and returns the names of its files."""
    # All rows, and inside the page, which cannot load files of the sandbox.
    with sys.modules["altair"].data_transformers.enable("default", max_rows=None):
        specification, page = chart.to_dict(), chart.to_html()
    missing = "no still picture of Altair charts"
    if find_spec("vl_convert") is None:
        _say_once(f"{missing}, and their pages need a network: vl-convert-python is not installed")
        return write(page, "html")
    page = write(_SCRIPTS.sub(_inline(specification.get("$schema", "")), page, 1), "html")
    return _beside(page, _make("vega_picture", json.dumps(specification), missing))


def _inline(schema: str):
    """Returns what replaces the scripts of a page: one that is part of it, or the same if that cannot be made."""
    if schema not in _scripts:
        _scripts[schema] = _make("vega_script", json.dumps(schema), "pages of Altair charts need a network").decode()
    script = _scripts[schema]
    return lambda match: f"<script>{script}</script>\n" if script else match[0]


def _beside(page: str, picture: bytes) -> str:
    return f"{page} and {write_beside(page, picture, 'png')}" if picture else page


def _make(what: str, request: str, missing: str, advice: str = "") -> bytes:
    """Returns the output of `sandbox_still.py`; if there is none, says what is missing, why, and the advice."""
    import subprocess

    if what in _too_slow:
        return b""
    # A script's own folder is where it finds modules first, so the working directory has no say.
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandbox_still.py")
    say = _say
    try:
        done = subprocess.run(
            [sys.executable, "-s", program, what],
            input=request.encode("utf-8", "replace"),
            capture_output=True,
            timeout=LIMIT,
        )
        if done.returncode == 0:
            return done.stdout
        if done.returncode == LACKING:
            say = _say_once
        reason = done.stdout.decode("utf-8", "replace") or f"its process ended with exit code {done.returncode}"
    except subprocess.TimeoutExpired:
        _too_slow.add(what)
        reason = f"it took more than {LIMIT:g} seconds, and is not tried again before the session is reset"
    except OSError as error:
        reason = str(error)
    say(f"{missing}: {reason}{advice}")
    return b""


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _say_once(line: str) -> None:
    if line not in _said:
        _said.add(line)
        _say(line)
