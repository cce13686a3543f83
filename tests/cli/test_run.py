"""`llm-sandbox-mcp run`: a program's output, status and files, and what happens when it is stopped.

What depends on the process is shown by one, such as streams, signals and terminals; the other cases run in the test's.
"""

import os
import pty
import secrets
import shlex
import signal
import subprocess
from pathlib import Path

import anyio
import pytest

from llm_sandbox_mcp.base.text import one_line
from tests.broken_text import CUT, ENCODED, NOTE, PRINTED
from tests.engines import need

from .command import ARGV, LIMIT, called, command, environment, ran, refused

pytestmark = pytest.mark.usefixtures("embedded")


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    """The first command on a machine prepares Python's libraries, and says so on stderr."""
    anyio.run(need, "embedded")
    assert called("prepare").returncode == 0


def bash(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return ran("run", "--language", "bash", *arguments, "-c", code)


def test_streams_stay_separate_and_the_status_is_that_of_the_code() -> None:
    done = command("run", "--language", "bash", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_the_value_of_the_last_expression_is_printed_at_the_end() -> None:
    done = ran("run", "--language", "javascript", "-c", "process.stdout.write('no newline'); 6 * 7")
    assert (done.returncode, done.stdout) == (0, "no newline\n42\n")


def test_an_error_in_the_code_is_status_one() -> None:
    done = ran("run", "--language", "javascript", "-c", "throw new Error('broken')")
    assert done.returncode == 1
    assert "broken" in done.stderr


def test_a_timeout_is_status_124_with_a_note() -> None:
    done = bash("echo before; sleep 1000", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (124, "before\n")
    assert "note: stopped after 500ms" in done.stderr


@pytest.mark.usefixtures("control_groups")
def test_the_memory_limit_is_status_137(tmp_path: Path) -> None:
    profile = tmp_path / "small.toml"
    profile.write_text('[limits]\nmemory = "128MiB"\n')
    done = ran(
        "run",
        "--profile",
        str(profile),
        "--language",
        "js",
        "-c",
        "const kept = []\nwhile (true) kept.push(Buffer.alloc(1e7, 1))",
    )
    assert done.returncode == 137, done
    assert "note: the memory limit of 128MiB was reached" in done.stderr


@pytest.mark.parametrize(("name", "code"), [("a.sh", "echo 1"), ("a.js", "console.log(1)")])
def test_the_language_follows_from_the_files_extension(tmp_path: Path, name: str, code: str) -> None:
    program = tmp_path / name
    program.write_text(code)
    assert ran("run", str(program)).stdout == "1\n"


def test_a_program_can_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    program, given = tmp_path / "marked.py", tmp_path / "given.txt"
    program.write_text("\ufeffprint(ascii(input()))")
    given.write_text("\ufeffa")
    assert ran("run", str(program), "--stdin", str(given)).stdout == "'\\ufeffa'\n"


def test_a_program_comes_from_standard_input() -> None:
    assert command("run", "--language", "bash", "-", stdin="echo from here").stdout == "from here\n"


def test_a_program_reads_a_file_or_the_standard_input_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("one\n")
    assert bash("cat", "--stdin", f"{tmp_path}/names.txt").stdout == "one\n"
    done = command("run", "--language", "bash", "--stdin", "-", "-c", "read -r name; echo $name", stdin="one\ntwo\n")
    assert done.stdout == "one\n"


def test_a_program_reads_what_is_piped_into_the_command() -> None:
    done = command("run", "-c", "print(input())", stdin="1 2\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 2\n", "")


def test_a_pipe_without_an_end_is_not_waited_for() -> None:
    ours, theirs = os.pipe()
    with open(ours, "rb") as end, open(theirs, "wb", buffering=0) as writer:
        code = "import sys; print(repr(sys.stdin.read()))"
        for written, note in ((b"", ""), (b"1 2\n", "its end is not here yet; give --stdin - to wait for it")):
            writer.write(written)
            done = subprocess.run(
                [*ARGV, "run", "-c", code],
                stdin=end,
                capture_output=True,
                text=True,
                env=environment(),
                timeout=LIMIT,
                check=False,
            )
            assert (done.returncode, done.stdout) == (0, "''\n")
            assert done.stderr == (note and f"note: standard input was not passed on: {note}\n")


def test_a_loop_of_a_script_keeps_its_input() -> None:
    script = f'while read -r line; do {shlex.join(ARGV)} run --language bash -c "cat"; echo "$line"; done'
    done = subprocess.run(
        ["bash", "-c", script],
        input="1\n2\n",
        capture_output=True,
        text=True,
        env=environment(),
        timeout=LIMIT,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("2\n1\n2\n", "")


def test_an_input_that_cannot_be_given_is_named_and_the_code_runs() -> None:
    done = command("run", "-c", "print(1)", stdin="a\0b")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr.startswith("note: standard input was not passed on: stdin contains a NUL character; ")


def test_without_an_input_the_note_names_the_options() -> None:
    done = command("run", "-c", "input()")
    assert done.stderr.endswith("with --stdin FILE, or wait for it with --stdin -\n")


def test_a_program_and_an_input_with_half_an_emoji_are_read(tmp_path: Path) -> None:
    program, given = tmp_path / "cut.py", tmp_path / "given.txt"
    program.write_bytes(CUT.format("<half>").encode().replace(b"<half>", ENCODED["half of the bytes"]))
    done = ran("run", str(program))
    assert (done.stdout, done.stderr) == (PRINTED, f"note: {NOTE}\n")
    given.write_bytes(b"a\xffb")
    done = bash("cat", "--stdin", str(given))
    assert (done.stdout, done.stderr) == ("a\ufffdb", f"note: {NOTE.replace(' code ', ' stdin ')}\n")


def test_code_on_the_command_line_with_half_an_emoji_runs() -> None:
    done = command("run", "-c", CUT.format(os.fsdecode(ENCODED["half of the bytes"])))
    assert (done.stdout, done.stderr) == (PRINTED.replace("\ufffd", 2 * "\ufffd"), f"note: {NOTE}\n")


def test_files_are_copied_in_under_their_own_name_or_another_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("content")
    (tmp_path / "link").symlink_to("a.txt")
    files = ("--file", f"{tmp_path}/a.txt", "--file", f"{tmp_path}/link:deep/b.txt")
    done = bash("cat a.txt deep/b.txt", *files)
    assert (done.returncode, done.stdout) == (0, "contentcontent")


def test_where_no_sandbox_can_be_made_nothing_is_prepared(tmp_path: Path) -> None:
    profile, cache = tmp_path / "without.toml", tmp_path / "cache"
    profile.write_text(f'[embedded]\nbwrap = "no-such-bwrap"\n[server]\ncache = "{cache}"\n')
    for language in ("python", "bash"):
        said = refused("run", "--profile", str(profile), "--language", language, "-c", "1")
        assert said == "llm-sandbox-mcp: no-such-bwrap is not on PATH; sudo apt-get install bubblewrap"
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_code_sees_only_folders_that_the_profile_opens(tmp_path: Path) -> None:
    source, out = tmp_path / "table.csv", tmp_path / "out"
    source.write_text("a,b")
    done = bash("ls /data", "--file", str(source))
    assert done.returncode == 2 and "No such file" in done.stderr
    out.mkdir()
    (tmp_path / "p.toml").write_text(f'[files]\nfolders = ["{out}:rw"]\n')
    done = bash("cp table.csv /data/out", "--file", str(source), "--profile", str(tmp_path / "p.toml"))
    assert (done.returncode, done.stderr) == (0, f"note: saved in {out}: table.csv\n")
    assert (out / "table.csv").read_text() == "a,b"


def test_code_reads_and_writes_the_folders_of_the_command_line_and_of_the_profile(tmp_path: Path) -> None:
    for name in ("in", "out", "kept"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "a.txt").write_text("read\n")
    (tmp_path / "kept" / "old").write_text("")
    (tmp_path / "p.toml").write_text(f'[files]\nfolders = ["{tmp_path}/kept:rwd"]\n')
    code = "tr a-z A-Z < /data/in/a.txt > /data/out/b.txt; mv /data/kept/old /data/kept/new; ls /data"
    opened = ("--folder", "in:ro", "--folder", f"{tmp_path}/out:rw", "--profile", "p.toml")
    done = ran("run", "--language", "bash", *opened, "-c", code, cwd=tmp_path)
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["in", "kept", "out"])
    assert done.stderr.splitlines() == [
        f"note: moved in {tmp_path}/kept: old to new",
        f"note: saved in {tmp_path}/out: b.txt",
    ]
    assert (tmp_path / "out" / "b.txt").read_text() == "READ\n"


def test_a_result_that_cannot_be_saved_is_a_failure(tmp_path: Path) -> None:
    code = "open('/data/out/HEAD', 'w').close()"
    (tmp_path / "out").mkdir()
    done = ran("run", "--folder", f"{tmp_path}/out:rw", "-c", code)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("note: HEAD of /data/out was not saved: ")
    assert ran("run", "--folder", f"{tmp_path}/out:rw", "-c", f"{code}; exit(3)").returncode == 3


def test_a_folder_that_code_sees_under_another_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "my data").mkdir()
    done = ran("run", "--folder", "my data", "-c", "import os; print(os.listdir('/data'))", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "['my-data']\n")
    assert done.stderr == f"note: code sees {tmp_path}/my data as /data/my-data\n"


def test_code_that_misses_a_file_is_told_where_folders_are(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a\n")
    done = bash("cat /data/data/a.txt; ls /none; true", "--folder", f"{tmp_path}/data")
    assert (done.stdout, "note: " in done.stderr) == ("a\n", False)
    for path in ("/data/a.txt", "data/a.txt"):
        done = ran("run", "--folder", "data", "-c", f"open({path!r})", cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.endswith(f"\nnote: code sees {tmp_path}/data as /data/data\n")


def test_a_folder_that_is_misspelt_or_gone_is_refused(tmp_path: Path) -> None:
    said = refused("run", "--folder", f"{tmp_path}:rwx", "-c", "1")
    assert said.startswith(
        "llm-sandbox-mcp: --folder: must end with :ro or nothing if it is open for reading, with :rw "
    )
    said = refused("run", "--folder", f"{tmp_path}/gone:rw", "-c", "1")
    assert said == f"llm-sandbox-mcp: --folder: {tmp_path}/gone is no folder; make it, or name another one"


def test_a_missing_folder_of_the_profile_is_named_and_the_code_runs(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(f'[files]\nfolders = ["{tmp_path}/gone:rw"]\n')
    done = bash("ls -A /data/gone", "--profile", str(tmp_path / "p.toml"))
    assert (done.returncode, done.stdout) == (0, "")
    assert (
        f"note: /data/gone is empty, and not a copy of {tmp_path}/gone: it cannot be read: No such file" in done.stderr
    )


def test_files_and_figures_that_are_not_saved_are_named() -> None:
    code = "import matplotlib.pyplot as plt; plt.plot([1]); plt.show(); print(1)"
    done = ran("run", "-c", code)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr == "note: not saved: figure-1.png; give --artifacts DIR\n"
    assert bash("touch {a..g}").stderr == "note: not saved: a, b, c, d, e and 2 more; give --artifacts DIR\n"


def test_files_that_the_code_made_are_saved_in_the_folder(tmp_path: Path) -> None:
    done = bash("mkdir sub; echo 1 > a.txt; echo 2 > sub/b.txt", "--artifacts", str(tmp_path / "new" / "out"))
    assert done.returncode == 0
    made = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.txt")}
    assert made == {"new/out/a.txt": "1\n", "new/out/sub/b.txt": "2\n"}


def test_control_characters_in_file_names_are_escaped_even_in_a_pipe(tmp_path: Path) -> None:
    name = "a\x1b]0;x\x07\x9b2J\u202e\r\nsaved: forged"
    done = ran("run", "--artifacts", str(tmp_path / "out"), "-c", f"open({name!r}, 'w').write('x')\nNone")
    assert done.returncode == 0, done
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("saved: ")]
    assert line == f"saved: {tmp_path}/out/{one_line(name)}"
    assert (tmp_path / "out" / name).read_text() == "x"


def test_output_is_unchanged_in_a_pipe_and_escaped_on_a_terminal() -> None:
    code = r"printf 'a\033]0;title\007b\n'"
    assert command("run", "--language", "bash", "-c", code).stdout == "a\x1b]0;title\x07b\n"
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal, open(theirs, "wb", buffering=0) as end:
        subprocess.run(
            [*ARGV, "run", "--language", "bash", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=end,
            stderr=subprocess.DEVNULL,
            env=environment(),
            timeout=LIMIT,
            check=True,
        )
        assert terminal.read(100) == rb"a\x1b]0;title\x07b" + b"\r\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_output_is_live_and_a_signal_ends_everything(number: signal.Signals) -> None:
    marker = f"100{secrets.randbelow(10**9)}"
    with subprocess.Popen(
        [*ARGV, "run", "--language", "bash", "-c", f"echo started; sleep {marker}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"started\n"
        process.send_signal(number)
        assert process.wait(LIMIT) == 128 + number
        assert process.stderr.read() == b""
    assert not _processes_with(marker)


def test_the_program_ends_quietly_when_its_reader_ends() -> None:
    with subprocess.Popen(
        [*ARGV, "run", "--language", "bash", "-c", "while true; do echo line; done"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(LIMIT) == 141
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-c", " "), "code is empty"),
        (("--language", "cobol", "-c", "1"), "unknown language 'cobol'"),
        (("--timeout", "0", "-c", "1"), "timeout must be above 0"),
        (("--timeout", "1e9", "-c", "1"), "timeout must be above 0 and at most 300"),
        (("/nowhere/a.js",), "/nowhere/a.js: cannot be read"),
        (("/etc/hostname",), "unknown file extension; give --language "),
        (("--language", "bash", "--file", "/nowhere/x", "-c", "1"), "--file /nowhere/x: /nowhere/x is not a file"),
        (("--language", "bash", "--file", "/etc/hostname:../x", "-c", "1"), "path '../x' must name a file below"),
        (("--language", "js", "--library", "--evil", "-c", "1"), "expected one argument"),
        (("--language", "js", "--library=--evil", "-c", "1"), "libraries: '--evil' is not a plain name"),
        (("-c", "1", "a.py"), "not allowed with argument"),
        (("--stdin", "/nowhere/x", "-c", "1"), "/nowhere/x: cannot be read"),
        (("--language", "bash", "--stdin", "-", "-"), "standard input is the program already; give --stdin a file"),
        ((), "one of the arguments -c FILE is required"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(arguments: tuple[str, ...], reason: str) -> None:
    assert reason in refused("run", *arguments)


def _processes_with(word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                found.append(str(path))
        except OSError:
            continue
    return found
