"""The arguments and results of the tools, and how they are described to a model.

The schemas stay flat (no references, no unions, no lists of types): several models' APIs refuse anything else.
"""

from typing import Any, Literal

from mcp.types import Tool, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field

from ..base.results import DEFAULT_TIMEOUT, SessionState, Status
from ..languages.languages import Languages
from ..profile.profile import Profile
from .descriptions import describe_execution, describe_host_files

WAIT = 50.0
"""Seconds that a call waits for work by default: many clients give up a call after 60."""


class Arguments(BaseModel):
    """The arguments of a tool; the docstring of a subclass is what the model reads about the tool."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ExecuteCode(Arguments):
    """Runs code in an isolated sandbox; returns its output, the value of its last expression, files and figures."""

    code: str = Field(min_length=1)
    language: str = "python"
    session_id: str = Field("", description="Empty: a new one")
    libraries: list[str] = Field([], description="To install first")
    timeout_seconds: float = Field(DEFAULT_TIMEOUT, gt=0, allow_inf_nan=False)
    variables: dict[str, Any] = Field({}, description="Set before the code runs")
    stdin: str = ""
    keep_session: bool = Field(True, description="false: close it afterwards")
    wait_seconds: float = Field(WAIT, ge=0, allow_inf_nan=False, description="Then the run goes on without the call")


class InstallLibraries(Arguments):
    """Installs libraries from the package index into one session."""

    libraries: list[str] = Field(min_length=1, description="Such as pandas==2.2.3")
    language: str = "python"
    session_id: str = Field("", description="Empty: a new one")
    wait_seconds: float = Field(WAIT, ge=0, allow_inf_nan=False)


class CopyFile(Arguments):
    """Copies a file into a session (direction in) or out of it."""

    session_id: str = Field("", description="in: empty: a new one")
    path: str = Field(min_length=1, description="Relative to the working directory")
    direction: Literal["in", "out"] = "in"
    content: str = Field("", description="in: the file")
    encoding: Literal["text", "base64"] = Field("text", description="base64: content is binary")
    host_path: str = Field("", description="Instead of content: the user's file")


class GetArtifacts(Arguments):
    """Lists files and figures that a session left, even after its end; with names, returns them."""

    session_id: str = Field(min_length=1)
    names: list[str] = []
    offset: int = Field(0, ge=0, description="First byte; in the list: newest to skip")
    length: int = Field(0, ge=0, description="Bytes; 0: all")
    save_to: str = Field("", description="Save in this folder of the user instead")


class ManageSession(Arguments):
    """Lists sessions and runs; waits for a run that goes on, reads its new output or cancels it; interrupts a session,
    clears its artifacts, restarts it (variables are lost), resets it (files and libraries too), closes it, saves it
    under a name, or branches it: a second one starts where it stands. Opens, deletes or lists (saved) saved ones."""

    action: Literal[
        "list",
        "wait",
        "read",
        "cancel",
        "interrupt",
        "clear",
        "restart",
        "reset",
        "close",
        "save",
        "open",
        "branch",
        "saved",
        "delete",
    ]
    session_id: str = ""
    run_id: str = ""
    name: str = Field("", description="Of the saved one")
    tmp: bool = Field(False, description="Save /tmp too")
    wait_seconds: float = Field(WAIT, ge=0, allow_inf_nan=False)


class GetSupportedLanguages(Arguments):
    """Lists the languages that code can be written in, as JSON."""


class GetLanguageDetails(Arguments):
    """Describes a language as JSON: version, package manager, libraries, uses, examples."""

    language: str


class Answer(BaseModel):
    """The structured content of a result; its schema is short, because clients check each answer against it."""

    model_config = ConfigDict(frozen=True)


class ArtifactItem(Answer):
    name: str
    mime_type: str
    size_bytes: int
    width: int = Field(description="Pixels; 0: no image")
    height: int
    uri: str


class Executed(Answer):
    status: Literal[Status, "running"]
    run_id: str
    exit_code: int
    stdout: str
    stderr: str
    stdout_omitted_bytes: int
    stderr_omitted_bytes: int
    result: str
    duration_ms: int
    session_id: str
    session_state: SessionState = Field(description="fresh: state was lost for the next run")
    artifacts: list[ArtifactItem]
    notes: list[str]


class LibraryItem(Answer):
    name: str
    version: str


class Installed(Answer):
    status: Literal["ok", "running", "cancelled"]
    run_id: str
    session_id: str
    libraries: list[LibraryItem] = Field(description="New ones and new versions")
    unchanged: int
    output: str
    notes: list[str]


class Copied(Answer):
    session_id: str
    path: str
    size_bytes: int
    mime_type: str
    content: str
    encoding: Literal["text", "base64"]
    uri: str
    host_path: str


class Artifacts(Answer):
    session_id: str
    artifacts: list[ArtifactItem]
    text: str = Field(description="What was read")
    next_offset: int = Field(description="0: it was read to its end")
    saved: list[str]


class SessionItem(Answer):
    session_id: str
    running: bool
    languages: list[str]
    runs: int
    age_seconds: int
    expires_in_seconds: int
    run_ids: list[str] = Field(description="Runs that go on or ended lately")


class SavedItem(Answer):
    name: str
    age_seconds: int
    size_bytes: int
    variables: dict[str, int]
    files: int
    missing: list[str]
    problem: str


class Managed(Answer):
    action: str
    session_id: str
    sessions: list[SessionItem]
    run: dict[str, Any] = Field(description="As its call returns it")
    saved: list[SavedItem]
    restored: dict[str, Any]
    missing: list[str]
    pool: dict[str, int]
    notes: list[str]


def define_tools(profile: Profile, languages: Languages, *, host_files: bool) -> dict[str, Tool]:
    """The tools by name, for this server's profile and languages."""
    longest = profile.limits.timeout
    places = describe_host_files(profile, host_files=host_files)
    writes = host_files and any(folder.writable for folder in profile.files.opened)
    tools: tuple[Tool, ...] = (
        _tool("execute_code", "Run code", ExecuteCode, Executed, destructive=writes),
        _tool("install_libraries", "Install libraries", InstallLibraries, Installed, open_world=True),
        _tool("copy_file", "Copy a file", CopyFile, Copied, destructive=host_files),
        _tool(
            "get_artifacts",
            "Get artifacts",
            GetArtifacts,
            Artifacts,
            read_only=not places["save_to"],
            destructive=bool(places["save_to"]),
            idempotent=True,
        ),
        _tool("manage_session", "Manage sessions", ManageSession, Managed, destructive=True, idempotent=True),
    )
    if profile.tools.old_names:
        tools += (
            _tool("get_supported_languages", "List languages", GetSupportedLanguages, read_only=True, idempotent=True),
            _tool("get_language_details", "Describe a language", GetLanguageDetails, read_only=True, idempotent=True),
        )
    tools[0].description = f"{tools[0].description} {describe_execution(profile, languages, host_files=host_files)}"
    for tool in tools:
        properties = tool.input_schema["properties"]
        for argument, where in places.items():
            if argument in properties and where:
                properties[argument]["description"] += f", {where}"
            else:
                properties.pop(argument, None)
        # Not twice: a model that installs libraries has read what runs code.
        if "language" in properties and tool.name != "install_libraries":
            properties["language"]["enum"] = list(languages)
        if "timeout_seconds" in properties:
            properties["timeout_seconds"] |= {"default": min(DEFAULT_TIMEOUT, longest), "maximum": longest}
    return {tool.name: tool for tool in tools}


