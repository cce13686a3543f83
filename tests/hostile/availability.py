"""Attacks on availability, by name: code that takes time, memory, disk or other shared resources from others.

They include the attacks of the tests, and more.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.hostile.calls import NONCE
from tests.hostile.counters import COUNTERS
from tests.hostile.test_archive_bombs import BOMBS as ARCHIVES
from tests.hostile.test_closed_descriptors import ATTACKS as CLOSED
from tests.hostile.test_cpu_time import SPENDERS
from tests.hostile.test_daemon import DAEMON
from tests.hostile.test_endless_line import LINES
from tests.hostile.test_fork_bomb import BOMBS as FORKS
from tests.hostile.test_kill_signals import KILLS
from tests.hostile.test_memory_bomb import BOMBS as MEMORY
from tests.hostile.test_output_flood import FLOODS
from tests.hostile.test_signals_ignored import STUBBORN
from tests.hostile.test_sleep_forever import SLEEPS
from tests.hostile.test_socket_buffers import BUFFERS, LEAST
from tests.hostile.test_thread_bomb import BOMBS as THREADS


@dataclass(frozen=True)
class Attack:
    """Code of one run."""

    code: str
    language: str = "python"
    lasts: bool = False
    """Whether the code keeps running after its run has answered."""


def _of(group: str, codes: Mapping[str, str]) -> dict[str, Attack]:
    return {f"{group}: {name}": Attack(code) for name, code in codes.items()}


_BOMBS = {
    "recursion": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): f()\nf()",
    "recursion in C": "import sys\nsys.setrecursionlimit(10 ** 9)\ndeep = []\nwhile len(repr(deep := [deep])): pass",
    "deflate, in memory": """
import zlib
make = zlib.compressobj()
bomb = b''.join(make.compress(bytes(1 << 20)) for _ in range(200)) + make.flush()
zlib.decompress(bomb)
""",
    "regular expression": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "one huge power": "7 ** 7 ** 10",
    "processes that come and go": "import os\nwhile True:\n    if not os.fork(): os._exit(0)\n    os.wait()",
}

_ENDLESS = "import itertools, os\nfor number in itertools.count():\n    "
_FILLERS = {
    "one file": _ENDLESS + "open('one', 'ab').write(bytes(1 << 20))",
    "many files": _ENDLESS + "open(str(number), 'wb').write(bytes(10_000))",
    "/tmp": _ENDLESS + "open('/tmp/one', 'ab').write(bytes(1 << 20))",
    "/dev/shm": _ENDLESS + "open('/dev/shm/one', 'ab').write(bytes(1 << 20))",
    "everywhere": _ENDLESS + "for place in ('/sandbox', '/home', '/tmp', '/dev/shm'):\n"
    "        try: open(f'{place}/{number}', 'wb').write(bytes(1 << 20))\n        except OSError: pass",
    "empty files": _ENDLESS + "open(str(number), 'x').close()",
    "files in three folders": """
for folder in ('/sandbox', '/home', '/tmp'):
    for number in range(10_000): open(f'{folder}/{number}', 'x').close()
1 / 0
""",
    "folders": _ENDLESS + "os.mkdir(str(number))",
    "folders in folders": _ENDLESS + "os.mkdir('in')\n    os.chdir('in')",
    "a huge file": "import os\nos.posix_fallocate(os.open('huge', os.O_CREAT | os.O_RDWR), 0, 1 << 40)",
    "sparse files": "for number in range(100): open(str(number), 'wb').truncate(16_000_000)",
    "pipes": """
import fcntl, os
kept = []
while True:
    kept.append(os.pipe())
    fcntl.fcntl(kept[-1][1], fcntl.F_SETPIPE_SZ, 1 << 20)
    os.set_blocking(kept[-1][1], False)
    os.write(kept[-1][1], bytes(1 << 20))
