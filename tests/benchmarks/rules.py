"""How long rules take: the first code of a server, 1,000 lines of ordinary code compared with parsing alone, 1 MiB of it,
and 1 MiB of nonsense."""

import importlib
import inspect
import random
import time
import unittest.mock
from contextlib import suppress
from pathlib import Path

import anyio
from tree_sitter import Language as Tree
from tree_sitter import Parser

from llm_sandbox_mcp.base.errors import PolicyDenied
from llm_sandbox_mcp.languages.languages import Language, load_languages
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.rules.checking import Checker, open_checker
from llm_sandbox_mcp.rules.presets import rules_of

from .speed import row

ROUNDS = 100
LINES = 1000
TIMES = 3
MIB = 1 << 20

ORDINARY = Path(__file__).with_name("ordinary")
"""A folder with a typical file in each language: comments, text, loops, functions, calls."""

# Real code: imports, classes, aliases, calls, documentation.
LIBRARY = inspect.getsource(unittest.mock)

NASTY = {
    "parentheses": "(" * MIB,
    "a.a.a.": "a." * (MIB // 2),
    "a().a().": "a()." * (MIB // 4),
    "one string": '"' + "x" * (MIB - 2) + '"',
    "quotes": "\"'" * (MIB // 2),
    "substitutions": '"${' * (MIB // 3),
    "calls that matter": "os.system(1)\n" * (MIB // 13),
    "braces": "{" * MIB,
    "brackets": "[" * MIB,
    "less than": "a<" * (MIB // 2),
    "one name": "x" * MIB,
    "NULs": "\0" * MIB,
    "imports": "import os\n" * (MIB // 10),
    "code in strings": "eval('os.system(1)')\n" * (MIB // 21),
    "macros": "#define A system\n" * (MIB // 17),
    "random bytes": random.Random(1).randbytes(MIB // 2).decode("latin-1"),
    "all characters": "".join(map(chr, range(256))) * (MIB // 384),
}


async def main() -> None:
    """Measures everything and prints the table."""
    languages = load_languages()
    profile = load_profile("strict")
    print(f"{'':44}{'p50 ms':>9}{'p10 .. p90':>22}{'ratio':>9}  promised")
    async with open_checker(rules_of(profile.rules), profile.rules, languages) as checker:

        async def checked(language: str, code: str) -> float:
            start = time.perf_counter()
            with suppress(PolicyDenied):
                await checker.check(languages[language], code)
            return time.perf_counter() - start

        async def first(language: str) -> float:
            await checker.worker.close()
            await checker.worker.warm()
            return await checked(language, "1")

        async def timed(language: str, code: str) -> float:
            await checked(language, "1")
            return await checked(language, code)

        for name in languages:
            row(f"the first code of a server, {name}", [await first(name) for _ in range(TIMES)], promise="<= 500 ms")
        mock = "\n".join(LIBRARY.splitlines()[:LINES])
        for name, what, code in (
            *((name, name, thousand_lines(name)) for name in languages),
            ("python", "python, with a name to check", f"{thousand_lines('python')}\nimport os\nos.system"),
            ("python", "python: unittest.mock", mock),
        ):
            parser = parser_of(languages[name])
            took = [(await timed(name, code), parsing(parser, code)) for _ in range(ROUNDS)]
            row(f"1,000 lines, {what}", [whole for whole, _ in took], [floor for _, floor in took], "<= 10 ms")
        large = (LIBRARY * (1 + MIB // len(LIBRARY)))[:MIB]
        row(
            f"1 MiB of unittest.mock, {await outcome(checker, languages['python'], large)}",
            [await timed("python", large)],
        )
        for language in languages:
            times = {name: max([await timed(language, text) for _ in range(TIMES)]) for name, text in NASTY.items()}
            worst = max(times, key=lambda name: times[name])
            row(f"1 MiB, {language}: {worst}, the worst", [times[worst]], promise="<= 500 ms")


def thousand_lines(language: str) -> str:
    """Ordinary code, repeated until it has 1,000 lines."""
    (file,) = ORDINARY.glob(f"{language}.*")
    lines = file.read_text(encoding="utf-8").splitlines()
    return "\n".join((lines * (1 + LINES // len(lines)))[:LINES])


def parser_of(language: Language) -> Parser:
    """The parser whose time is the floor."""
    assert language.handler.grammar is not None
    return Parser(Tree(importlib.import_module(language.handler.grammar.module).language()))


def parsing(parser: Parser, code: str) -> float:
    """Seconds that tree-sitter takes to parse the code."""
    text = code.encode()
    start = time.perf_counter()
    parser.parse(text)
    return time.perf_counter() - start


async def outcome(checker: Checker, language: Language, code: str) -> str:
    """Whether the code can be judged within the allowed time, as a word."""
    try:
        await checker.check(language, code)
    except PolicyDenied as refusal:
        return "too long" if "could not judge" in str(refusal) else "judged"
    return "judged"


if __name__ == "__main__":
    anyio.run(main)
