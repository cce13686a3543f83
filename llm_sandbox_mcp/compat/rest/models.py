"""The requests and answers of HTTP without MCP, as `/openapi.json` shows them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from ...base.results import DEFAULT_TIMEOUT, Status

SHARED = "default"
"""The session of callers that name none."""
NAME = r"^[A-Za-z0-9._-]{1,64}$"
"""A pattern for names of sessions."""

_VARIABLE = r"^([A-Za-z]|_[A-Za-z0-9])[A-Za-z0-9_]*$|^_$"

Variables = Annotated[
    dict[Annotated[str, Field(pattern=_VARIABLE)], Any],
    WithJsonSchema({"type": "object", "patternProperties": {_VARIABLE: {}}, "additionalProperties": False}),
]
"""JSON values by name; the names are valid in code, and do not begin with two underscores."""

SessionName = Annotated[str, Field(pattern=NAME)]


class Body(BaseModel):
    """A request; unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)

    session_id: SessionName | None = Field(
        None, description="Which session: any name, opened on its first use; it overrides the header X-Session-Id"
    )


class ExecuteCode(Body):
    """Python code, and variables that are set before it runs."""

    code: Annotated[str, Field(min_length=1)]
    local_dict: Variables | None = Field(None, description="Variables by name")
    timeout_seconds: float = Field(DEFAULT_TIMEOUT, gt=0, allow_inf_nan=False)


class InstallLibraries(Body):
    """Names of libraries, with a version if needed."""

    libraries: list[str] = Field(min_length=1, examples=[["pandas==2.2.3"]])


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Root(Answer):
    message: str = "this server runs code in sandboxes; see /openapi.json for all paths"
    status: Literal["healthy"] = "healthy"


class Health(Answer):
    status: Literal["healthy"] = "healthy"
    service: str = "llm-sandbox-mcp"


class Failure(Answer):
    """What was refused or went wrong, in one line: cause; next step."""

    error: str
    error_type: str
    traceback: str = ""
    success: Literal[False] = False


class ArtifactItem(Answer):
    name: str
    mime_type: str
    size_bytes: int


class Ran(Answer):
    """What is reported of every run."""

    status: Status
    stdout: str
    stderr: str
    artifacts: list[ArtifactItem] = Field(description="Files that this run made or changed")
    session_id: SessionName
    notes: list[str] = Field(description="One line each: what was cut, lost or left out, and what to do about it")


class Executed(Ran):
    result: dict[str, Any] = Field(
        description="The given variables and the names that the code bound, if JSON can represent their values"
    )
    success: Literal[True] = True


class ExecutionFailed(Ran, Failure):
    """Code that ended with an error, or was stopped at a limit; `status` shows which."""


class LibraryItem(Answer):
    name: str
    version: str


class Installed(Answer):
    session_id: SessionName
    libraries: list[LibraryItem] = Field(description="All that are installed in the session now")
    notes: list[str]


class Uploaded(Answer):
    session_id: SessionName
    path: str
    size_bytes: int
    notes: list[str]


class Artifacts(Answer):
    session_id: SessionName
    artifacts: list[ArtifactItem]


class Limits(Answer):
    """Sizes in bytes, times in seconds."""

    memory: int
    cpus: float
    pids: int
    disk: int
    files: int
    file_size: int
    timeout: float
    grace: float
    cpu_time: float
    output: int
    code: int
    install_timeout: float
    body: int = Field(description="A request's JSON")
    upload: int = Field(description="One file, sent or fetched")
    session_idle: float = Field(description="A session that is unused for this time is closed")


Action = Literal["execute", "install"]
Refusal = Literal["refused"]


class LogItem(Answer):
    time: Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
    action: Action
    status: Status | Refusal
    duration_ms: int
    error: str = Field(description="Empty, or why it failed or was refused")


class Log(Answer):
    """The last requests to run code or install libraries in this session; neither code nor output is kept."""

    session_id: SessionName
    entries: list[LogItem]
