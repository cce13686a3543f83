"""What callers get: the answer as JSON, or why there is none, with a status that shows who must act."""

import logging
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ...base.errors import (
    BadPath,
    InstallFailed,
    PolicyDenied,
    RequestError,
    SandboxError,
    Unavailable,
    UnknownArtifact,
    UnknownSession,
)
from ...base.results import Artifact, Execution
from ...base.text import one_line
from .inspection import Inspection
from .models import ArtifactItem, Executed, ExecutionFailed, Failure
from .requests import Refused
from .words import in_words

_UNFORESEEN = "the server had an unexpected error, which its log explains; try again"

_log = logging.getLogger(__name__)


def answered(answer: BaseModel, status: int = 200) -> Response:
    """The answer as JSON."""
    return Response(answer.model_dump_json(), status, media_type="application/json")


def refused(request: Request, error: Exception) -> Response:
    """Why a request failed, in one line."""
    if not isinstance(error, Refused | SandboxError):
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answered(Failure(error=_UNFORESEEN, error_type="ServerError"), 500)
    message = in_words(error) if isinstance(error, SandboxError) else str(error)
    status = _status(request, error)
    response = answered(Failure(error=one_line(message), error_type=type(error).__name__), status)
    if status == 413:
        response.headers["Connection"] = "close"  # otherwise the server would wait for the rest of the body
    return response


def _status(request: Request, error: Refused | SandboxError) -> int:
    match error:
        case Refused():
            return error.status
        case PolicyDenied():
            return 403
        case UnknownArtifact() | UnknownSession():
            return 404
        case BadPath():
            return 400 if request.method == "POST" else 404
        case RequestError() | InstallFailed():
            return 400
        case Unavailable():
            return 503
        case _:
            return 500


def items(artifacts: Sequence[Artifact]) -> list[ArtifactItem]:
    """Artifacts as answers list them."""
    return [ArtifactItem(name=found.name, mime_type=found.mime_type, size_bytes=found.size) for found in artifacts]


def ran(
    name: str, execution: Execution, inspection: Inspection | None, notes: Sequence[str]
) -> Executed | ExecutionFailed:
    """The answer about code that ran in the session of that name."""
    all_notes = [*notes, *map(in_words, execution.notes), *_missing_values(execution, inspection)]
    facts: dict[str, Any] = {
        "status": execution.status,
        "stdout": execution.stdout.text,
        "stderr": execution.stderr.text,
        "artifacts": items(execution.artifacts),
        "session_id": name,
        "notes": all_notes,
    }
    if execution.status == "ok":
        return Executed(result=dict(inspection.values) if inspection else {}, **facts)
    raised = inspection.error if inspection else None
    if raised is not None and execution.status == "error":
        return ExecutionFailed(error=raised.message, error_type=raised.type, traceback=raised.traceback, **facts)
    return ExecutionFailed(
        error=next(map(in_words, execution.notes), f"the code ended with exit code {execution.exit_code}"),
        error_type=execution.status,
        traceback=raised.traceback if raised else "",
        **facts,
    )


def _missing_values(execution: Execution, inspection: Inspection | None) -> list[str]:
    """A note on values that are missing from the result of a run."""
    if execution.status != "ok" or execution.session_state != "kept":
        return []
    if inspection is None:
        return ["the values of names could not be read; print them instead"]
    if not inspection.left_out:
        return []
    names = one_line(", ".join(inspection.left_out))
    return [
        f"not in result, because JSON cannot represent them or they are too large: {names}; "
        "convert them, or write them to files"
    ]
