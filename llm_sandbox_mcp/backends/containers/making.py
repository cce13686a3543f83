"""Builds and pulls: one request to the engine, and its answer line by line."""

import http.client
import json
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode

from ...base.errors import ImageFailed
from ..base import OnLine
from .engine import LAST_CHARACTERS, Engine

REGISTRY_SECONDS = 8.0
"""Timeout until a registry answers; after that, a pull has no timeout."""
_LAST_LINES = 12
_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class Build:
    """The inputs of an image build."""

    dockerfile: Path
    """The build can copy files from its folder."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    network: str = ""
    """The network of the build's commands, such as "host"; empty for the engine's default."""
    labels: Mapping[str, str] = field(default_factory=dict)


def pull(engine: Engine, connection: http.client.HTTPConnection, image: str, on_line: OnLine) -> None:
    """Pulls an image; raises `ImageFailed` with the reason if that fails, soon if the registry does not answer."""
    deadline = time.monotonic() + REGISTRY_SECONDS
    # Kept here, since the connection drops its socket if the engine announces that it will close.
    wire = connection.sock
    patience: list[float | None] = [REGISTRY_SECONDS]

    def watch(line: str) -> None:
        # Podman prints this before it has contacted any registry.
        if not line.startswith("Trying to pull"):
            patience[0] = None
        elif patience[0] is not None:
            patience[0] = max(0.01, deadline - time.monotonic())
        wire.settimeout(patience[0])
        on_line(line)

    wire.settimeout(REGISTRY_SECONDS)
    try:
        _follow(engine, connection, engine.pull_path(image), None, engine.credentials(image), watch, "pulled", image)
    except TimeoutError as error:
        raise _failed(engine, "pulled", image, f"its registry did not answer in {REGISTRY_SECONDS:g} s") from error


def build(engine: Engine, connection: http.client.HTTPConnection, image: str, what: Build, on_line: OnLine) -> None:
    """Builds an image; raises `ImageFailed` with the last lines if that fails."""
    parameters = {
        "dockerfile": what.dockerfile.name,
        "t": image,
        "buildargs": json.dumps(dict(what.arguments)),
        "labels": json.dumps(dict(what.labels)),
        "rm": "true",
        "forcerm": "true",
    }
    if what.network:
        parameters["networkmode"] = what.network
    connection.sock.settimeout(None)
    with tempfile.TemporaryFile() as context:
        try:
            with tarfile.open(fileobj=context, mode="w") as archive:
                archive.add(what.dockerfile.parent, ".", filter=_without_caches)
        except OSError as error:
            raise _failed(engine, "built", image, f"{error.filename}: {error.strerror}") from error
        context.seek(0)
        path = f"{engine.build_path()}?{urlencode(parameters)}"
        _follow(engine, connection, path, context, engine.credentials(""), on_line, "built", image)


def _follow(
    engine: Engine,
    connection: http.client.HTTPConnection,
    path: str,
    body: IO[bytes] | None,
    headers: Mapping[str, str],
    on_line: OnLine,
    doing: str,
    image: str,
) -> None:
    last: deque[str] = deque(maxlen=_LAST_LINES)
    size = str(body.seek(0, 2)) if body else "0"
    if body:
        body.seek(0)
    kind = {"Content-Type": "application/x-tar", "Content-Length": size}
    try:
        connection.request("POST", path, body=body, headers={**kind, **headers})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise _failed(engine, doing, image, _reason(answer.read(_LINE)))
        for step in _steps(answer):
            if error := step.get("error") or step.get("errorDetail"):
                raise _failed(engine, doing, image, " | ".join([*last, str(error).strip()]))
            for line in _lines(step):
                last.append(line)
                on_line(line)
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise engine.unreachable(error) from error


def _steps(answer: http.client.HTTPResponse) -> Iterator[Mapping[str, Any]]:
    while line := answer.readline(_LINE):
        if line.strip():
            step = json.loads(line)
            if isinstance(step, dict):
                yield step


def _lines(step: Mapping[str, Any]) -> list[str]:
    """The lines of a step to show, without the progress of downloads."""
    if step.get("progressDetail"):
        return []
    text = str(step.get("stream") or step.get("status") or "")
    layer = f"{step['id']}: " if step.get("status") and step.get("id") else ""
    return [f"{layer}{line.rstrip()}" for line in text.splitlines() if line.strip()]


def _failed(engine: Engine, doing: str, image: str, reason: str) -> ImageFailed:
    step = "check its name, and that its registry answers" if doing == "pulled" else "fix its Dockerfile"
    cause = " ".join(reason.split())[-LAST_CHARACTERS:]
    step = engine.step(cause, step)
    return ImageFailed(f"image {image} cannot be {doing} by {engine.name} at {engine.address}: {cause}", step)


def _reason(content: bytes) -> str:
    try:
        answer = json.loads(content)
        return str(answer.get("message") or answer.get("cause") or answer)
    except (ValueError, AttributeError):
        return content.decode(errors="replace")


def _without_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.endswith("__pycache__") else member
