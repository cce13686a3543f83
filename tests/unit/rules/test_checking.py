"""What becomes of what the worker finds, on a worker that answers what a test says."""

import json
from collections.abc import Mapping
from typing import cast

import anyio
import pytest

from llm_sandbox_mcp.aio.tasks import open_tasks
from llm_sandbox_mcp.base.errors import PolicyDenied
from llm_sandbox_mcp.rules.checking import Checker, Unready
from llm_sandbox_mcp.rules.process import Ended, OutOfTime, Worker
from llm_sandbox_mcp.rules.section import Rule, RulesSection

from .judges import LANGUAGES

pytestmark = pytest.mark.anyio

PYTHON = LANGUAGES["python"]
RULES = (
    Rule(name="files", severity="low", modules=("shutil",), advice="copy nothing"),
    Rule(name="programs", severity="medium", modules=("subprocess",), languages=("python",)),
    Rule(name="sockets", severity="high", modules=("socket",), languages=("python",)),
)
LOW, MEDIUM, HIGH = range(3)


class Answering:
    """A worker; `answer` is what it says, or how it fails."""

    def __init__(self, answer: Mapping[str, object] | Exception) -> None:
        self._answer = answer
        self.warmed = anyio.Event()

    async def ask(self, request: Mapping[str, object], code: bytes) -> bytes:
        return await self.problems()

    async def problems(self) -> bytes:
        if isinstance(self._answer, Exception):
            raise self._answer
        return json.dumps(self._answer).encode()

    async def warm(self) -> None:
        self.warmed.set()


def hits(*rules: int) -> list[dict[str, object]]:
    return [{"rule": rule, "line": line, "what": f"thing {line}"} for line, rule in enumerate(rules, 1)]


def section(block: str = "high") -> RulesSection:
    return RulesSection.model_validate(
        {"preset": "", "block": block, "severity": {}, "timeout": "5s", "pattern_timeout": "1s", "custom": ()}
    )


async def checked(
    answer: Mapping[str, object] | Exception, *, block: str = "high", rules: tuple[Rule, ...] = RULES
) -> list[str]:
    """The notes on code in Python whose check ends with that answer."""
    async with open_tasks() as tasks:
        checker = Checker(rules, section(block), LANGUAGES, tasks)
        checker.worker = cast(Worker, worker := Answering(answer))
        try:
            return [str(note) for note in await checker.check(PYTHON, "import x")]
        finally:
            if isinstance(answer, Exception):
                await worker.warmed.wait()  # the next request does not wait for its start


async def refusal(answer: Mapping[str, object] | Exception, block: str = "high") -> str:
    with pytest.raises(PolicyDenied) as raised:
        await checked(answer, block=block)
    return str(raised.value)


@pytest.mark.parametrize(
    ("block", "refused"), [("low", {LOW, MEDIUM, HIGH}), ("medium", {MEDIUM, HIGH}), ("high", {HIGH}), ("", set())]
)
async def test_code_is_refused_from_the_severity_on_that_the_profile_blocks(block: str, refused: set[int]) -> None:
    for rule in (LOW, MEDIUM, HIGH):
        if rule in refused:
            assert f"line 1 thing 1 (rule {RULES[rule].name}, " in await refusal({"findings": hits(rule)}, block)
        else:
            [warning] = await checked({"findings": hits(rule)}, block=block)
            assert warning.startswith(f"warning: line 1 thing 1 (rule {RULES[rule].name}, ")


async def test_a_refusal_names_only_what_it_refuses() -> None:
    assert await refusal({"findings": hits(LOW, HIGH)}) == (
        "refused before it ran: line 2 thing 2 (rule sockets, severity high); "
        "remove that, or ask the operator to allow it"
    )


@pytest.mark.parametrize(("found", "more", "rest"), [(5, 0, 0), (6, 0, 1), (5, 1, 1), (8, 3, 6), (1, 2, 2)])
async def test_five_findings_are_named_and_the_others_are_counted(found: int, more: int, rest: int) -> None:
    answer = {"findings": hits(*[HIGH] * found), "more": more}
    text = await refusal(answer)
    assert text.count("thing") == min(found, 5)
    assert (f"; and {rest} more; remove that" in text) == bool(rest)
    assert text.count(" more") == bool(rest)
    *warnings, last = await checked(answer, block="")
    assert [last] == ([f"warning: the rules found {rest} more"] if rest else [last])
    assert len([one for one in (*warnings, last) if "thing" in one]) == min(found, 5)


async def test_code_with_more_findings_than_are_told_is_refused_as_one_of_them_may_be_blocked() -> None:
    assert "line 1 thing 1 (rule files, severity low: copy nothing); and 1 more;" in await refusal(
        {"findings": hits(LOW), "more": 1}
    )


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ({"slow": "(a+)+"}, "the pattern '(a+)+' of the rules takes longer than 1s on this code"),
        ({"problem": "too deep"}, "the rules cannot judge the code, so the code did not run: 'too deep'"),
        ({"unready": "absent"}, "rules apply to python, but its grammar is not installed"),
        ({"unready": "line 3"}, "rules apply to python, but its grammar rejects its names.scm ('line 3')"),
        ({"findings": 1}, "the process that judges code gave an invalid answer"),
        (Ended("ended (SIGKILL)"), "the process that judges code ended (SIGKILL)"),
        (OutOfTime(), "the rules could not judge the code within 5s"),
    ],
    ids=["slow", "problem", "no grammar", "bad grammar", "invalid", "ended", "out of time"],
)
@pytest.mark.parametrize("block", ["high", ""])
async def test_code_that_cannot_be_judged_is_refused_whatever_is_blocked(
    answer: Mapping[str, object] | Exception, cause: str, block: str
) -> None:
    assert (await refusal(answer, block)).startswith(cause)


async def test_code_is_not_judged_if_no_rule_is_about_its_language() -> None:
    about_bash = RULES[0].model_copy(update={"languages": ("bash",)})
    assert await checked({"problem": "it was judged"}, rules=(about_bash,)) == []


async def test_every_language_is_unready_for_its_own_reason() -> None:
    async with open_tasks() as tasks:
        checker = Checker(RULES[1:], section(), LANGUAGES, tasks)
        checker.worker = cast(Worker, Answering({"problems": {"python": "absent", "bash": "absent"}}))
        found = await checker.unready()
        assert list(found) == ["python"]
        checker.worker = cast(Worker, Answering(Ended("ended")))
        assert (await checker.unready())["python"] == Unready(
            "but the process that judges code does not start", "make sure that it can use 1 GiB of memory"
        )
