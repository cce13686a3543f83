"""What crosses the control channel between server and runner, without any I/O. `handlers/README.md` defines it."""

import json
import re
import secrets
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_FRAME = b"\x1e"
_HEADER_MAX = 8
_HEADER = re.compile(rb"([+.])(\d{1,4})\n")
_REPORT_MAX = 1 << 20
"""Bytes of one report; a longer one is forged, since runners keep within limits of their own."""

MAX_FIGURES = 100
"""Figures taken from one report."""


class Report(BaseModel):
    """What a runner says of a run. Code in the same process can forge it, so it decides nothing outside the sandbox."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: str = Field(pattern="^(ok|error)$")
    exit_code: int = Field(ge=-(2**31), lt=2**31)
    result: str | None = None
    interrupted: bool = False
    files: tuple[str, ...] = ()
    files_omitted: int = Field(default=0, ge=0)
    figures: tuple[str, ...] = Field(default=(), max_length=MAX_FIGURES)


def new_nonce() -> str:
    """128 random bits that only one request carries."""
    return secrets.token_hex(16)


def encode_request(nonce: str, cell: int, variables: Mapping[str, object], code: str) -> bytes:
    """One request as a line of UTF-8."""
    request = {"nonce": nonce, "cell": cell, "variables": dict(variables), "code": code}
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def decode_report(payload: bytes) -> Report | None:
    """The report, or nothing where the payload is not one."""
    try:
        return Report.model_validate_json(payload)
    except ValidationError:
        return None


class FrameParser:
    """Splits one stream of a runner into what the code printed and the frames of one run.

    Bytes go in by `feed` in any portions and come out as the code's own output; `payload` is complete once `done`.
    Anything that is not exactly a frame of this run's nonce is output.
    """

    def __init__(self, nonce: str) -> None:
        self._marker = _FRAME + nonce.encode()
        self._held = b""
        self._need = 0
        self._last = False
        self.payload = bytearray()
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """Takes the next bytes of the stream and returns those that the code printed."""
        output = bytearray()
        data = self._held + data
        self._held = b""
        while data and not self.done:
            if self._need:
                data = self._take_payload(data)
                continue
            start = data.find(self._marker)
            if start < 0:
                keep = _overlap(data, self._marker)
                output += data[: len(data) - keep]
                self._held = data[len(data) - keep :]
                return bytes(output)
            output += data[:start]
            data = data[start:]
            header = data[len(self._marker) : len(self._marker) + _HEADER_MAX]
            match = _HEADER.match(header)
            if match is None:
                if b"\n" not in header and len(header) < _HEADER_MAX:
                    self._held = data
                    return bytes(output)
                output += data[: len(self._marker)]
                data = data[len(self._marker) :]
                continue
            self._last = match[1] == b"."
            self._need = int(match[2])
            data = data[len(self._marker) + match.end() :]
            self.done = self._last and not self._need
        output += data
        return bytes(output)

    def flush(self) -> bytes:
        """What was held back as a possible frame, once the stream has ended: it was output after all."""
        held, self._held = self._held, b""
        return held

    def _take_payload(self, data: bytes) -> bytes:
        taken, rest = data[: self._need], data[self._need :]
        self._need -= len(taken)
        if len(self.payload) < _REPORT_MAX:
            self.payload += taken
        self.done = self._last and not self._need
        return rest


def _overlap(data: bytes, marker: bytes) -> int:
    """How many bytes at the end of data could be the beginning of the marker."""
    start = data.rfind(_FRAME, max(0, len(data) - len(marker) + 1))
    while start >= 0:
        if marker.startswith(data[start:]):
            return len(data) - start
        start = data.rfind(_FRAME, max(0, len(data) - len(marker) + 1), start)
    return 0
