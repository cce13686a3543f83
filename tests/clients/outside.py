"""The outside clients, and in what they differ: README.md in this folder says it in words."""

from dataclasses import dataclass

PYTHON = ("mcp_1", "fastmcp", "langchain", "pydantic_ai", "openai_agents", "mcp_use", "llama_index")
"""Each has a program in `programs/`, and a group in `pyproject.toml` with its packages: `client-mcp-1` and so on."""

NPM = {"typescript_1": "@modelcontextprotocol/sdk@1.32.2", "typescript_2": "@modelcontextprotocol/client@2.4.0"}
"""The packages of the programs in JavaScript."""

WAYS = ("stdio", "http", "sse")


@dataclass(frozen=True)
class Habits:
    """What a client does in its own way."""

    refused: str = "a result that is marked"
    """How it gives an error of the call to a program or a model: the name of its exception, or a result."""
    pictures: bool = True
    """False: models get pictures as text in base64."""
    progress: bool = True
    """False: what calls tools takes no callback for progress."""
    cancels: tuple[str, ...] = WAYS
    """The ways in which the server learns that a call was cancelled; otherwise the run goes on."""
    gave_up: tuple[str, ...] = ("timed out",)
    """What the error of a call that the client gave up says, in lower case: one of these."""


CLIENTS = {
    "mcp_1": Habits(cancels=()),
    "fastmcp": Habits(refused="ToolError"),
    "langchain": Habits(cancels=("http", "sse")),
    "pydantic_ai": Habits(refused="ModelRetry"),
    "openai_agents": Habits(progress=False),
    "mcp_use": Habits(progress=False, cancels=()),
    "llama_index": Habits(
        refused="a result that is not marked",
        pictures=False,
        progress=False,
        gave_up=("timed out", "unhandled errors in a taskgroup"),
    ),
    "typescript_1": Habits(),
    "typescript_2": Habits(),
}
