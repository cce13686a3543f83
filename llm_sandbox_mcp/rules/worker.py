"""The process in which code is parsed, apart from the server: grammars are C code, and their input is not trusted.

It reads one line of settings, and answers when it has loaded the grammars. Then it reads requests, each a line and the
code, and answers each with one line of JSON, which the server does not trust. A request without a language asks which
languages cannot be judged. It imports nothing of the server, and has no files or sockets except its pipes.
"""

import gc
import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any

from tree_sitter import Language

from .judging import Judge, TooSlow
from .naming import Grammar

MOST = 100
"""Findings in one answer at most."""
_LONGEST = 200
_MEMORY = 1 << 30
_NOBODY = 65534


def main() -> None:
    """Answers requests until the input ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    settings = json.loads(requests.readline())
    judges = _Judges(settings)
    # A check creates no reference cycles, and looking for them would take a third of its time.
    gc.disable()
    _confine()
    _answer(answers, {})
    while line := requests.readline():
        request = json.loads(line)
        code = requests.read(request["size"])
        if "language" not in request:
            _answer(answers, {"problems": judges.all_problems()})
            continue
        name = request["language"]
        judge = judges.of(name)
        # The kernel ends this process when its processor time runs out, whatever it does then.
        signal.setitimer(signal.ITIMER_PROF, settings["timeout"])
        answer = {"unready": judges.problems[name]} if judge is None else _judge(judge, code)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _answer(answers, answer)


class _Judges:
    """The judge of each language, made when its first code comes: compiling the queries of all takes half a second."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._loaded: dict[str, Language] = {}
        self._made: dict[str, Judge] = {}
        self.problems: dict[str, str] = {}
        """Why code of a language cannot be judged, as far as this is known."""
        for name, given in settings["languages"].items():
            try:
                self._loaded[name] = Language(importlib.import_module(given["module"]).language())
            except ImportError:
                self.problems[name] = "absent"
            except (ValueError, TypeError, AttributeError) as error:  # not a grammar
                self.problems[name] = f"{error}"[:_LONGEST]

    def of(self, name: str) -> Judge | None:
        """The judge of a language; None if its code cannot be judged: `problems` then says why."""
        if name not in self._made and name not in self.problems:
            try:
                self._made[name] = self._make(name)
            except (ValueError, TypeError, AttributeError) as error:  # a query that the grammar rejects
                self.problems[name] = f"{error}"[:_LONGEST]
        return self._made.get(name)

    def all_problems(self) -> dict[str, str]:
        """Why code cannot be judged, for each language of which this is so."""
        for name in self._loaded:
            self.of(name)
        return self.problems

    def _make(self, name: str) -> Judge:
        given = self._settings["languages"][name]
        grammar = Grammar(
            self._loaded[name],
            given["query"],
            importers=given["importers"],
            builtin=given["builtin"],
            dotted=given["dotted"],
            noise=given["noise"],
            signs=given["signs"],
        )
        return Judge(self._settings["rules"], given["rules"], grammar, self._settings["pattern_timeout"])


def _judge(judge: Judge, code: bytes) -> dict[str, object]:
    try:
        found = judge.judge(code)
    except TooSlow as pattern:
        return {"slow": str(pattern)}
    except RecursionError:
        return {"problem": "its nesting is too deep"}
    shown = [{"rule": hit.rule, "line": hit.line, "what": hit.what[:_LONGEST]} for hit in found[:MOST]]
    return {"findings": shown, "more": len(found) - len(shown)}


def _confine() -> None:
    """Limits the process to what it still needs; all imports are already done."""
    for limit, value in (
        *(((resource.RLIMIT_AS, _MEMORY),) if sys.platform == "linux" else ()),  # macOS refuses this limit
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 3),
    ):
        _, most = resource.getrlimit(limit)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (value, value))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _answer(answers: Any, answer: Mapping[str, object]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    main()
