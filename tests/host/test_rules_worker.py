"""Text that tries to break the worker that judges it: it is refused or judged in time, and the next code works."""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.errors import PolicyDenied
from llm_sandbox_mcp.languages.languages import Languages, load_languages
from llm_sandbox_mcp.profile.profile import load_profile
from llm_sandbox_mcp.rules.checking import Checker, open_checker
from llm_sandbox_mcp.rules.presets import rules_of

pytestmark = pytest.mark.anyio

MIB = 1 << 20
LANGUAGES = load_languages()
PYTHON = Languages([LANGUAGES["python"]])
"""A worker with one grammar starts in a tenth of the time that all of them take."""

NASTY = {
    "parentheses": "(" * MIB,
    "brackets": "[" * MIB,
    "braces": "{" * MIB,
    "names": "a." * (MIB // 2),
    "calls": "a()." * (MIB // 4),
    "many calls": "f(x)\n" * (MIB // 5),
    "one string": '"' + "x" * (MIB - 2) + '"',
    "quotes": "\"'" * (MIB // 2),
    "substitutions": '"${' * (MIB // 3),
    "interpolations": '"#{' * (MIB // 3),
    "lines": "\n" * MIB,
    "generics": "a<" * (MIB // 2),
    "NUL": "\0" * MIB,
    "all bytes": "".join(map(chr, range(256))) * (MIB // 384),
    "wide characters": "\U0001f600" * (MIB // 4),
    "imports": "import a\n" * (MIB // 9),
    "stars": "from a import *\nb()\n" * (MIB // 20),
    "aliases": "a = b = c = a.b.c\n" * (MIB // 18),
    "code in strings": "eval('exec(1)')\n" * (MIB // 16),
    "macros": "#define A system\n" * (MIB // 17),
    "indents": "\n".join(" " * depth + "if x:" for depth in range(1400)),
}


@asynccontextmanager
async def checking(tmp_path: Path, rules: str, languages: Languages = PYTHON) -> AsyncIterator[Checker]:
    (tmp_path / "profile.toml").write_text(f"[rules]\n{rules}\n")
    section = load_profile(str(tmp_path / "profile.toml")).rules
    with anyio.fail_after(300):
        async with open_checker(rules_of(section), section, languages) as checker:
            yield checker


async def refused(checker: Checker, code: str, language: str = "python") -> str:
    with pytest.raises(PolicyDenied) as caught:
        await checker.check(LANGUAGES[language], code)
    message = str(caught.value)
    assert "\n" not in message
    assert ";" in message
    return message


async def works(checker: Checker) -> None:
    assert "os.system" in await refused(checker, "import os\nos.system('ls')")
    assert await checker.check(LANGUAGES["python"], "print(1)") == []


@pytest.mark.only_in_all(but={"language": "python"})
@pytest.mark.parametrize("language", sorted(LANGUAGES))
async def test_no_text_keeps_code_from_being_judged(language: str, tmp_path: Path) -> None:
    # Only the needed grammars: all of them are loaded again after each text that takes too long.
    languages = Languages(LANGUAGES[name] for name in {language, "python"})
    async with checking(tmp_path, "preset = 'strict'\ntimeout = '100ms'", languages) as checker:
        for name, text in NASTY.items():
            try:
                await checker.check(LANGUAGES[language], text)
            except PolicyDenied as error:
                assert "within 100ms" in str(error) or "ended (SIG" in str(error) or "rule " in str(error), name  # noqa: PT017
    async with checking(tmp_path, "preset = 'strict'", languages) as checker:
        await works(checker)


@pytest.mark.parametrize(
    ("block", "refuses"),
    [("", []), ("low", ["os", "sys", "json"]), ("medium", ["os", "sys"]), ("high", ["os"])],
)
async def test_a_finding_below_the_threshold_is_a_warning_and_any_other_is_a_refusal(
    block: str, refuses: list[str], tmp_path: Path
) -> None:
    severities = {"os": "high", "sys": "medium", "json": "low"}
    custom = ", ".join(
        f"{{ name = '{name}', modules = ['{name}'], severity = '{severity}' }}" for name, severity in severities.items()
    )
    async with checking(tmp_path, f"block = '{block}'\ncustom = [{custom}]") as checker:
        for name, severity in severities.items():
            finding = f"line 2 imports {name} (rule {name}, severity {severity})"
            if name in refuses:
                assert finding in await refused(checker, f"\nimport {name}")
            else:
                assert await checker.check(LANGUAGES["python"], f"\nimport {name}") == [f"warning: {finding}"]


async def test_a_mebibyte_of_data_in_one_literal_can_be_judged(tmp_path: Path) -> None:
    async with checking(tmp_path, "preset = 'strict'\ntimeout = '5s'") as checker:
        assert await checker.check(LANGUAGES["python"], f"data = '{'x' * MIB}'") == []


@pytest.mark.parametrize("key", ["patterns", "lines", "strings"])
async def test_a_pattern_with_exponential_time_is_stopped_wherever_it_searches(key: str, tmp_path: Path) -> None:
    async with checking(tmp_path, f"custom = [{{ name = 'slow', {key} = ['(a|aa)+$'] }}]\ntimeout = '5s'") as checker:
        message = await refused(checker, f"x = '{'a' * 5000}!'; {'a' * 5000}.b")
        assert "takes longer than 50ms" in message
        assert await checker.check(LANGUAGES["python"], "print(1)") == []


async def test_code_that_takes_too_long_to_judge_does_not_run(tmp_path: Path) -> None:
    async with checking(tmp_path, "preset = 'strict'\ntimeout = '20ms'") as checker:
        message = await refused(checker, "import subprocess\n" + "f(x)\n" * 150_000)
        assert message.startswith("the rules could not judge the code within 20ms, so the code did not run; ")
    async with checking(tmp_path, "preset = 'strict'\ntimeout = '30s'") as checker:
        assert await checker.check(LANGUAGES["python"], "import json\n" + "f(x)\n" * 150_000) == []


async def test_a_pattern_that_takes_too_long_is_named(tmp_path: Path) -> None:
    async with checking(tmp_path, "custom = [{ name = 'slow', patterns = ['^(a|a)*$'] }]\ntimeout = '5s'") as checker:
        message = await refused(checker, "a" * 5000 + "!")
        assert "the pattern '^(a|a)*$' of the rules takes longer than 50ms" in message
        assert await checker.check(LANGUAGES["python"], "b = 1") == []


async def test_if_the_worker_is_killed_during_a_check_the_code_is_refused_and_the_next_check_works(
    tmp_path: Path,
) -> None:
    async with checking(tmp_path, "preset = 'production'\ntimeout = '30s'") as checker:
        await works(checker)
        pid = checker.worker.pid
        assert pid is not None
        async with anyio.create_task_group() as tasks:

            async def check() -> None:
                assert "ended (SIGKILL), so the code did not run" in await refused(
                    checker, "f(x)\n" * 200_000 + "import os"
                )

            # The worker is stopped, so the kill always comes in the middle of the check.
            os.kill(pid, signal.SIGSTOP)
            tasks.start_soon(check)
            await anyio.wait_all_tasks_blocked()
            os.kill(pid, signal.SIGKILL)
        await works(checker)
        assert checker.worker.pid != pid


async def test_a_worker_that_died_between_two_checks_is_replaced(tmp_path: Path) -> None:
    async with checking(tmp_path, "preset = 'production'") as checker:
        await works(checker)
        pid = checker.worker.pid
        assert pid is not None
        descriptor = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGKILL)
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        with anyio.fail_after(30):
            while True:
                try:
                    assert await checker.check(LANGUAGES["python"], "print(1)") == []
                    break
                except PolicyDenied as error:
                    # This process may not have noticed yet that the worker is gone.
                    assert "ended (SIGKILL)" in str(error)  # noqa: PT017
        await works(checker)


async def test_the_answer_to_a_cancelled_check_does_not_go_to_the_next_caller(tmp_path: Path) -> None:
    async with checking(tmp_path, "preset = 'production'\ntimeout = '30s'") as checker:
        await works(checker)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(checker.check, LANGUAGES["python"], "import os\n" + "f(x)\n" * 200_000)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await works(checker)


async def test_the_worker_has_no_privileges_and_little_memory(tmp_path: Path) -> None:
    async with checking(tmp_path, "preset = 'production'") as checker:
        await works(checker)
        process = Path(f"/proc/{checker.worker.pid}")
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
        assert "0" not in status["Uid"].split()
        assert int(status["CapEff"], 16) == 0
        assert (process / "environ").read_bytes().count(b"\0") <= 3
        limits = (process / "limits").read_text()
        assert any(line.startswith("Max address space") and str(1 << 30) in line for line in limits.splitlines())
        assert len(os.listdir(process / "fd")) == 3


async def test_the_worker_ends_with_the_scope(tmp_path: Path) -> None:
    async with checking(tmp_path, "preset = 'production'") as checker:
        await works(checker)
        pid = checker.worker.pid
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"module": "tree_sitter_cobol"},
            "but its grammar is not installed, so its code cannot be judged and did not run; pip install",
        ),
        (None, "but its handler.toml has no [grammar]"),
    ],
)
async def test_code_without_a_usable_grammar_is_refused(
    change: Mapping[str, str] | None, reason: str, tmp_path: Path
) -> None:
    python = LANGUAGES["python"]
    grammar = python.handler.grammar
    assert grammar is not None
    other = grammar.model_copy(update=change) if change else None
    changed = type(python)(python.folder, python.handler.model_copy(update={"grammar": other}))
    languages = Languages([changed, LANGUAGES["bash"]])
    async with checking(tmp_path, "preset = 'production'", languages) as checker:
        with pytest.raises(PolicyDenied) as caught:
            await checker.check(changed, "print(1)")
        assert reason in str(caught.value)
        assert await checker.check(LANGUAGES["bash"], "echo 1") == []


async def test_a_language_without_rules_needs_no_grammar(tmp_path: Path) -> None:
    rules = "custom = [{ name = 'a', languages = ['bash'], calls = ['rm'] }]"
    async with checking(tmp_path, rules, Languages([LANGUAGES["bash"], LANGUAGES["r"]])) as checker:
        assert await checker.check(LANGUAGES["r"], "system('ls')") == []
        assert "line 1 uses rm" in await refused(checker, "rm x", "bash")