def _tool(
    name: str,
    title: str,
    arguments: type[Arguments],
    answer: type[Answer] | None = None,
    *,
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
) -> Tool:
    schema = _flat(arguments, "validation")
    return Tool(
        name=name,
        title=title,
        description=" ".join(schema.pop("description").split()),
        input_schema=schema,
        output_schema=_flat(answer, "serialization") if answer is not None else None,
        annotations=ToolAnnotations(
            read_only_hint=read_only,
            destructive_hint=destructive,
            # Left out where it is the protocol's own default: every model pays for each word.
            idempotent_hint=(idempotent and not read_only) or None,
            open_world_hint=None if open_world else False,
        ),
    )


_CHECKED_HERE = ("minimum", "exclusiveMinimum", "minLength", "minItems")
"""What no model does wrong often enough to read about it each time; the error of a call says it."""


def _flat(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    """The schema without references: of the objects in an answer it only says that they are objects."""
    schema = model.model_json_schema(mode=mode)
    schema.pop("$defs", None)

    def flatten(node: Any) -> Any:
        if isinstance(node, list):
            return [flatten(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return {"type": "object"}
        # Those after the first say what JSON Schema, or the type, says by itself.
        left_out = {"title": node.get("title"), "additionalProperties": True}
        if "default" in node and node["default"] in ("", [], {}, 0, False):
            left_out["default"] = node["default"]
        kept = {key: value for key, value in node.items() if left_out.get(key, ...) != value}
        return {key: flatten(value) for key, value in kept.items() if key not in _CHECKED_HERE}

    flat: dict[str, Any] = flatten(schema)
    return flat
