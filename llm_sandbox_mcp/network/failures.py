"""Why an HTTP request failed, in words that follow the name of its host."""

import os
import socket
import ssl

import httpcore2

FAILURES = (
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
)
"""The errors that a request can raise."""


def describe(error: BaseException) -> str:
    """The reason, without the name of the host, which callers put before it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"failed at TLS: {getattr(cause, 'verify_message', '') or cause.reason or 'no reason given'}"
        if isinstance(cause, socket.gaierror):
            return "cannot be resolved"
        if isinstance(cause, OSError) and cause.errno:
            return f"cannot be reached: {os.strerror(cause.errno)}"
        if isinstance(cause, httpcore2.TimeoutException):
            return "did not answer in time"
        cause = cause.__cause__ or cause.__context__
    return f"did not complete the request ({type(error).__name__})"
