"""Writes values that have an image or a page, through the methods that notebooks use.

Loaded when a value of a type that is not built in is shown. It never imports the libraries that it supports: it only
finds those that the code has imported.
"""

from __future__ import annotations

import io
import sys

from sandbox_shown import write

_FORMATS = (("png", "image/png"), ("jpeg", "image/jpeg"), ("svg", "image/svg+xml"), ("html", "text/html"))
"""In order of preference; the first format that a value has is written."""
_EXTENSIONS = {"jpeg": "jpg"}
_PNG_MODES = frozenset(("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"))


def draw(value: object) -> str:
    """Writes a value that has a picture or a page and returns the names of its files; empty if it has neither.

    Errors in a value's own methods are printed to standard error; its text is shown then.
    """
    kind = type(value)
    try:
        for module, name, action in (
            ("matplotlib.figure", "Figure", _draw_matplotlib),
            ("plotly.basedatatypes", "BaseFigure", _draw_plotly),
            ("altair", "TopLevelMixin", _draw_altair),
            ("PIL.Image", "Image", _draw_pillow),
        ):
            known = getattr(sys.modules.get(module), name, None)
            if known is not None and issubclass(kind, known):
                return action(value)
        return _write_best(value, kind)
    except Exception as error:
        print(f"{kind.__qualname__} could not be drawn: {type(error).__name__}: {error}", file=sys.stderr)
        return ""


class PillowViewer:
    """A viewer for `PIL.ImageShow`, which `Image.show()` uses."""

    def show(self, image, **_options) -> bool:
        """Writes the image."""
        _draw_pillow(image)
        return True


def _draw_plotly(figure) -> str:
    from sandbox_pages import draw_plotly

    return draw_plotly(figure)


def _draw_altair(chart) -> str:
    from sandbox_pages import draw_altair

    return draw_altair(chart)


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
    # Data frames are shown as text; their pages do not show more.
    table = hasattr(kind, "__dataframe__") or hasattr(kind, "to_frame")
    bundle = _call(value, kind, "_repr_mimebundle_")
    for name, mime_type in _FORMATS:
        if name == "html" and table:
            continue
        content = bundle.get(mime_type) if isinstance(bundle, dict) else None
        if content is None:
            content = _call(value, kind, f"_repr_{name}_")
        if not content or not isinstance(content, (bytes, str)):
            continue
        if name in ("png", "jpeg") and isinstance(content, str):
            from base64 import b64decode

            content = b64decode(content)
        if name == "html":
            content = _page(content)
        return write(content, _EXTENSIONS.get(name, name))
    return ""


def _call(value: object, kind: type, name: str):
    """Returns the result of a method of the value, without metadata that it may include; None without the method."""
    # Looked up in the class, because some values have an attribute for every name.
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
