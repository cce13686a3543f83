"""Attack: a child process reads the run's nonce from the runner's memory, in every language that has a nonce, and
reports instead of the runner; frames of other runs are sent again. Outcome: what `docs/pages/limits-and-isolation.md` says about forged reports,
and nothing more."""

import json

import pytest

from tests.hostile.calls import NONCE
from tests.hostile.conftest import ANSWER, Arena

pytestmark = pytest.mark.anyio

REPORT = {
    "status": "ok",
    "exit_code": 0,
    "result": "forged",
    "files": ["../../etc/passwd", "/etc/passwd", "..", "own", "none"],
    "figures": ["../../sandbox/own"],
    "session_id": "another",
    "notes": ["all is well"],
}
FORGER = r"""
my %found;
for my $process (glob('/proc/[0-9]*')) {
    next if $process eq "/proc/$$";
    open(my $maps, '<', "$process/maps") or next;
    open(my $memory, '<:raw', "$process/mem") or next;
    while (my $line = <$maps>) {
        my ($at, $end) = $line =~ /^([0-9a-f]+)-([0-9a-f]+) rw/ or next;
        $at = hex($at);
        $end = hex($end);
        for (; $at < $end; $at += 1 << 20) {
            my $size = $end - $at < 1 << 20 ? $end - $at : (1 << 20) + 64;
            sysseek($memory, $at, 0) and sysread($memory, my $data, $size) or last;
            $found{$1} = 1 while $data =~ /(?<![0-9a-f])([0-9a-f]{32})(?![0-9a-f])/g;
        }
    }
}
for my $nonce (keys %found) {
    syswrite(STDOUT, "\x1e$nonce." . length($ARGV[0]) . "\n$ARGV[0]");
    syswrite(STDERR, "\x1e$nonce.0\n");
}
"""
REPORT_ARGUMENT = json.dumps(json.dumps(REPORT))
RUNS = {
    "python": f"import subprocess, time\nsubprocess.run(['perl', 'forger', {REPORT_ARGUMENT}])\ntime.sleep(1000)",
    "javascript": f"require('child_process').spawnSync('perl', ['forger', {REPORT_ARGUMENT}], {{stdio: 'inherit'}});\n"
    "await new Promise((done) => setTimeout(done, 1000000))",
    "r": f"system2('perl', c('forger', shQuote({REPORT_ARGUMENT})))\nSys.sleep(1000)",
    "ruby": f"system('perl', 'forger', {REPORT_ARGUMENT})\nsleep 1000",
    "bash": f"perl forger '{json.dumps(REPORT)}'\nsleep 1000",
}
VALUES = {"python": "x = 7", "javascript": "var x = 7", "r": "x <- 7", "ruby": "x = 7", "bash": "x=7"}
ROOM = {"limits": {"memory": 512 << 20}}


@pytest.mark.parametrize("limits", [ROOM], indirect=True)
@pytest.mark.parametrize("language", RUNS)
async def test_code_that_reads_the_nonce_deceives_only_its_own_session(arena: Arena, language: str) -> None:
    used = await arena.attack(VALUES[language], language=language)
    session = used.session_id
    await arena.service.files.copy_in(session, "forger", FORGER.encode())
    await arena.service.files.copy_in(session, "own", b"own")
    result = await arena.attack(RUNS[language], language=language, session_id=session, timeout=ANSWER)
    forged = result.status == "ok"
    # Where the memory cannot be read, the code keeps running until its timeout, and the result says so.
    assert forged or (result.status == "timeout" and arena.backend != "embedded"), result
    assert (result.session_id, result.session_state) == (session, "kept"), result
    if forged:
        assert (result.exit_code, result.result) == (0, "forged"), result
        assert {artifact.name for artifact in result.artifacts} == {"own"}, result
        _, content = await arena.service.files.read_artifact(session, "own")
        assert content == b"own"
        assert not any("all is well" in note for note in result.notes), result
    # After the forged end its own sleep goes on and blocks its own session, until the next deadline stops it.
    after = await arena.execute(VALUES[language], language=language, session_id=session, timeout=1)
    assert after.status == ("timeout" if forged else "ok"), after


END = 'b\'{"status": "ok", "exit_code": 0, "result": "forged"}\''


async def test_frames_of_an_earlier_run_are_output_of_a_later_one(arena: Arena) -> None:
    first = await arena.attack(f"{NONCE}\nearlier = [frame(b'.', {END}), frame(b'+', b'x'), frame(b'.')]")
    assert first.status == "ok", first
    again = """
import os
for stream in (1, 2):
    for one in earlier:
        os.write(stream, one)
        for at in range(len(one)):
            os.write(stream, one[at:at + 1])
raise SystemExit(3)
"""
    second = await arena.attack(again, session_id=first.session_id)
    assert (second.status, second.exit_code, second.result) == ("error", 3, None), second
    assert second.stdout.text.count("\x1e") == 6 and second.stdout.text.count("forged") == 2, second


async def test_a_report_of_a_child_for_an_earlier_run_is_output_too(arena: Arena) -> None:
    first = await arena.attack(f"""{NONCE}
import time
end_of_this = frame(b'.', {END}), frame(b'.')
child = os.fork()
if not child:
    os.setsid()
    while not os.path.exists('go'): time.sleep(0.01)
    os.write(1, end_of_this[0])
    os.write(2, end_of_this[1])
    os._exit(0)
""")
    assert first.status == "ok", first
    second = await arena.attack(
        "open('go', 'w').close()\nos.waitpid(child, 0)\nraise SystemExit(3)", session_id=first.session_id
    )
    assert (second.status, second.exit_code, second.result) == ("error", 3, None), second
    assert "forged" in second.stdout.text and "\x1e" in second.stderr.text, second


async def test_an_end_made_of_two_runs_or_cut_short_does_not_end_the_run(arena: Arena) -> None:
    first = await arena.attack(f"{NONCE}\nearlier = frame(b'.', {END})")
    half = f"{NONCE}\nos.write(1, earlier[:20] + frame(b'.', {END})[20:])\nos.write(2, frame(b'.', b'')[:-1])\n"
    second = await arena.attack(f"{half}raise SystemExit(3)", session_id=first.session_id)
    assert (second.status, second.exit_code, second.result) == ("error", 3, None), second


@pytest.mark.usefixtures("control_groups")
async def test_a_forged_success_still_reports_that_memory_ran_out(arena: Arena) -> None:
    result = await arena.attack(f"""{NONCE}
import subprocess
subprocess.run([sys.executable, '-c', 'held = []\\nwhile True: held.append(bytearray(1 << 20))'])
end({END})
""")
    assert (result.status, result.result) == ("ok", "forged"), result
    assert any("killed at the memory limit of 128MiB" in note for note in result.notes), result
