"""Runs and commands as programs written for LLM Sandbox use them; silent failures there are errors or work here."""

import threading
from pathlib import Path
from typing import Any

import pytest

from llm_sandbox_mcp import (
    CommandEmptyError,
    ConsoleOutput,
    SandboxSession,
    SandboxTimeoutError,
    ValidationError,
    create_session,
)

pytestmark = pytest.mark.usefixtures("library")


def test_a_run_returns_its_output_and_its_exit_code() -> None:
    with SandboxSession(lang="python") as session:
        assert session.run("print(1)") == ConsoleOutput(0, "", "1\n")
        failed = session.run("import sys\nprint('é', file=sys.stderr)\nsys.exit(3)")
        assert (failed.exit_code, failed.stderr, failed.success()) == (3, "é\n", False)
        assert "ZeroDivisionError" in session.run("1 / 0").stderr


def test_each_run_has_its_own_interpreter_and_files_are_kept() -> None:
    with create_session() as session:
        first = session.run(
            "import os\nx = 1\nos.chdir('/tmp')\nopen('/sandbox/kept', 'w').write('kept')\nprint(os.getpid())"
        )
        second = session.run("import os\nprint(open('kept').read(), 'x' in globals(), os.getcwd())\nprint(os.getpid())")
        assert second.stdout.splitlines()[0] == "kept False /sandbox"
        assert first.stdout.splitlines()[-1] != second.stdout.splitlines()[-1]


@pytest.mark.parametrize("language", ["javascript", "ruby", "bash", "cpp"])
def test_other_languages_start_afresh_each_time_too(language: str) -> None:
    code = {
        "javascript": ("globalThis.x = 1; console.log(6 * 7)", "console.log(typeof x)", "undefined\n"),
        "ruby": ("$x = 1; puts 6 * 7", "p $x", "nil\n"),
        "bash": ("x=1; echo $((6 * 7))", 'echo "[$x]"', "[]\n"),
        "cpp": ("#include <iostream>\nint main() { std::cout << 6 * 7 << std::endl; }",) * 2 + ("42\n",),
    }[language]
    with SandboxSession(lang=language) as session:
        assert session.run(code[0]).stdout == "42\n"
        assert session.run(code[1]).stdout == code[2]


def test_callbacks_get_all_output_in_the_callers_thread_and_the_exit_code_is_kept() -> None:
    out: list[str] = []
    err: list[str] = []
    threads: set[threading.Thread] = set()

    def see(text: str) -> None:
        out.append(text)
        threads.add(threading.current_thread())

    with SandboxSession() as session:
        code = "import sys\nprint('é' * 40000)\nprint('error', file=sys.stderr)\nsys.exit(4)"
        result = session.run(code, on_stdout=see, on_stderr=err.append)
    assert result == ConsoleOutput(4, "error\n", "é" * 40000 + "\n")
    assert ("".join(out), "".join(err)) == (result.stdout, result.stderr)
    assert len(out) > 1
    assert threads == {threading.current_thread()}


class _Enough(Exception):
    pass


def test_an_exception_in_a_callback_stops_the_run_and_is_raised() -> None:
    seen: list[str] = []

    def stop(text: str) -> None:
        seen.append(text)
        raise _Enough

    with SandboxSession() as session:
        with pytest.raises(_Enough):
            session.run("print('on', flush=True)\nwhile True: pass", on_stdout=stop)
        assert seen == ["on\n"]
        assert session.run("print(1)").stdout == "1\n"


@pytest.mark.parametrize("arguments", [{"execution_timeout": 0.5}, {"default_timeout": 0.5}, {}])
def test_a_timeout_of_half_a_second_is_not_rounded_and_the_session_lives_on(arguments: dict[str, Any]) -> None:
    with SandboxSession(**arguments) as session:
        with pytest.raises(SandboxTimeoutError, match=r"0\.5 s") as raised:
            session.run("while True: pass", timeout=None if arguments else 0.5)
        assert raised.value.timeout_duration == 0.5
        assert session.run("print(1)", timeout=20).stdout == "1\n"


def test_a_timeout_above_the_profiles_limit_is_an_error_and_the_default_is_within_it(
    profile_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = tmp_path / "strict.toml"
    strict.write_text(profile_file.read_text().replace('timeout = "1d"', 'timeout = "20s"', 1))
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(strict))
    without_timeout: list[dict[str, Any]] = [{}, {"default_timeout": None}]
    for arguments in without_timeout:
        with SandboxSession(**arguments) as session:
            assert session.run("print(1)").stdout == "1\n"
            with pytest.raises(ValidationError, match="timeout: 21 s is above the 20 s"):
                session.run("print(1)", timeout=21)
    with SandboxSession(execution_timeout=21) as session, pytest.raises(ValidationError, match="above the 20 s"):
        session.run("print(1)")


def test_code_that_is_not_text_is_an_error() -> None:
    with SandboxSession() as session, pytest.raises(ValidationError, match="bytes; give text"):
        session.run(b"print(1)")  # type: ignore[arg-type]


