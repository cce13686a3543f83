"""Attack: using inherited descriptors. Outcome: the code's processes have only known descriptors, in every language,
and none of them leads to the host."""

import json

import pytest

from tests.hostile.conftest import Arena

pytestmark = pytest.mark.anyio

LIST = "ls -l /proc/self/fd | sed -n 's/.* \\([0-9]*\\) -> /\\1 /p'"
HARMLESS = ("pipe:[", "/dev/null", "/proc/", "anon_inode:[event", "anon_inode:[io_uring", "socket:[")
OURS = ("/opt/handlers/", "/sandbox/", "/tmp/", "/home/")


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("bash", LIST),
        ("python", f"import subprocess\nsubprocess.run({LIST!r}, shell=True, close_fds=False)\nNone"),
        ("javascript", f"require('child_process').execSync({json.dumps(LIST)}, {{stdio: 'inherit'}}); null"),
    ],
)
async def test_a_child_inherits_only_its_streams(arena: Arena, language: str, code: str) -> None:
    result = await arena.attack(code, language=language)
    assert result.status == "ok", result
    found = dict(line.split(" ", 1) for line in result.stdout.text.splitlines())
    # The descriptor of the listed folder itself does not count.
    inherited = {number: target for number, target in found.items() if "/fd" not in target}
    assert set(inherited) == {"0", "1", "2"}, found
    assert all(target.startswith(("pipe:[", "/dev/null", "socket:[")) for target in inherited.values()), found


async def test_the_runner_itself_has_no_descriptor_of_the_host(arena: Arena) -> None:
    output = await arena.check(
        "import json, os\nprint(json.dumps({fd: os.readlink(f'/proc/self/fd/{fd}') "
        "for fd in os.listdir('/proc/self/fd') if os.path.lexists(f'/proc/self/fd/{fd}')}))"
    )
    found: dict[str, str] = json.loads(output)
    assert [target for target in found.values() if not target.startswith(HARMLESS + OURS)] == [], found
    # Someone else would have the other end of a socket.
    assert [fd for fd, target in found.items() if target.startswith("socket:[") and int(fd) > 2] == [], found
