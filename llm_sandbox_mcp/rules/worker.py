"""The process in which code is parsed, apart from the server: grammars are C code, and their input is not trusted.

It reads one line of settings, and answers with the languages that cannot be judged. Then it reads requests, each a line
and the code, and answers each with one line of JSON, which the server does not trust. It imports nothing of the server,
and has no files or sockets except its pipes.
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
    judges, problems = _ready(settings)
    # A check creates no reference cycles, and looking for them would take a third of its time.
    gc.disable()
    _confine()
    _answer(answers, {"problems": problems})
    while line := requests.readline():
        request = json.loads(line)
        code = requests.read(request["size"])
        # The kernel ends this process when its processor time runs out, whatever it does then.
        signal.setitimer(signal.ITIMER_PROF, settings["timeout"])
        name = request["language"]
        answer = {"unready": problems[name]} if name in problems else _judge(judges[name], code)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _answer(answers, answer)


def _ready(settings: Mapping[str, Any]) -> tuple[dict[str, Judge], dict[str, str]]:
    judges, problems = {}, {}
    for name, given in settings["languages"].items():
        try:
            language = Language(importlib.import_module(given["module"]).language())
            grammar = Grammar(
                language,
                given["query"],
                importers=given["importers"],
                builtin=given["builtin"],
                dotted=given["dotted"],
                noise=given["noise"],
                signs=given["signs"],
            )
            judges[name] = Judge(settings["rules"], given["rules"], grammar, settings["pattern_timeout"])
        except ImportError:
            problems[name] = "absent"
        except (ValueError, TypeError, AttributeError) as error:  # not a grammar, or a query that it rejects
            problems[name] = f"{error}"[:_LONGEST]
    return judges, problems


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
