"""The process in which code is judged: it is started once, and another one takes the place of one that ended."""

import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llm_sandbox_mcp.rules.process import Ended, OutOfTime, Worker
from llm_sandbox_mcp.rules.section import Rule
from llm_sandbox_mcp.rules.worker import MOST

from .judges import LANGUAGES

pytestmark = pytest.mark.anyio

CALLED = ("x" * 300, *(f"call_{number}" for number in range(1, MOST + 1)))
"""One more than is told of."""
LIMITS = {"Max core file size": (0, 0), "Max file size": (0, 0), "Max open files": (3, 3)}


@pytest.fixture
def timeout() -> float:
    """Seconds of processor time for one request."""
    return 5.0


@pytest.fixture
async def worker(timeout: float) -> AsyncIterator[Worker]:
    python = LANGUAGES["python"]
    assert python.handler.grammar is not None
    grammar = python.handler.grammar.model_dump(exclude={"install"})
    languages = {
        "python": {"rules": [0], "query": (python.folder / "names.scm").read_text(), **grammar},
        "other": {"rules": [0], "query": "", **grammar, "module": "no_such_grammar"},
        "bad": {"rules": [0], "query": "(", **grammar},
    }
    rule = Rule(name="a", modules=("os",), calls=CALLED).model_dump()
    worker = Worker({"rules": [rule], "languages": languages, "timeout": timeout, "pattern_timeout": 1.0})
    try:
        yield worker
    finally:
        await worker.close()
        assert worker.pid is None


async def asked(worker: Worker, language: str, code: bytes = b"import os") -> dict[str, object]:
    answer = json.loads(await worker.ask({"language": language}, code))
    assert isinstance(answer, dict)
    return answer


async def test_one_process_answers_until_it_ends_and_then_another(worker: Worker) -> None:
    assert worker.pid is None
    problems = json.loads(await worker.problems())["problems"]
    assert problems["other"] == "absent"
    assert problems.keys() == {"other", "bad"}
    first = worker.pid
    assert first is not None
    for _ in range(2):
        found = await asked(worker, "python")
        assert found == {"findings": [{"rule": 0, "line": 1, "what": "imports os"}], "more": 0}
        assert await asked(worker, "other") == {"unready": "absent"}
        assert worker.pid == first
    with pytest.raises(Ended, match=r"ended \(status 1\)"):
        await asked(worker, "unknown")
    assert worker.pid is None
    assert (await asked(worker, "python", b"x"))["findings"] == []
    assert worker.pid not in (None, first)


async def test_a_query_that_its_grammar_rejects_is_named_when_code_of_its_language_comes(worker: Worker) -> None:
    for code in (b"", b"x"):
        answer = await asked(worker, "bad", code)
        assert answer.keys() == {"unready"}
        assert answer["unready"] == "Unexpected EOF"
    assert (await asked(worker, "python"))["more"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of another process are known only on Linux")
async def test_its_process_can_write_no_file_and_open_none_but_its_streams(worker: Worker) -> None:
    await asked(worker, "python")
    limits = Path(f"/proc/{worker.pid}/limits").read_text()
    most = {name: re.search(rf"^{name} +(\d+) +(\d+)", limits, re.MULTILINE) for name in LIMITS}
    assert {name: found and (int(found[1]), int(found[2])) for name, found in most.items()} == LIMITS


async def test_what_is_found_is_limited_and_the_rest_is_counted(worker: Worker) -> None:
    answer = await asked(worker, "python", "".join(f"{name}()\n" for name in CALLED).encode())
    findings = answer["findings"]
    assert isinstance(findings, list)
    assert (len(findings), answer["more"]) == (MOST, 1)
    assert [one["line"] for one in findings] == [*range(1, MOST + 1)]
    assert [len(one["what"]) for one in findings[:2]] == [200, len("uses call_1")]


@pytest.mark.parametrize("timeout", [0.01])
async def test_code_that_takes_too_long_ends_its_process(worker: Worker) -> None:
    with pytest.raises(OutOfTime):
        await asked(worker, "python", b"import os\n" * 200_000)
    assert worker.pid is None
    assert (await asked(worker, "python", b"import os"))["more"] == 0
