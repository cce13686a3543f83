"""Values that are more than their text: written as images and pages, in the way that notebooks ask for them.

Loaded when a value that is not Python's own is shown; the libraries it knows are never imported here, only found.
"""

from __future__ import annotations

import io
import sys

from sandbox_shown import write

_FORMATS = (("png", "image/png"), ("jpeg", "image/jpeg"), ("svg", "image/svg+xml"), ("html", "text/html"))
"""The best first; the first that a value has is written."""
_EXTENSIONS = {"jpeg": "jpg"}
_PNG_MODES = frozenset(("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"))


def draw(value: object) -> str:
    """Writes a value that has a picture or a page and returns the file's name; empty when there is nothing to write.

    What goes wrong in a value's own methods is told on standard error and leaves its text to be shown.
    """
    kind = type(value)
    try:
        for module, name, action in (
            ("matplotlib.figure", "Figure", _draw_matplotlib),
            ("plotly.basedatatypes", "BaseFigure", _draw_plotly),
            ("PIL.Image", "Image", _draw_pillow),
        ):
            known = getattr(sys.modules.get(module), name, None)
            if known is not None and issubclass(kind, known):
                return action(value)
        return _write_best(value, kind)
    except Exception as error:
        print(f"{kind.__qualname__} could not be drawn: {type(error).__name__}: {error}", file=sys.stderr)
        return ""


def show_plotly(figure, *_args, **_options) -> None:
    """Stands in for `plotly.io.show`, whatever renderer is asked for: there is no browser and no notebook here."""
    _draw_plotly(figure)


class PillowViewer:
    """A viewer for `PIL.ImageShow`, which `Image.show()` asks."""

    def show(self, image, **_options) -> bool:
        """Writes the image."""
        _draw_pillow(image)
        return True


def _draw_plotly(figure) -> str:
    # The page brings its own copy of the script, 4 MB: whoever opens it may have no network either. No image comes with
    # it, since kaleido would start a browser, which takes seconds; code can call `write_image`.
    from plotly.io import to_html

    return write(to_html(figure, include_plotlyjs=True), "html")


def _draw_pillow(image) -> str:
    if image.mode not in _PNG_MODES:
        image = image.convert("RGBA" if image.mode[-1:] in "Aa" else "RGB")
    content = io.BytesIO()
    image.save(content, "PNG")
    return write(content.getbuffer(), "png")


def _draw_matplotlib(figure) -> str:
    from sandbox_figures import draw_figure

    return draw_figure(figure)


def _write_best(value: object, kind: type) -> str:
    # Data frames are read as text; their pages show no more of them.
    table = hasattr(kind, "__dataframe__") or hasattr(kind, "to_frame")
    bundle = _ask(value, kind, "_repr_mimebundle_")
    for name, mime_type in _FORMATS:
        if name == "html" and table:
            continue
        content = bundle.get(mime_type) if isinstance(bundle, dict) else None
        if content is None:
            content = _ask(value, kind, f"_repr_{name}_")
        if not content or not isinstance(content, (bytes, str)):
            continue
        if name in ("png", "jpeg") and isinstance(content, str):
            from base64 import b64decode

            content = b64decode(content)
        if name == "html":
            content = _page(content)
        return write(content, _EXTENSIONS.get(name, name))
    return ""


def _ask(value: object, kind: type, name: str):
    """What a method of the value gives, without the metadata that may come along."""
    # The class says whether there is one: some values answer to any name.
    if getattr(kind, name, None) is None:
        return None
    try:
        content = getattr(value, name)()
    except Exception as error:
        if not isinstance(error, (AttributeError, NotImplementedError)):
            print(f"{kind.__qualname__}.{name}: {type(error).__name__}: {error}", file=sys.stderr)
        return None
    return content[0] if isinstance(content, tuple) and content else content


def _page(content: bytes | str) -> bytes | str:
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    if text.lstrip()[:9].lower().startswith(("<!doctype", "<html")):
        return text
    return f'<!DOCTYPE html>\n<meta charset="utf-8">\n{text}'