""",
    "mappings": "import mmap\nkept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ if len(kept) % 2 else 3))",
    **{f"buffers of {kind}": "PROCESSES, PAIRS = 10, 100\n" + BUFFERS.replace("MAKE", kind) for kind in LEAST},
    **{name: counter.take for name, counter in COUNTERS.items()},
}

_REPORT = '{"status": "ok", "exit_code": 0, '
_FLOODS = {
    "zeros": "import os\nwhile True:\n    os.write(1, bytes(65536))",
    "100,000 lines": "for number in range(100_000): print(number)",
    "one line for each write": "import os\nwhile True:\n    os.write(1, b'x\\n')",
    "empty frames": NONCE + "block = frame(b'+') * 500\nwhile True:\n    os.write(1, block)",
    "surplus frames": NONCE + "block = frame(b'+', b'x' * 4000) * 500\nwhile True:\n    os.write(1, block)",
    "half frames": NONCE + "block = frame(b'+')[:-1] * 500\nwhile True:\n    os.write(1, block)",
    "a report over the limit": NONCE + f"end(b'{_REPORT}\"result\": \"' + b'x' * 1_500_000 + b'\"}}')",
    "a report of the maximum size": NONCE + f"end(b'{_REPORT}\"result\": \"' + b'\\\\\\\\' * 500_000 + b'\"}}')",
    "a deep report": NONCE + f"end(b'{_REPORT}\"x\": ' + b'[' * 1_000_000)",
    "a report of files": NONCE + f"end(b'{_REPORT}\"files\": [' + b'\"a\",' * 260_000 + b'\"a\"]}}')",
    "a report of wrong types": NONCE + f"end(b'{_REPORT}\"files\": [' + b'0,' * 500_000 + b'0]}}')",
    "a report of nested lists": NONCE
    + f"end(b'{_REPORT}\"x\": [' + b','.join([b'[' * 900 + b']' * 900] * 570) + b']}}')",
    "a report of values": NONCE
    + f'end(b\'{_REPORT}"inspection": {{"values": {{"x": "[\' + b\'[],\' * 340_000 + b\'[]]"}}}}}}\')',
    "a report of figures": NONCE
    + f"""
import json
names = [str(number) + 'x' * 200 + '.png' for number in range(100)]
for name in names:
    open(os.environ['SANDBOX_FIGURES'] + '/' + name, 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(100_000))
end(b'{_REPORT}\"figures\": ' + json.dumps(names).encode() + b'}}')
""",
    "artifacts": "for number in range(500): open(str(number), 'wb').write(bytes(20_000))",
    "large artifacts": "for number in range(15): open(str(number), 'wb').write(bytes(1_000_000))",
}

_SPINS = {
    "a loop": "while True: pass",
    "in the kernel": SPENDERS["the kernel"],
    "in the kernel's memory": "import mmap\nwhile True: mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()",
    "threads": SPENDERS["threads"],
    "children": SPENDERS["children that leave their group and are not waited for"],
    "a chain of children": SPENDERS["a chain in which each ends as soon as its child runs"],
    "sleep": SLEEPS["sleep"],
    "a FIFO": SLEEPS["a FIFO"],
}

_OTHERS = {
    "spin: bash": Attack("while :; do :; done", "bash"),
    "spin: bash that ignores SIGINT": Attack("trap '' INT; while :; do :; done", "bash"),
    "spin: node": Attack("for (;;);", "javascript"),
    "spin: node that ignores SIGINT": Attack("process.on('SIGINT', () => {}); for (;;);", "javascript"),
    "bomb: regular expression of node": Attack("/^(a+)+$/.test('a'.repeat(40) + 'b')", "javascript"),
    "bomb: memory of node": Attack(
        "const kept = []; for (;;) kept.push(new Array(1e6).fill(kept.length))", "javascript"
    ),
    "bomb: processes of bash": Attack("f() { f | f & f; }; f; wait", "bash"),
    "flood: bash": Attack("yes", "bash"),
    "flood: node": Attack("for (;;) console.log('x'.repeat(1000))", "javascript"),
    "kill: bash, itself": Attack("kill -9 $$", "bash"),
    "kill: bash, everything": Attack("kill -9 -1", "bash"),
    "spin: a daemon": Attack(DAEMON + "daemon(lambda: None)", lasts=True),
    "spin: after a forged end": Attack(
        NONCE
        + f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nend(b'{_REPORT[:-2]}}}')\nwhile True: pass",
        lasts=True,
    ),
    "flood: forged ends of runs": Attack(NONCE + f"while True:\n    end(b'{_REPORT[:-2]}}}')", lasts=True),
    "fork bomb: that outlives its run": Attack(FORKS["that outlives its run"], lasts=True),
}

_KILLS = {
    "everything but itself": "import os\nos.kill(-1, 9)",
    "the first process, by every signal": "import os\nfor number in range(65):\n    try: os.kill(1, number)\n    except OSError: pass",
    **{f"descriptors, {name}": code for name, code in CLOSED.items()},
    **KILLS,
}

ATTACKS: Mapping[str, Attack] = {
    **_of("fork bomb", FORKS),
    **_of("thread bomb", THREADS),
    **_of("memory bomb", MEMORY),
    **_of("archive bomb", ARCHIVES),
    **_of("bomb", _BOMBS),
    **_of("filler", _FILLERS),
    **_of("flood", FLOODS),
    **_of("endless line", LINES),
    **_of("flood", _FLOODS),
    **_of("uninterruptible", STUBBORN),
    **_of("spin", _SPINS),
    **_of("kill", _KILLS),
    **_OTHERS,
}
