"""TLS on a connected socket whose two directions can end separately."""

import contextlib
import socket
import ssl

_READ = 1 << 16
_AHEAD = 1 << 20
_PORTION = 64 << 10


class SecureSocket:
    """A socket with TLS, with the methods that `Connection` needs.

    The socket of Python's `ssl` cannot be used: its `unwrap` drops everything that the other side sends after our end,
    which is the output of a program once its input is closed.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Does the TLS handshake over a blocking socket; raises `OSError`, which includes `ssl.SSLError`."""
        self._socket = connected
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._unsent = b""
        self._ahead = bytearray()
        self._closed = False
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._take_in()
        self._flush()

    def recv(self, size: int) -> bytes:
        """Like `socket.recv`: the next bytes, empty at EOF; raises `BlockingIOError` if none have arrived yet."""
        while not self._ahead and not self._closed:
            self._decrypt()
            if not self._ahead and not self._closed:
                self._take_in()
        data = bytes(self._ahead[:size])
        del self._ahead[:size]
        return data

    def recv_into(self, into: bytearray) -> int:
        """Like `socket.recv_into`: the number of bytes read, 0 at EOF."""
        data = self.recv(len(into))
        into[: len(data)] = data
        return len(data)

    def send(self, data: bytes | memoryview) -> int:
        """Like `socket.send`, but accepted data can stay here; call it again until `unsent` is false."""
        self._flush()
        portion = data[:_PORTION]
        if len(portion):
            self._tls.write(portion)
        with contextlib.suppress(BlockingIOError):
            self._flush()
        return len(portion)

    @property
    def unsent(self) -> bool:
        """Whether accepted data has not been sent yet."""
        return bool(self._unsent)

    def sendall(self, data: bytes) -> None:
        """Sends all over a blocking socket."""
        while data:
            data = data[self.send(data) :]

    def end(self) -> None:
        """Sends the TLS closure alert; the other side can go on sending."""
        # Decrypts the data that has arrived first: `unwrap` would treat it as an error.
        self._decrypt()
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        self._flush()

    @property
    def ended(self) -> bool:
        """Whether the other side has closed and all it sent was read, as far as is known without waiting."""
        try:
            while not self._closed and len(self._ahead) < _AHEAD:
                self._decrypt()
                if not self._closed:
                    self._take_in()
        except BlockingIOError:
            return False
        except OSError:
            return True
        return self._closed and not self._ahead

    def setblocking(self, blocking: bool) -> None:
        self._socket.setblocking(blocking)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _decrypt(self) -> None:
        """Decrypts all complete records that have arrived."""
        try:
            while not self._closed:
                data = self._tls.read(_READ)
                self._ahead += data
                self._closed = not data
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._closed = True

    def _take_in(self) -> None:
        data = self._socket.recv(_READ)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _flush(self) -> None:
        self._unsent += self._outgoing.read()
        while self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
