"""How long rules take: ordinary code of 1,000 lines beside its parsing alone, and a mebibyte of it, or of no code at all."""

import inspect
import random
import time
import unittest.mock
from contextlib import suppress

import anyio
import tree_sitter_python
from tree_sitter import Language as Tree
from tree_sitter import Parser

from llm_sandbox_mcp.errors import PolicyDenied
from llm_sandbox_mcp.languages import Language, load_languages
from llm_sandbox_mcp.profile import load_profile
from llm_sandbox_mcp.rules.checking import Checker, open_checker
from llm_sandbox_mcp.rules.presets import rules_of

from .speed import row

ROUNDS = 100
TIMES = 3
MIB = 1 << 20

# A thousand lines as people write them: comments, strings, classes, calls.
_PART = '''
class Account{number}:
    """Money of one owner; amounts are in cents."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError(f"cannot deposit {{amount}}")
        self.balance += amount
        self.history.append(("deposit", amount))

    def withdraw(self, amount):
        # No credit is given.
        if amount > self.balance:
            raise ValueError("not enough money")
        self.balance -= amount
        self.history.append(("withdraw", amount))
        return self.balance


total = sum(account.balance for account in [Account{number}("a", 5), Account{number}("b", 7)])
'''
PROGRAM = "\n".join(("import json, math\n" + "".join(_PART.format(number=n) for n in range(50))).splitlines()[:1000])

# People's code, as it is: imports, classes, aliases, calls, documentation.
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
        await checker.worker.warm()

        async def timed(language: str, code: str) -> float:
            await checker.worker.warm()
            start = time.perf_counter()
            with suppress(PolicyDenied):
                await checker.check(languages[language], code)
            return time.perf_counter() - start

        for what, code in (
            ("1,000 lines of Python", PROGRAM),
            ("the same, with a name to look at", f"{PROGRAM}\nimport os\nos.system"),
            ("1,000 lines of unittest.mock", "\n".join(LIBRARY.splitlines()[:1000])),
        ):
            took = [(await timed("python", code), parsing(code)) for _ in range(ROUNDS)]
            row(what, [whole for whole, _ in took], [floor for _, floor in took], "<= 10 ms")
        large = (LIBRARY * (1 + MIB // len(LIBRARY)))[:MIB]
        row(f"1 MiB of it, {await outcome(checker, languages['python'], large)}", [await timed("python", large)])
        for language in languages:
            times = {name: max([await timed(language, text) for _ in range(TIMES)]) for name, text in NASTY.items()}
            worst = max(times, key=lambda name: times[name])
            row(f"1 MiB, {language}: {worst}, the worst", [times[worst]], promise="<= 500 ms")


def parsing(code: str) -> float:
    """Seconds that tree-sitter takes for the tree alone."""
    parser, text = Parser(Tree(tree_sitter_python.language())), code.encode()
    start = time.perf_counter()
    parser.parse(text)
    return time.perf_counter() - start


async def outcome(checker: Checker, language: Language, code: str) -> str:
    """Whether the code can be judged in the time that it may take."""
    try:
        await checker.check(language, code)
    except PolicyDenied as refusal:
        return "too long" if "could not judge" in str(refusal) else "judged"
    return "judged"


if __name__ == "__main__":
    anyio.run(main)
