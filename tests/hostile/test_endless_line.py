"""Attack: a line that never ends. Outcome: capped like any other output."""

import pytest

from tests.hostile.conftest import ANSWER, Arena

pytestmark = pytest.mark.anyio

LINES = {
    "in small writes": "import sys\nwhile True:\n    sys.stdout.write('x')",
    "in large writes": "import os\nwhile True:\n    os.write(1, b'x' * (1 << 20))",
    "of wide characters": "import sys\nwhile True:\n    sys.stdout.write('\\N{PILE OF POO}' * 1000)",
    "as the result": "'x' * (4 << 20)",
    "as an error": "raise ValueError('x' * (4 << 20))",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
async def test_an_endless_line_is_capped(arena: Arena, line: str) -> None:
    result = await arena.attack(line)
    assert result.duration < ANSWER
    assert len(result.stdout.text) < 10_000 and len(result.stderr.text) < 10_000
    assert len(result.result or "") <= 20_100
    assert result.status == ("output_limit" if "while" in line or "raise" in line else "ok"), result.status


async def test_a_long_line_is_shown_with_head_and_tail(arena: Arena) -> None:
    result = await arena.attack("import sys\nsys.stdout.write('head' + 'x' * 100_000 + 'tail')\nNone")
    assert result.status == "ok"
    assert result.stdout.text.startswith("head") and result.stdout.text.endswith("tail")
    assert result.stdout.omitted == 100_008 - (8 << 10)
    assert [artifact.size for artifact in result.artifacts] == [100_008]
