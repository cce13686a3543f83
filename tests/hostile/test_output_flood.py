"""Attack: endless output. Outcome: it is cut and stopped within a second, and the server's memory stays bounded."""

from pathlib import Path

import pytest

from tests.engines import MIB
from tests.hostile.conftest import ANSWER, Arena

pytestmark = pytest.mark.anyio

FLOODS = {
    "stdout": "while True:\n    print('x' * 1000)",
    "stderr": "import sys\nwhile True:\n    print('x' * 1000, file=sys.stderr)",
    "both": "import os\nwhile True:\n    os.write(1, b'x' * 65536)\n    os.write(2, b'y' * 65536)",
    "stderr, with SIGINT ignored": """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    os.write(2, b'x' * 65536)
""",
    "of children": "import subprocess\nsubprocess.run('yes & yes >&2 & yes & wait', shell=True)",
    "of children that left the group": """
import subprocess, time
for _ in range(3):
    subprocess.Popen(['yes'], start_new_session=True)
time.sleep(1000)
""",
    "by splice": "import os\nzeros = os.open('/dev/zero', os.O_RDONLY)\nwhile True: os.splice(zeros, 1, 1 << 20)",
    "newlines": "import os\nwhile True:\n    os.write(1, b'\\n' * 65536)",
    "frame starts": "import os\nwhile True:\n    os.write(1, b'\\x1e' * 65536)",
    "not UTF-8": "import os\nwhile True:\n    os.write(1, b'\\xff\\0\\xc3' * 20000)",
}


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError


@pytest.mark.in_turns
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_a_flood_is_cut_and_stopped(arena: Arena, flood: str) -> None:
    before = resident()
    streamed = 0

    async def count(stream: str, text: str) -> None:
        nonlocal streamed
        streamed += len(text)

    result = await arena.attack(flood, on_output=count)
    assert result.status == "output_limit", result.status
    assert any("stopped after printing 1MiB" in note for note in result.notes)
    assert result.duration < ANSWER
    assert len(result.stdout.text) < 10_000 and len(result.stderr.text) < 10_000
    assert 0 < result.stdout.omitted + result.stderr.omitted <= MIB
    assert streamed <= MIB
    assert resident() - before < 20 * MIB


@pytest.mark.parametrize(
    ("language", "flood"),
    [
        ("bash", "yes"),
        ("bash", "trap '' INT; yes >&2"),
        ("javascript", "for (;;) console.log('x'.repeat(1000))"),
        ("javascript", "process.on('SIGINT', () => {}); for (;;) console.error('x'.repeat(1000))"),
    ],
)
async def test_a_flood_in_other_languages_is_cut_and_stopped(arena: Arena, language: str, flood: str) -> None:
    result = await arena.attack(flood, language=language)
    assert result.status == "output_limit", result.status
    assert result.duration < 2 * ANSWER


async def test_a_flood_that_stops_at_the_interrupt_keeps_state(arena: Arena) -> None:
    result = await arena.attack("kept = 1\nwhile True:\n    print('x' * 1000)")
    assert (result.status, result.session_state) == ("output_limit", "kept")
    assert await arena.check("print(kept)", result.session_id) == "1\n"


BEHIND = {
    "python": "import subprocess, time\nfor _ in range(2): subprocess.Popen(['yes'], start_new_session=True)\ntime.sleep(1000)",
    "javascript": "const { spawn } = require('child_process');\n"
    "for (let i = 0; i < 2; i++) spawn('yes', { stdio: 'inherit', detached: true });\nawait new Promise(() => {})",
    "r": "for (i in 1:2) system('setsid yes &')\nSys.sleep(1000)",
    "ruby": "2.times { Process.spawn('yes', pgroup: true) }\nsleep",
    "bash": "yes & yes >&2 & sleep 1000",
    "java": 'for (int i = 0; i < 2; i++) new ProcessBuilder("setsid", "yes").inheritIO().start();\nThread.sleep(1000000);',
    "cpp": '#include <cstdlib>\nint main() { return system("setsid yes & setsid yes & sleep 1000"); }',
    "go": 'package main\nimport ("os"; "os/exec"; "time")\nfunc main() { for i := 0; i < 2; i++ {'
    ' c := exec.Command("setsid", "yes"); c.Stdout = os.Stdout; c.Start() }; time.Sleep(1 << 40) }',
}
"""Processes that outlive the interrupt and go on printing."""
HELLO = {
    "python": "print('hello')",
    "javascript": "console.log('hello')",
    "r": "cat('hello\\n')",
    "ruby": "puts 'hello'",
    "bash": "echo hello",
    "java": 'System.out.println("hello");',
    "cpp": '#include <cstdio>\nint main() { puts("hello"); }',
    "go": 'package main\nimport "fmt"\nfunc main() { fmt.Println("hello") }',
}


@pytest.mark.parametrize("limits", [{"limits": {"memory": 256 * MIB, "disk": 32 * MIB}}], indirect=True)
@pytest.mark.parametrize("language", BEHIND)
async def test_what_a_flood_leaves_behind_is_not_in_the_output_of_later_runs(arena: Arena, language: str) -> None:
    first = await arena.attack(BEHIND[language], language=language)
    assert first.status == "output_limit", first
    if language not in ("java", "cpp", "go"):  # the streams of a program end with it
        assert (first.exit_code, first.session_state) == (130, "fresh"), first
        assert any("went on printing" in note for note in first.notes), first.notes
    again = await arena.execute(HELLO[language], language=language, session_id=first.session_id)
    assert (again.status, again.stdout.text, again.stderr.text) == ("ok", "hello\n", ""), again


async def test_a_flood_between_runs_is_bounded_too(arena: Arena) -> None:
    # The flood begins after the first run: a flood that begins during a run is ended with the run.
    first = await arena.attack("""
import subprocess
flood = subprocess.Popen(['sh', '-c', 'until [ -e go ]; do sleep 0.01; done; exec yes'])
""")
    assert first.status == "ok"
    await arena.service.files.copy_in(first.session_id, "go", b"")
    second = await arena.attack("import time\ntime.sleep(100)", session_id=first.session_id)
    assert second.status == "output_limit", second.status
