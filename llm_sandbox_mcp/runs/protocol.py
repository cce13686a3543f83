"""The protocol between the server and a runner, without any I/O. `handlers/README.md` defines it."""

import json
import re
import secrets
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ..base.text import mended_json
from .requests import RunRequest

_FRAME = b"\x1e"
_HEADER_MAX = 8
_HEADER = re.compile(rb"([+.])(\d{1,4})\n")
_REPORT_MAX = 1 << 20
"""Bytes of one report; a longer one is forged, since runners have their own, lower limits."""
_FRAMES_MAX = 2 * _REPORT_MAX
"""Bytes of all frames of one stream. Parsing frames takes far longer than reading output, which is limited too."""
_FRAME_MIN = 1 << 10
"""Bytes that each frame, or false start of one, counts for at least: runners fill nearly all of their frames."""

STDIN = "__stdin"
"""The variable that contains the standard input of a run."""
MAX_FILES = 200
"""Files listed in one report at most."""
MAX_FIGURES = 100
"""Figures listed in one report at most."""
MAX_MISSED = 200
"""Modules that one report names as missing at most."""
_STRUCTURE_MAX = 16 << 10
"""Bytes of a report outside its strings. Runners stay below, and it is these bytes that take long to read: a megabyte
of nested lists takes 250 ms, in which the server does nothing else."""
_CONTAINERS = 10_000
"""Lists and objects in the values of a run at most."""
_DEEPEST = 100
"""Levels of nested lists and objects in a value at most: JSON writers and readers have their own limits."""


class ReportedError(BaseModel):
    """An error of the code, as the runner reports it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str
    message: str
    traceback: str


class ReportedInspection(BaseModel):
    """The values and the error of a run, which the report contains if the request has `inspect`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    values: Mapping[str, str] = {}
    """The values of names, each as JSON text; `decode_values` reads them."""
    left_out: tuple[str, ...] = ()
    error: ReportedError | None = None


class ReportedPreload(BaseModel):
    """What came of a module that was to be imported."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    missing: bool = False
    """Whether there is no such module."""
    memory: int = Field(default=0, ge=0, lt=2**50)
    """Bytes that the interpreter has for itself in addition."""
    starts: Literal["", "threads", "processes", "connections"] = ""
    """What it left that goes on by itself."""
    missed: tuple[str, ...] = Field(default=(), max_length=MAX_MISSED)
    """The modules that it looked for in vain."""


class Report(BaseModel):
    """The report of a runner on a run. Code in its process can forge it, so it decides nothing outside the sandbox."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: str = Field(pattern="^(ok|error)$")
    exit_code: int = Field(ge=-(2**31), lt=2**31)
    result: str | None = None
    interrupted: bool = False
    files: tuple[str, ...] = Field(default=(), max_length=MAX_FILES)
    files_omitted: int = Field(default=0, ge=0)
    figures: tuple[str, ...] = Field(default=(), max_length=MAX_FIGURES)
    ended: bool = False
    """Whether the interpreter has ended with this exit code: code ended it, or replaced it with another program."""
    waits: bool = False
    """Whether the code left, for the first time, what the interpreter does only when it exits."""
    inspection: ReportedInspection | None = None
    preloaded: ReportedPreload | None = None


def new_nonce() -> str:
    """128 random bits that only one request carries."""
    return secrets.token_hex(16)


def encode_request(nonce: str, cell: int, request: RunRequest) -> bytes:
    """One request as a line of UTF-8."""
    # The standard input is a variable whose name no caller can choose, so that no runner has more keys to parse.
    variables = request.variables
    if request.stdin:
        variables = _json({STDIN: request.stdin})[:-1] + ("," if variables != "{}" else "") + variables[1:]
    head = _json({"nonce": nonce, "cell": cell})[:-1]
    rest: dict[str, object] = {"code": request.code}
    if request.instead is not None:
        rest["instead"] = request.instead
    if request.inspect:
        rest["inspect"] = True
    if request.last:
        rest["last"] = True
    if request.preload:
        rest["preload"] = request.preload
    return f'{head},"variables":{variables},{_json(rest)[1:]}\n'.encode()


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def decode_report(payload: bytes) -> Report | None:
    """The report; None if the payload is not a report."""
    if not _is_simple(payload):
        return None
    try:
        return Report.model_validate(json.loads(mended_json(payload).decode()))
    except (ValueError, RecursionError):
        return None


