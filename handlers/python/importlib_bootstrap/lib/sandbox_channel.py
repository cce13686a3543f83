"""The runner's ends of the pipes: reads requests, writes frames, and restores the standard streams after each run."""

from __future__ import annotations

import os
import sys

# `json` would load `re` and its dependencies, half of the interpreter's start-up time; its C core needs none of them.
from _json import encode_basestring, make_scanner

_FRAME = 4096
_FRAME_HEAD = 1 + 32 + 1 + 4 + 1
# High, because clean-up code closes low descriptors (`os.closerange(0, 1000)`), and below the usual limit of 1024; the
# lower ones are for servers that may open fewer files.
_PRIVATE = (1000, 200, 60)
_NAMES = ("stdin", "stdout", "stderr")


class _JsonOptions:
    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


_scan = make_scanner(_JsonOptions)


def quote(text: str) -> str:
    """Returns any text as a JSON string; lone surrogates, which UTF-8 cannot represent, become visible escapes."""
    return encode_basestring(str.encode(text, "utf-8", "backslashreplace").decode())


class Channel:
    """Private duplicates of the three standard descriptors; the streams of the code use the public descriptors."""

    def __init__(self) -> None:
        self._pending = bytearray()
        null = os.open(os.devnull, os.O_RDWR)
        self._input, self._out, self._err, self._null = _move_high(0, 1, 2, null)
        os.close(null)
        # Nothing has been read yet, so the stream objects of the interpreter can be used like new ones.
        self._streams = [sys.stdin, sys.stdout, sys.stderr]
        self._given = False
        self.restore()

    def read(self) -> dict | None:
        """Waits for the next request and returns it; None at the end of the input."""
        searched = 0
        while (end := self._pending.find(b"\n", searched)) < 0:
            searched = len(self._pending)
            try:
                chunk = os.read(self._input, 1 << 16)
            except BaseException as error:
                if getattr(error, "errno", None) or isinstance(error, MemoryError):
                    raise
                continue  # raised by a signal handler that the code installed earlier
            if not chunk:
                return None
            self._pending += chunk
        line = self._pending[:end].decode()
        del self._pending[: end + 1]
        return _scan(line, 0)[0]

    def restore(self) -> None:
        """Restores descriptors 0, 1, 2 and `sys.stdin`, `stdout`, `stderr` to those of the server."""
        for public, private in enumerate((self._null, self._out, self._err)):
            os.dup2(private, public)
            if public:
                # The flag belongs to the pipe, not to the descriptor: asyncio's pipe transports set it.
                os.set_blocking(private, True)
            if not _settle(self._streams[public]) or (public == 0 and self._given):
                self._streams[public] = _open(public)
                _settle(self._streams[public])
            name = _NAMES[public]
            setattr(sys, name, self._streams[public])
            setattr(sys, f"__{name}__", self._streams[public])
        self._given = False

    def give(self, text: str) -> None:
        """Gives the code a standard input with this text, until `restore`."""
        file = os.memfd_create("stdin")
        try:
            _write(file, text.encode())
            os.lseek(file, 0, os.SEEK_SET)
            os.dup2(file, 0)
        finally:
            os.close(file)
        self._given = True
        sys.stdin = sys.__stdin__ = self._streams[0] = _open(0)

    def begin(self, nonce: str) -> None:
        """Reports that a request was read."""
        _write(self._out, f"\x1e{nonce}+0\n".encode())

    def end(self, nonce: str, report: str) -> None:
        """Writes the frames that end the run, to both streams."""
        start = f"\x1e{nonce}"
        _write(self._err, f"{start}.0\n".encode())
        payload = report.encode()
        size = _FRAME - _FRAME_HEAD
        for at in range(0, len(payload), size):
            part = payload[at : at + size]
            kind = "+" if at + size < len(payload) else "."
            _write(self._out, f"{start}{kind}{len(part)}\n".encode() + part)


def _move_high(*descriptors: int) -> list[int]:
    for base in _PRIVATE:
        try:
            return [os.dup2(descriptor, base + at, False) for at, descriptor in enumerate(descriptors)]
        except OSError:
            if base == _PRIVATE[-1]:
                raise
    raise AssertionError


def _open(descriptor: int):
    # As in any Python process, line ends that are read stay what they are.
    mode, newline = ("w", None) if descriptor else ("r", "\n")
    return open(descriptor, mode, encoding="utf-8", newline=newline, closefd=False)


def _settle(stream) -> bool:
    """Gives a stream the settings that every run starts with, and flushes it; False if it is closed or detached."""
    try:
        if stream.readable():
            return True
        # Lines are written at once, because a user may be watching, and a kill leaves no time to flush.
        # backslashreplace, so that no character makes a print fail, and lone surrogates stay visible.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
        return True
    except (OSError, ValueError):
        return False


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
