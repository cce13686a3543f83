"""Examples of each command, with which its help text ends."""

from collections.abc import Mapping, Sequence

EXAMPLES: Mapping[str, Sequence[str]] = {
    "client-config": (
        "llm-sandbox-mcp client-config claude-desktop",
        "llm-sandbox-mcp client-config vscode --folder data --folder out:rw",
        "llm-sandbox-mcp client-config cursor --write",
        "llm-sandbox-mcp client-config claude-code --write --file ~/.claude.json",
    ),
    "run": (
        "llm-sandbox-mcp run -c 'print(6 * 7)'",
        "llm-sandbox-mcp run --language bash --timeout 10 -c 'seq 3'",
        "llm-sandbox-mcp run --file data.csv --artifacts out analysis.py",
        "llm-sandbox-mcp run --folder data --folder out:rw --language bash -c 'ls /data/data > /data/out/names.txt'",
        "llm-sandbox-mcp run --library humanize -c 'import humanize; humanize.intword(12345678)'",
    ),
    "doctor": ("llm-sandbox-mcp doctor", "llm-sandbox-mcp doctor --profile docker"),
    "serve": (
        "llm-sandbox-mcp serve --folder data --folder out:rw",
        "llm-sandbox-mcp serve --profile strict",
        "llm-sandbox-mcp serve --transport http --port 8000",
    ),
    "languages": ("llm-sandbox-mcp languages",),
    "profile": ("llm-sandbox-mcp profile show strict", "llm-sandbox-mcp profile check mine.toml"),
    "profile show": ("llm-sandbox-mcp profile show", "llm-sandbox-mcp profile show strict"),
    "profile check": ("llm-sandbox-mcp profile check mine.toml",),
    "images": ("llm-sandbox-mcp images build --profile docker", "llm-sandbox-mcp images list --profile docker"),
    "images build": (
        "llm-sandbox-mcp images build --profile docker",
        "llm-sandbox-mcp images build --profile docker --language python",
    ),
    "images pull": ("llm-sandbox-mcp images pull --profile podman",),
    "images list": ("llm-sandbox-mcp images list --profile docker",),
    "images remove": ("llm-sandbox-mcp images remove --profile docker geo:1",),
    "sessions": ("llm-sandbox-mcp sessions",),
    "sweep": ("llm-sandbox-mcp sweep", "llm-sandbox-mcp sweep --profile docker"),
    "prepare": ("llm-sandbox-mcp prepare", "llm-sandbox-mcp prepare python --profile docker"),
    "cache": ("llm-sandbox-mcp cache", "llm-sandbox-mcp cache --clear"),
    "completion": (
        'eval "$(llm-sandbox-mcp completion bash)"',
        'eval "$(llm-sandbox-mcp completion zsh)"',
        "llm-sandbox-mcp completion fish | source",
    ),
}
"""The lines that a person can type, by the name of the command."""