def _is_simple(payload: bytes) -> bool:
    """Whether few bytes of a report are outside its strings, counted without reading it as JSON."""
    text = _unescaped(payload)
    # Between two strings there is at least one byte.
    return text.count(b'"') <= 2 * _STRUCTURE_MAX and len(_outside_strings(text)) <= _STRUCTURE_MAX


def _containers(text: str) -> int:
    """How many lists and objects a JSON text has, counted without reading it as JSON."""
    structure = _outside_strings(_unescaped(text.encode()))
    return structure.count(b"[") + structure.count(b"{")


def _unescaped(text: bytes) -> bytes:
    """JSON text without escaped backslashes and quotes, so that each quote begins or ends a string."""
    return text.replace(rb"\\", b"").replace(rb"\"", b"")


def _outside_strings(unescaped: bytes) -> bytes:
    return b"".join(unescaped.split(b'"')[::2])


def decode_values(texts: Mapping[str, str]) -> dict[str, object]:
    """The values of names, without those that are not valid JSON, as in a forged report, are nested too deeply, or take
    too long to read."""
    values: dict[str, object] = {}
    containers = 0
    for name, text in texts.items():
        try:
            found = _containers(text)
            if containers + found > _CONTAINERS:
                continue
            containers += found
            value = json.loads(text)
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):
            continue
        if _is_flat(value, _DEEPEST):
            values[name] = value
    return values


def _is_flat(value: object, levels: int) -> bool:
    """Whether lists and objects are nested at most `levels` deep."""
    inner = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return levels > 0 and all(_is_flat(one, levels - 1) for one in inner if isinstance(one, (list, dict)))


class FrameParser:
    """Splits one stream of a runner into the output of the code and the frames of one run.

    `feed` takes bytes in any portions and returns the output of the code; `payload` is complete once `done` is true.
    Anything that is not exactly a frame with this run's nonce is output. So is all that follows more frames than any
    runner sends: code that knows the nonce can print nothing but frames.
    """

    def __init__(self, nonce: str) -> None:
        self._marker = _FRAME + nonce.encode()
        self._held = b""
        self._need = 0
        self._last = False
        self._framed = 0
        self.payload = bytearray()
        self.begun = False
        """Whether the runner has read the request: its first frame shows that."""
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes of the stream and returns those that the code printed."""
        output = bytearray()
        data = self._held + data
        self._held = b""
        # An offset into the data, not a copy of the rest after each frame: code can print nothing but empty frames.
        at = 0
        while at < len(data) and not self.done and self._framed <= _FRAMES_MAX:
            if self._need:
                at = self._take_payload(data, at)
                continue
            start = data.find(self._marker, at)
            if start < 0:
                start = _tail(data, at, self._marker)
                output += data[at:start]
                self._held = data[start:]
                return bytes(output)
            output += data[at:start]
            at = start + len(self._marker)
            header = data[at : at + _HEADER_MAX]
            match = _HEADER.match(header)
            if match is None:
                if b"\n" not in header and len(header) < _HEADER_MAX:
                    self._held = data[start:]
                    return bytes(output)
                output += self._marker
                self._framed += _FRAME_MIN
                continue
            self.begun = True
            self._last = match[1] == b"."
            self._need = int(match[2])
            at += match.end()
            self._framed += max(at - start + self._need, _FRAME_MIN)
            self.done = self._last and not self._need
        output += data[at:]
        return bytes(output)

    def flush(self) -> bytes:
        """The bytes held back as a possible frame; call it at EOF, when it is clear that they are output."""
        held, self._held = self._held, b""
        return held

    def _take_payload(self, data: bytes, at: int) -> int:
        taken = data[at : at + self._need]
        self._need -= len(taken)
        if len(self.payload) < _REPORT_MAX:
            self.payload += taken
        self.done = self._last and not self._need
        return at + len(taken)


def _tail(data: bytes, at: int, marker: bytes) -> int:
    """Where an incomplete marker could begin in the data from `at` on; the end of the data if nowhere."""
    first = max(at, len(data) - len(marker) + 1)
    start = data.rfind(_FRAME, first)
    while start >= 0:
        if marker.startswith(data[start:]):
            return start
        start = data.rfind(_FRAME, first, start)
    return len(data)
