"""The judge of a language, run in this process instead of the worker."""

import importlib
from collections.abc import Sequence
from functools import cache

from tree_sitter import Language

from llm_sandbox_mcp.languages.languages import load_languages
from llm_sandbox_mcp.rules.judging import Judge
from llm_sandbox_mcp.rules.naming import Grammar
from llm_sandbox_mcp.rules.section import Rule

LANGUAGES = load_languages()


@cache
def grammar(name: str) -> Grammar:
    """The grammar of a language as its handler declares it."""
    known = LANGUAGES[name].handler.grammar
    assert known is not None
    return Grammar(
        Language(importlib.import_module(known.module).language()),
        (LANGUAGES[name].folder / "names.scm").read_text(),
        importers=known.importers,
        builtin=known.builtin,
        dotted=known.dotted,
        noise=known.noise,
        signs=known.signs,
    )


def judge(language: str, *rules: Rule, limit: float = 5.0) -> Judge:
    """A judge with these rules."""
    return Judge([rule.model_dump() for rule in rules], range(len(rules)), grammar(language), limit)


def found(
    language: str,
    code: str,
    *,
    modules: Sequence[str] = (),
    calls: Sequence[str] = (),
    strings: Sequence[str] = (),
    patterns: Sequence[str] = (),
    lines: Sequence[str] = (),
) -> list[tuple[int, str]]:
    """The line and the text of each hit of one rule."""
    searched = {"modules": modules, "calls": calls, "strings": strings, "patterns": patterns, "lines": lines}
    rule = Rule.model_validate({"name": "a", **{key: tuple(value) for key, value in searched.items()}})
    return [(hit.line, hit.what) for hit in judge(language, rule).judge(code.encode())]
