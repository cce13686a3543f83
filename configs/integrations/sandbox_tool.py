"""Shared code of the recipes in this folder: what a model sends, and what it gets. Copy it with your recipe."""

import json
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from llm_sandbox_mcp import Artifact, Execution, SandboxError, Session

DESCRIPTION = """\
Runs code in an isolated sandbox without a network. Variables and files are still there in the next call.
Answers in JSON: what the code printed, the value of its last expression, what went wrong.
Figures that the code drew are shown."""


class ExecuteCode(BaseModel):
    """The arguments of the tool."""

    code: str = Field(description="Source code")
    language: Literal["python", "javascript", "r", "ruby", "bash", "java", "cpp", "go"]


@dataclass
class Image:
    """A figure that code drew."""

    mime_type: str
    base64: str

    @property
    def url(self) -> str:
        """The figure as a data URL."""
        return f"data:{self.mime_type};base64,{self.base64}"


@dataclass
class Answer:
    """What a model gets. `text` is JSON, so that text printed by code cannot be mistaken for other text."""

    text: str
    images: list[Image]


async def execute(session: Session, code: str, language: str) -> Answer:
    """Runs code in the session. Errors, also those that keep code from running, become text; none is raised."""
    try:
        run = await session.run(code, language=language)
    except SandboxError as error:
        return Answer(json.dumps({"error": str(error)}), [])
    answer = {
        "status": run.status,
        "result": run.result,
        "stdout": run.stdout.text,
        "stderr": run.stderr.text,
        "files": [file.name for file in run.artifacts],
        "notes": run.notes,
    }
    return Answer(json.dumps({name: value for name, value in answer.items() if value}), await _images(session, run))


async def execute_json(session: Session, arguments: str) -> Answer:
    """The same for arguments in JSON, as models write them; models sometimes write them wrongly."""
    try:
        wanted = ExecuteCode.model_validate_json(arguments)
    except ValidationError as error:
        return Answer(json.dumps({"error": str(error)}), [])
    return await execute(session, wanted.code, wanted.language)


async def _images(session: Session, run: Execution) -> list[Image]:
    images: list[Image] = []
    for file in [file for file in run.artifacts if _is_small_image(file)][:4]:
        with suppress(SandboxError):  # it was removed to make room for a newer file
            content = await session.artifact(file.name)
            images.append(Image(file.mime_type, b64encode(content).decode()))
    return images


def _is_small_image(file: Artifact) -> bool:
    kinds = ("image/png", "image/jpeg", "image/gif", "image/webp")
    return file.mime_type in kinds and file.width > 0 and file.size < 1_000_000