def test_an_interrupted_run_ends_with_cancelled_on_stderr() -> None:
    with SandboxSession() as session:
        code = "print(1, flush=True)\nwhile True: pass"
        assert session.run(code, on_stdout=lambda _: session.interrupt()).stderr.endswith("\ncancelled\n")


def test_a_run_that_is_out_of_memory_reports_it_on_stderr(control_groups: None) -> None:
    with SandboxSession() as session:
        stderr = session.run("x = 'a' * 2**30").stderr
        assert stderr.startswith("out_of_memory: the memory limit of 128MiB was reached; ")
        assert stderr.endswith("; variables and files are lost\n")


def test_commands_run_in_their_working_directory_until_one_fails() -> None:
    with SandboxSession() as session:
        assert session.execute_command("mkdir -p 'a b'; cd /; echo \"$PWD\"").stdout == "/\n"
        assert session.execute_command("pwd").stdout == "/sandbox\n"
        assert session.execute_command("pwd", workdir="/sandbox/a b").stdout == "/sandbox/a b\n"
        assert session.execute_command("echo out; echo err >&2; exit 7") == ConsoleOutput(7, "err\n", "out\n")
        assert session.execute_command("pwd & wait", workdir="/tmp").stdout == "/tmp\n"
        assert session.execute_command("touch never", workdir="/none").exit_code == 1
        done = session.execute_commands(["touch made", ("pwd", "/tmp"), "false", "touch never"])
        assert (done.exit_code, session.execute_command("ls").stdout) == (1, "a b\nmade\n")
        with pytest.raises(ValidationError):
            session.execute_command("")


@pytest.mark.usefixtures("with_index")
def test_commands_find_the_programs_and_libraries_of_the_session(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os, tinyanswer\nprint(tinyanswer.__name__, os.environ['MODE'])\n")
    with SandboxSession(libraries=["tinyanswer"], env_vars={"MODE": "a 'b'"}) as session:
        session.copy_to_runtime(tmp_path / "program.py", "/sandbox/program.py")
        assert session.execute_command("python /sandbox/program.py") == ConsoleOutput(0, "", "tinyanswer a 'b'\n")


def test_output_that_cannot_be_decoded_is_handled_as_encoding_errors_specifies() -> None:
    code = "import sys\nsys.stdout.buffer.write(b'\\xef\\xbf\\xbda\\xffb\\0')"
    for errors, shown in (
        ("replace", "\ufffda\ufffdb\0"),
        ("ignore", "\ufffdab\0"),
        ("backslashreplace", "\ufffda\\xffb\0"),
        ("surrogateescape", "\ufffda\udcffb\0"),
    ):
        with SandboxSession(encoding_errors=errors) as session:
            assert session.run(code).stdout == shown
    with SandboxSession(encoding_errors="strict") as session, pytest.raises(UnicodeDecodeError):
        session.run(code)


def test_output_printed_at_exit_is_decoded_with_the_rest() -> None:
    code = "import atexit, os\natexit.register(lambda: os.write(1, b'\\xff'))\nprint('é', flush=True)"
    with SandboxSession(encoding_errors="surrogateescape") as session:
        assert session.run(code).stdout == "é\n\udcff"


@pytest.mark.parametrize("command", ["", " ", None, 5])
def test_an_empty_command_is_an_error(command: Any) -> None:
    session = SandboxSession()
    for run in (session.execute_command, lambda line: session.execute_commands([(line, None)])):
        with pytest.raises(CommandEmptyError, match="is not a command; give one"):
            run(command)
    with pytest.raises(ValidationError, match=r"commands is a text; give a list, such as \['ls'\]"):
        session.execute_commands("ls")


def test_an_error_names_the_line_of_the_command() -> None:
    with SandboxSession() as session:
        assert ": line 3: " in session.execute_command("true\nnone").stderr


def test_a_run_that_exceeds_mem_limit_names_the_memory() -> None:
    with SandboxSession(runtime_configs={"mem_limit": "64m"}) as session:
        done = session.run("x = bytearray(1 << 30)")
    assert not done.success()
    assert "memory" in done.stderr.lower()


def test_threads_and_exit_handlers_belong_to_the_run() -> None:
    code = (
        "import atexit, sys, threading\natexit.register(print, 'bye')\nmain = threading.main_thread()\n"
        "threading.Thread(target=lambda: (main.join(), print('thread'))).start()\nprint('main')\nsys.exit(3)"
    )
    with SandboxSession() as session:
        seen: list[str] = []
        assert session.run(code) == ConsoleOutput(3, "", "main\nthread\nbye\n")
        workers = "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor().submit(print, 'worker')"
        assert session.run(workers).stdout == "worker\n"
        named = "import atexit as end\nend.register(lambda: print(atexit, threading))\natexit = threading = 'mine'"
        assert session.run(named).stdout == "mine mine\n"
        assert session.run(code, on_stdout=seen.append).exit_code == 3
        assert "".join(seen) == "main\nthread\nbye\n"
        with pytest.raises(SandboxTimeoutError):
            session.run("import threading\nthreading.Thread(target=threading.Event().wait).start()", timeout=0.5)
        assert session.run("print(1)").stdout == "1\n"
