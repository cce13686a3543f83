"""Draws a conversation of a host with the server, as one picture: what the model sent, and what it got back."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

_WIDTH = 1000
_SENT = 610
"""The width of the column with what the model sent; the other has what it got back."""
_EDGE = 16
_LINE = 18
_FIGURE = (_WIDTH - _SENT - 3 * _EDGE, 228)

_STYLE = """\
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }
text { fill: #1f2328; } .name { fill: #59636e; } .page { fill: #ffffff; } .sent { fill: #f6f8fa; } .got { fill: #eef6ee; }
.sent, .got, .page { stroke: #d1d9e0; }"""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call of a tool and its answer."""

    tool: str
    code: str
    kind: str
    """What the answer is, such as a result."""
    answer: str
    figure: str
    """A PNG in base64, or nothing."""


def draw(exchanges: Iterable[Exchange]) -> str:
    """The picture as SVG. It needs nothing else, and is the same for the same exchanges."""
    parts: list[str] = []
    top = _EDGE
    for exchange in exchanges:
        sent = [exchange.tool, *exchange.code.strip("\n").splitlines()]
        got = [exchange.kind, *_wrapped(exchange.answer, (_FIGURE[0] - _EDGE) // 8)]
        height = max(len(sent) * _LINE, len(got) * _LINE + (_FIGURE[1] + _EDGE if exchange.figure else 0)) + _EDGE
        parts += _box("sent", _EDGE, top, _SENT, height, sent)
        left = _SENT + 2 * _EDGE
        parts += _box("got", left, top, _FIGURE[0], height, got)
        if exchange.figure:
            place = f'x="{left}" y="{top + (len(got) + 0.5) * _LINE:g}" width="{_FIGURE[0]}" height="{_FIGURE[1]}"'
            parts.append(f'<image {place} href="data:image/png;base64,{exchange.figure}"/>')
        top += height + _EDGE
    size = f'width="{_WIDTH}" height="{top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH} {top}">'
    page = f'<rect class="page" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{top - 1}" rx="8"/>'
    return "\n".join((head, f"<style>\n{_STYLE}\n</style>", page, *parts, "</svg>\n"))


def _box(kind: str, left: int, top: int, width: int, height: int, lines: list[str]) -> Iterator[str]:
    """A box with lines, the first of which is a name."""
    yield f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>'
    for number, line in enumerate(lines, start=1):
        name = ' class="name"' if number == 1 else ""
        if line:
            yield f'<text{name} x="{left + 10}" y="{top + number * _LINE}" xml:space="preserve">{escape(line)}</text>'


def _wrapped(text: str, width: int) -> Iterator[str]:
    """The text in lines of this many characters at most, if its words allow it."""
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line
