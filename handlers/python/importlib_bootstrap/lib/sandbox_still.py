"""Makes a still picture, or another part of a figure's page, in a process of its own, which `sandbox_pages` starts.

Its argument is the name of a function below, and its input is the argument of that function, as JSON. Its output is the
content or, with another exit code than 0, the reason why there is none, in one line.

In the process of the code, vl-convert would hold the interpreter's lock for seconds, and no interrupt could stop it;
kaleido 0 would leave a browser behind; and both would keep hundreds of megabytes.
"""

from __future__ import annotations

import json
import re
import sys

FAILED = 1
LACKING = 2
"""Exit codes: an error, or something that is missing and that will be missing the next time as well."""
_LONGEST = 300
"""The most characters of a reason."""


def plotly_picture(figure: dict) -> bytes:
    """Draws a plotly figure as PNG."""
    from plotly.io import to_image

    return to_image(figure, format="png", validate=False)


def vega_picture(chart: dict) -> bytes:
    """Draws a chart of Vega-Lite as PNG."""
    from vl_convert import vegalite_to_png

    return vegalite_to_png(chart, vl_version=_version(chart.get("$schema", "")))


def vega_script(schema: str) -> bytes:
    """Returns the script with which a page draws charts of this schema of Vega-Lite."""
    from vl_convert import javascript_bundle

    return javascript_bundle(vl_version=_version(schema)).encode()


def _version(schema: str) -> str | None:
    """Finds the version of a schema such as `.../vega-lite/v6.1.0.json`; None, the newest, if vl-convert lacks it."""
    import vl_convert

    found = re.search(r"/v(\d+\.\d+)", schema)
    included = getattr(vl_convert, "get_vegalite_versions", list)()
    return found[1] if found and found[1] in included else None


def _failure(error: Exception) -> tuple[str, int]:
    # plotly turns kaleido's error into one whose text is a page.
    if "ChromeNotFoundError" in (type(error).__name__, type(error.__context__).__name__):
        return "kaleido found no Chrome", LACKING
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text[:_LONGEST], LACKING if isinstance(error, ImportError) else FAILED


def _main() -> int:
    output = sys.stdout.buffer
    try:
        output.write(globals()[sys.argv[1]](json.load(sys.stdin)))
        return 0
    except Exception as error:
        reason, code = _failure(error)
        output.write(reason.encode("utf-8", "replace"))
        return code


if __name__ == "__main__":
    sys.exit(_main())
