"""The parser of the command line."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import __version__
from ..base.similar import available
from ..base.text import one_line
from .examples import EXAMPLES

_PROGRAM = "llm-sandbox-mcp"


class _Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, and ends its help text with examples."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            # Abbreviated options would change their meaning when another option is added.
            allow_abbrev=False,
            # The default would join the lines of examples.
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **settings,
        )
        if examples := EXAMPLES.get(self.prog.removeprefix(_PROGRAM).strip()):
            self.epilog = "\n  ".join(("examples:", *examples))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"unknown {value!r}; {available(str(value), action.choices)}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses a command line; the default command is `serve`. For a mistake, exits with status 2 and one line."""
    bare = not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help", "--version"))
    return build().parse_args(["serve", *argv] if bare else argv)


def build() -> argparse.ArgumentParser:
    """The parser; the chosen command's module is in the attribute `module`."""
    parser = _Parser(
        prog=_PROGRAM,
        description="Runs code that language models write, in isolated sandboxes.",
        epilog=f"Without a command, it serves MCP on stdio, as hosts expect. Examples: {_PROGRAM} COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    # What a person needs comes first, as the help text keeps this order.
    _clients(commands)
    _run(commands)
    _command(commands, "doctor", "show what works here, what does not, and how to fix it")
    _serve(commands)
    _command(commands, "languages", "list the languages that code can be written in")
    _profile(commands)
    _images(commands)
    prepare = _command(commands, "prepare", "prepare libraries and images ahead, so that the first run need not wait")
    prepare.add_argument("language", metavar="LANGUAGE", nargs="*", help="default: all")
    sessions = _command(commands, "sessions", "list the saved sessions of this user, or delete them")
    sessions.add_argument("--delete", metavar="NAME", action="append", default=[], help="delete this one; repeatable")
    _command(commands, "sweep", "remove what killed servers left behind")
    cache = _command(
        commands, "cache", "show what is kept for later installations: prepared environments, downloads, tools"
    )
    cache.add_argument("--clear", action="store_true", help="remove what no running server uses")
    _completion(commands)
    return parser


def _command(commands: Any, name: str, summary: str, module: str = "") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=_sentence(summary))
    parser.set_defaults(module=module or name)
    parser.add_argument("--profile", metavar="FILE|NAME", help="the operator's profile (or LLM_SANDBOX_PROFILE)")
    return parser


def _clients(commands: Any) -> None:
    summary = "print the entry with which a host starts this server, or write it into the host's file"
    parser = _command(commands, "client-config", summary, "client_config.command")
    parser.add_argument(
        "client",
        metavar="CLIENT",
        help="claude-code, claude-desktop, codex-cli, cursor, gemini-cli, goose, lm-studio, vscode, windsurf or zed",
    )
    parser.add_argument(
        "--write", action="store_true", help="write it, show what changed, and keep the older file as NAME.bak"
    )
    parser.add_argument("--file", metavar="PATH", help="write into this file instead of the host's usual one")
    _folders(parser, "the client on stdio")


def _serve(commands: Any) -> None:
    parser = _command(commands, "serve", "serve MCP (the default)")
    parser.add_argument(
        "--transport",
        choices=("stdio", "http", "sse"),
        help="stdio: one client, on this process's input and output; http: clients on a port, at /mcp, older at /sse "
        "(MCP deprecated SSE on 2026-07-28); sse: the same; default: http with --host or --port, else stdio",
    )
    parser.add_argument(
        "--host",
        help="address to listen on; an address that other machines reach needs http.token_file (127.0.0.1)",
    )
    parser.add_argument("--port", type=int, help="port to listen on, 0 for a free one (8000)")
    _folders(parser, "the client on stdio")
    _offline(parser)


def _folders(parser: argparse.ArgumentParser, user: str) -> None:
    parser.add_argument(
        "--folder",
        dest="folders",
        metavar="FOLDER[:rw|:rwd]",
        action="append",
        default=[],
        help=f"open a folder of this machine to {user}, for reading, with :rw for writing, with :rwd for deleting and "
        "moving, too; repeatable",
    )


def _offline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--offline", action="store_true", help="ask no package index; use what is prepared")


def _run(commands: Any) -> None:
    parser = _command(commands, "run", "run one program in its own sandbox")
    _offline(parser)
    parser.add_argument("--language", metavar="L", help="default: by the file's extension, else python")
    parser.add_argument("--library", metavar="X", action="append", default=[], help="install a library first")
    parser.add_argument(
        "--file",
        metavar="HOST:SANDBOX",
        dest="files",
        action="append",
        default=[],
        help="copy a file into the working directory; without :SANDBOX it keeps its name",
    )
    _folders(parser, "the program, below /data, as /data/FOLDER for a folder of that name")
    parser.add_argument(
        "--stdin",
        metavar="FILE",
        help="what the program reads; - waits for the end of this command's standard input; default: what is there, if "
        "it is a file, or a pipe whose writer has ended",
    )
    parser.add_argument("--artifacts", metavar="DIR", help="save files and figures that the code made in this folder")
    parser.add_argument("--timeout", metavar="S", type=float, help="seconds; default: the profile's limit")
    code = parser.add_mutually_exclusive_group(required=True)
    code.add_argument("-c", metavar="CODE", dest="code", help="the program itself")
    code.add_argument("source", metavar="FILE", nargs="?", help="the program's file, or - for standard input")


def _profile(commands: Any) -> None:
    summary = "show or check profiles"
    parser = commands.add_parser("profile", help=summary, description=_sentence(summary))
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=_Parser)
    show = actions.add_parser("show", help="print every setting in force, as TOML", description="Print a profile.")
    show.add_argument("profile", metavar="NAME|FILE", nargs="?", help="default: LLM_SANDBOX_PROFILE, else default")
    show.set_defaults(module="profiles", action="show")
    check = actions.add_parser("check", help="check that a profile is valid", description="Check a profile.")
    check.add_argument("profile", metavar="FILE|NAME", help="the profile to check")
    check.set_defaults(module="profiles", action="check")


def _images(commands: Any) -> None:
    summary = "build, pull, list or remove the images of containers"
    parser = commands.add_parser("images", help=summary, description=_sentence(summary))
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=_Parser)
    build = _command(actions, "build", "build images from the Dockerfiles of languages", "images")
    build.add_argument("--base", metavar="IMAGE", help="build on another base image than the Dockerfile's")
    build.add_argument("--network", metavar="MODE", help="network of the build, such as host; default: the engine's")
    pull = _command(actions, "pull", "pull the images that the profile names", "images")
    listing = _command(actions, "list", "list images, whether each exists, and templates", "images")
    for action, name in ((build, "build"), (pull, "pull"), (listing, "list")):
        action.set_defaults(action=name)
        action.add_argument(
            "--language", metavar="L", action="append", default=[], help="only this language; default: all"
        )
    remove = _command(actions, "remove", "remove templates (images of committed sessions)", "images")
    remove.set_defaults(action="remove")
    remove.add_argument("image", metavar="IMAGE", nargs="+", help="the template's name; other images are refused")


def _completion(commands: Any) -> None:
    summary = "print a script that completes commands, options and names in a shell"
    description = f"{_sentence(summary)} Each shell has its line, such as in ~/.bashrc, ~/.zshrc or config.fish."
    parser = commands.add_parser("completion", help=summary, description=description)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that reads the script")
    parser.set_defaults(module="completion")


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."
