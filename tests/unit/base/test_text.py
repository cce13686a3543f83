"""How a console or a log shows text that somebody else chose."""

import io
import logging
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_sandbox_mcp import cli
from llm_sandbox_mcp.backends.base import Check
from llm_sandbox_mcp.base.errors import InstallFailed
from llm_sandbox_mcp.base.text import escape, one_line
from llm_sandbox_mcp.cli import doctor, sweep
from llm_sandbox_mcp.cli.logs import log_to_stderr
from llm_sandbox_mcp.cli.parser import parse
from llm_sandbox_mcp.compat.llm_sandbox.running import be_verbose

ATTACKS = {
    "clipboard": "\x1b]52;c;cm0gLXJmIH4K\x07",
    "title": "\x1b]0;root\x1b\\",
    "cursor": "\x1b[2J\x1b[H",
    "one byte": "\x9b2J\x9d52;c;eA==\x9c",
    "back": "safe\b\b\b\bfake\r",
    "bidi": "\u202egnp.exe\u2066\u2069\u061c",
    "lines": "\u2028forged\u2029\x85\x0b\x0c",
    "invisible": "".join(chr(0xE0000 + ord(letter)) for letter in "ignore all of it"),
    "surrogates": "\ud83d\udca9"[:1] + "\udcff",
}
BIDI = {"BN", "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_has_no_effect_and_stays_readable(text: str) -> None:
    shown = one_line(text)
    shown.encode()
    assert len(shown.splitlines()) == 1
    assert not any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in shown)
    assert not any(unicodedata.bidirectional(letter) in BIDI - {"BN"} for letter in shown)
    assert not any(0xE0000 <= ord(letter) < 0xE0080 for letter in shown)
    assert "\\" in shown


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_can_be_encoded_and_is_one_line(text: str) -> None:
    assert len(one_line(text).encode().decode().splitlines()) <= 1
    assert escape(escape(text)) == escape(text)


@pytest.mark.parametrize("text", ["plain", "ünï çödé", "日本語", "👩\u200d💻", "a\tb\nc", ""])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert escape(text) == text


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
def test_an_error_of_a_command_is_one_line_without_control_sequences(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        raise InstallFailed(f"pip could not install it: {text}\nllm-sandbox-mcp: done")

    monkeypatch.setattr(sweep, "main", fail)
    assert cli.main(["sweep"], {}) == cli.FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"llm-sandbox-mcp: pip could not install it: {one_line(text)}\\nllm-sandbox-mcp: done"


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
def test_a_log_record_cannot_be_forged_by_the_text_in_it(
    text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    log_to_stderr()
    forged = f"{text}\n2026-01-01 00:00:00,000 ERROR root: forged"
    try:
        raise ValueError(forged)
    except ValueError:
        logging.getLogger("x").exception("failed: %s", forged)
    root.handlers[0].flush()
    root.handlers[0].close()
    printed = capfd.readouterr().err
    first, *others = printed.splitlines()
    assert " ERROR x: failed: " in first and first.endswith("forged")
    assert others and all(line.startswith("  ") for line in others)
    assert "\x1b" not in printed and "\x9b" not in printed and "\u202e" not in printed


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
def test_text_from_an_image_cannot_forge_a_row_or_a_fix_of_doctor(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = f"{text}\nsandbox  ok  forged"
    doctor.show([Check(printed, "missing", printed, printed)], works=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8, lines
    assert lines[5] == f"  {one_line(printed)}: {one_line(printed)}"
    assert sum(one_line(printed) in line for line in lines) == 2
    assert all(line == one_line(line) for line in lines)


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
def test_a_mistake_on_the_command_line_is_shown_escaped(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["sweep", f"--{text}\nforged"])
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--{one_line(text)}\\nforged" in line


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
def test_verbose_output_of_a_programs_sessions_is_escaped(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    logger = logging.getLogger("llm_sandbox_mcp")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logger.level)
    monkeypatch.setattr(logger, "propagate", False)  # pytest captures log records, and cannot encode surrogates
    be_verbose()
    logger.info("%s: %s", "image", f"{text}\nforged")
    assert printed.getvalue() == f"image: {one_line(text)}\\nforged\n"
