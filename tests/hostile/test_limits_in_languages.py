"""Attack: exceeding the limits in languages with their own memory managers, threads and compilers. Outcome: the same
status as in Python, both while a program is built and while it runs."""

import pytest

from tests.engines import MIB
from tests.hostile.conftest import ANSWER, Arena

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("control_groups"), pytest.mark.only_in_all]

ROOM = {"limits": {"memory": 256 * MIB, "disk": 32 * MIB, "file_size": 16 * MIB, "files": 2000, "cpu_time": 20.0}}

PAST: dict[str, dict[str, str]] = {
    "out_of_memory": {
        "go": "package main\nfunc main() { var l [][]byte\n for { b := make([]byte, 1<<20); for i := range b { b[i] = 1 }; l = append(l, b) } }",
        "cpp": "#include <cstdlib>\n#include <cstring>\nint main() { for (;;) memset(malloc(1 << 20), 1, 1 << 20); }",
        "cpp, while it is built": '#include "/dev/zero"\nint main() {}',
        "javascript": "const l = []; for (;;) l.push(new Array(100000).fill(1.5))",
        "r": "l <- list(); while (TRUE) l[[length(l) + 1]] <- rep(1.5, 1e6)",
        "ruby": "l = []; loop { l << 'x' * (1 << 20) }",
        "bash": "tail /dev/zero; false",
    },
    "process_limit": {
        "java": "try { for (;;) new Thread(() -> { try { Thread.sleep(1000000); } catch (Exception e) { } }).start(); }"
        " catch (Throwable e) { System.exit(1); }",
        "go": 'package main\nimport ("runtime"; "time")\nfunc main() { for i := 0; i < 200; i++ { go func() { runtime.LockOSThread(); time.Sleep(1 << 40) }() }; time.Sleep(1 << 40) }',
        "cpp": "#include <thread>\nint main() { for (;;) std::thread([] { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); }).detach(); }",
        "javascript": "const { execFileSync, spawn } = require('child_process');\n"
        "for (let i = 0; i < 200; i++) spawn('sleep', ['1000']).on('error', () => {});\nexecFileSync('true')",
        "ruby": "1000.times { Thread.new { sleep } }",
    },
    "disk_limit": {
        "javascript": "for (let i = 0;; i++) require('fs').writeFileSync(`.${i}`, Buffer.alloc(1 << 19))",
        "ruby": "(0..).each { |i| File.binwrite(\".#{i}\", 'x' * (1 << 19)) }",
    },
    "file_limit": {
        "go": 'package main\nimport "os"\nfunc main() { f, _ := os.Create(".x"); b := make([]byte, 1<<20); for { if _, e := f.Write(b); e != nil { panic(e) } } }',
        "r": "writeBin(raw(2e7), '.x')",
    },
    "output_limit": {
        "cpp, while it is built": '#pragma message "' + "x" * 100 + '"\n',
    },
}
TIMES = {"cpp, while it is built": 6000}
"""How often the code is repeated."""
CASES = [(status, how) for status, codes in PAST.items() for how in codes]


@pytest.mark.parametrize("limits", [ROOM], indirect=True)
@pytest.mark.parametrize(("status", "how"), CASES, ids=[f"{status}-{how}" for status, how in CASES])
async def test_a_limit_has_its_status_in_every_language(arena: Arena, status: str, how: str) -> None:
    code = PAST[status][how] * (TIMES.get(how, 1) if status == "output_limit" else 1)
    result = await arena.attack(code, language=how.partition(",")[0], timeout=2 * ANSWER)
    expected = "error" if status == "process_limit" and not arena.counts_processes() else status
    assert result.status == expected, result
