"""A session as programs written for LLM Sandbox use it; what failed there in silence is an error or the truth here."""

import io
import logging
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp import (
    ArtifactSandboxSession,
    CommandEmptyError,
    CommandFailedError,
    ConsoleOutput,
    LibraryInstallationNotSupportedError,
    NotOpenSessionError,
    PackageManagerError,
    SandboxSession,
    SandboxTimeoutError,
    SecurityError,
    ValidationError,
    create_session,
)
from llm_sandbox_mcp.blocking.portal import portal
from tests.blocking.conftest import PROFILE
from tests.containers.engines import until

pytestmark = pytest.mark.usefixtures("library")


def test_a_run_returns_its_output_and_its_exit_code() -> None:
    with SandboxSession(lang="python") as session:
        assert session.run("print(1)") == ConsoleOutput(0, "", "1\n")
        failed = session.run("import sys\nprint('é', file=sys.stderr)\nsys.exit(3)")
        assert (failed.exit_code, failed.stderr, failed.success()) == (3, "é\n", False)
        assert "ZeroDivisionError" in session.run("1 / 0").stderr


def test_each_run_has_an_interpreter_of_its_own_and_files_stay() -> None:
    with create_session() as session:
        first = session.run(
            "import os\nx = 1\nos.chdir('/tmp')\nopen('/sandbox/kept', 'w').write('kept')\nprint(os.getpid())"
        )
        second = session.run("import os\nprint(open('kept').read(), 'x' in globals(), os.getcwd())\nprint(os.getpid())")
        assert second.stdout.splitlines()[0] == "kept False /sandbox"
        assert first.stdout.splitlines()[-1] != second.stdout.splitlines()[-1]


@pytest.mark.parametrize("language", ["javascript", "ruby", "bash", "cpp"])
def test_other_languages_run_anew_each_time_too(language: str) -> None:
    code = {
        "javascript": ("globalThis.x = 1; console.log(6 * 7)", "console.log(typeof x)", "undefined\n"),
        "ruby": ("$x = 1; puts 6 * 7", "p $x", "nil\n"),
        "bash": ("x=1; echo $((6 * 7))", 'echo "[$x]"', "[]\n"),
        "cpp": ("#include <iostream>\nint main() { std::cout << 6 * 7 << std::endl; }",) * 2 + ("42\n",),
    }[language]
    with SandboxSession(lang=language) as session:
        assert session.run(code[0]).stdout == "42\n"
        assert session.run(code[1]).stdout == code[2]


def test_callbacks_have_all_output_in_the_callers_thread_and_the_exit_code_is_kept() -> None:
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


def test_what_a_callback_raises_stops_the_run_and_is_raised() -> None:
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
def test_half_a_second_is_half_a_second_and_the_session_lives_on(arguments: dict[str, Any]) -> None:
    with SandboxSession(**arguments) as session:
        with pytest.raises(SandboxTimeoutError, match=r"0\.5 s") as raised:
            session.run("while True: pass", timeout=None if arguments else 0.5)
        assert raised.value.timeout_duration == 0.5
        assert session.run("print(1)", timeout=20).stdout == "1\n"


def test_what_is_not_said_is_within_what_the_profile_allows(
    profile_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = tmp_path / "strict.toml"
    strict.write_text(profile_file.read_text().replace('timeout = "1d"', 'timeout = "20s"', 1))
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(strict))
    unsaid: list[dict[str, Any]] = [{}, {"default_timeout": None}]
    for arguments in unsaid:
        with SandboxSession(**arguments) as session:
            assert session.run("print(1)").stdout == "1\n"
            with pytest.raises(ValidationError, match="timeout: 21 s are above the 20 s"):
                session.run("print(1)", timeout=21)
    with SandboxSession(execution_timeout=21) as session, pytest.raises(ValidationError, match="above the 20 s"):
        session.run("print(1)")


def test_who_asks_for_it_is_told_what_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("llm_sandbox_mcp")
    monkeypatch.setattr(log, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(log, "level", logging.WARNING)
    with SandboxSession(verbose=True, lang="PY") as session:
        session.run("print('\x1b[31m')")
        session.execute_command("false")
    with SandboxSession() as session:
        session.run("print(1)")
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in said] == [
        "opening a session in python on auto",
        "ran python: ok",
        "ran bash: error",
        "closing the session",
    ]


def test_code_that_is_no_text_is_an_error() -> None:
    with SandboxSession() as session, pytest.raises(ValidationError, match="bytes; give text"):
        session.run(b"print(1)")  # type: ignore[arg-type]


def test_a_run_that_was_stopped_says_why_on_its_standard_error() -> None:
    with SandboxSession() as session:
        code = "print(1, flush=True)\nwhile True: pass"
        assert session.run(code, on_stdout=lambda _: session.interrupt()).stderr.endswith("\ncancelled\n")


def test_a_run_without_memory_says_so_on_its_standard_error(control_groups: None) -> None:
    with SandboxSession() as session:
        told = session.run("x = 'a' * 2**30").stderr
        assert told.startswith("out_of_memory: the memory limit of 128MiB was reached; ")
        assert told.endswith("; variables and files are lost\n")


def test_a_session_ends_with_its_lifetime() -> None:
    with SandboxSession(session_timeout=1.5) as session:
        with pytest.raises(SandboxTimeoutError):
            session.run("while True: pass")
        with pytest.raises(SandboxTimeoutError, match="the session is over after") as raised:
            session.run("print(1)")
        assert raised.value.timeout_duration == 1.5
        assert not session.is_open
        session.open()
        assert session.run("print(1)").stdout == "1\n"


def test_commands_run_in_the_folder_that_they_name_up_to_the_first_that_fails() -> None:
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


def test_files_and_folders_are_copied_empty_ones_too(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "bytes").write_bytes(bytes(range(256)))
    (tmp_path / "in" / "empty").touch()
    with SandboxSession() as session:
        session.copy_to_runtime(tmp_path / "in", "/sandbox/there")
        session.copy_to_runtime(tmp_path / "in" / "empty", "one/empty")
        assert (
            session.execute_command("find . -type f | sort").stdout
            == "./one/empty\n./there/deep/bytes\n./there/empty\n"
        )
        session.copy_from_runtime("/sandbox/there", tmp_path / "out")
        session.copy_from_runtime("one/empty", tmp_path / "new" / "empty")
        session.copy_from_runtime("/sandbox", tmp_path / "all")
        archive, known = session.get_archive("there/deep/bytes")
    assert (tmp_path / "out" / "there" / "deep" / "bytes").read_bytes() == bytes(range(256))
    assert (tmp_path / "new" / "empty").read_bytes() == b""
    all_of_it = [path.relative_to(tmp_path / "all") for path in (tmp_path / "all").rglob("*") if path.is_file()]
    assert sorted(map(str, all_of_it)) == [
        f"sandbox/{name}" for name in ("one/empty", "there/deep/bytes", "there/empty")
    ]
    assert (known["name"], known["size"]) == ("bytes", 256)
    with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
        assert reader.getnames() == ["bytes"]


def test_what_may_be_executed_and_empty_folders_are_copied_and_the_working_directory_is_a_place(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep" / "empty").mkdir(parents=True)
    (tmp_path / "in" / "script").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "in" / "script").chmod(0o700)
    (tmp_path / "in" / "text").touch(0o600)
    with SandboxSession() as session:
        for _ in range(2):
            session.copy_to_runtime(tmp_path / "in", "/sandbox")
        assert session.execute_command("find . -mindepth 1 | sort").stdout == "./deep\n./deep/empty\n./script\n./text\n"
        assert session.execute_command("./script && ! test -x text").stdout == "ran\n"
        session.copy_from_runtime("script", tmp_path / "script")
        session.copy_from_runtime("/sandbox", tmp_path / "out")
    for script in (tmp_path / "script", tmp_path / "out" / "sandbox" / "script"):
        assert script.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "out" / "sandbox" / "deep" / "empty").is_dir()


def test_what_fits_a_sandbox_comes_out_of_it_whatever_is_kept_of_runs(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "small.toml").write_text(PROFILE.format(folder=folder) + "[artifacts]\nfile_size = '64KiB'\n")
    monkeypatch.setenv("LLM_SANDBOX_PROFILE", str(folder / "small.toml"))
    with SandboxSession() as session:
        session.run("open('large', 'wb').write(bytes(12 << 20))")  # most of limits.disk: there is no room for a second
        session.copy_from_runtime("large", tmp_path / "large")
        assert session.execute_command("ls -A").stdout == "large\n"
        session.execute_command("for n in 1 2 3; do truncate -s 16M holes$n; done")
        with pytest.raises(ValidationError, match=r"'/sandbox' has more than 32MiB, twice limits\.disk"):
            session.copy_from_runtime("/sandbox", tmp_path / "all")
    assert (tmp_path / "large").stat().st_size == 12 << 20


def test_what_cannot_be_copied_says_why(tmp_path: Path) -> None:
    with SandboxSession() as session:
        with pytest.raises(FileNotFoundError):
            session.copy_to_runtime(tmp_path / "none", "x")
        with pytest.raises(FileNotFoundError, match="none"):
            session.copy_from_runtime("none", tmp_path / "x")
        with pytest.raises(FileNotFoundError, match=r"'/sandbox/none/x' .* No such file"):
            session.get_archive("none/x")
        with pytest.raises(SecurityError):
            session.copy_to_runtime(__file__, "../x")
        for outside in ("/etc/x", "/tmp/x", "/home/x", "/container/path/x", "/sandboxes/x"):
            with pytest.raises(ValidationError, match=f"'{outside}' is not below /sandbox.* execute_command"):
                session.copy_to_runtime(__file__, outside)
            with pytest.raises(ValidationError, match=f"'{outside}' is not below /sandbox.* execute_command"):
                session.copy_from_runtime(outside, tmp_path / "x")
        with pytest.raises(ValidationError, match="'/sandbox' names no file"):
            session.copy_to_runtime(__file__, "/sandbox")
        session.run("import os\nopen('shut', 'w').close()\nos.chmod('shut', 0)")
        with pytest.raises(ValidationError, match=r"'/sandbox/shut' cannot be read: .*Permission denied"):
            session.copy_from_runtime("shut", tmp_path / "x")
        session.execute_command("rm -f shut")
        assert session.execute_command("ls -A").stdout == ""


def test_links_that_lead_out_of_a_folder_are_not_followed_on_this_machine(tmp_path: Path) -> None:
    with SandboxSession() as session:
        session.run("import os\nos.mkdir('d')\nos.symlink('/etc/passwd', 'd/link')\nopen('d/file', 'w').close()")
        session.copy_from_runtime("d", tmp_path)
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["file"]


def test_a_session_that_is_not_open_says_so() -> None:
    session = SandboxSession()
    with pytest.raises(NotOpenSessionError):
        session.run("print(1)")
    session.open()
    session.open()
    session.close()
    session.close()
    with pytest.raises(NotOpenSessionError):
        session.execute_command("ls")
    with session:
        assert session.run("print(1)").success()


def test_an_installation_that_fails_is_raised_and_the_code_does_not_run() -> None:
    with SandboxSession() as session:
        with pytest.raises(ValidationError):
            session.run("open('ran', 'w')", libraries=["--index-url=x"])
        with pytest.raises(CommandFailedError):
            session.install(["a-library-that-nobody-has-made-7f3a"])
        assert session.execute_command("ls").stdout == ""
    with pytest.raises(LibraryInstallationNotSupportedError, match="skip_environment_setup"):
        SandboxSession(libraries=["numpy"], skip_environment_setup=True).open()
    with SandboxSession() as session, pytest.raises(ValidationError, match="give a list"):
        session.run("print(1)", libraries="numpy")
    without: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"skip_environment_setup": True}, LibraryInstallationNotSupportedError),
        ({"lang": "bash"}, PackageManagerError),
    ]
    for arguments, error in without:
        with SandboxSession(**arguments) as session, pytest.raises(error):
            session.install(["numpy"])


def test_many_threads_share_one_session_and_many_sessions_one_process() -> None:
    results: list[str] = []

    def of_its_own(number: int) -> None:
        with SandboxSession() as session:
            results.append(session.run(f"print({number})").stdout)

    def of_all(number: int) -> None:
        results.append(shared.run(f"assert 'x' not in globals()\nx = 1\nprint({number})").stdout)

    with SandboxSession() as shared:
        threads = [threading.Thread(target=of_its_own, args=(number,)) for number in range(6)]
        threads += [threading.Thread(target=of_all, args=(number,)) for number in range(6, 12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(map(int, results)) == list(range(12))


@pytest.mark.anyio
async def test_it_works_in_a_thread_that_runs_an_event_loop() -> None:
    with SandboxSession() as session:
        assert session.run("print(1)").stdout == "1\n"
    assert await anyio.to_thread.run_sync(lambda: SandboxSession().__enter__().run("print(2)").stdout) == "2\n"


def test_output_that_is_no_text_is_shown_left_out_or_an_error() -> None:
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


def test_what_is_printed_at_the_end_is_decoded_with_the_rest() -> None:
    code = "import atexit, os\natexit.register(lambda: os.write(1, b'\\xff'))\nprint('é', flush=True)"
    with SandboxSession(encoding_errors="surrogateescape") as session:
        assert session.run(code).stdout == "é\n\udcff"


@pytest.mark.parametrize("command", ["", " ", None, 5])
def test_no_command_is_an_error(command: Any) -> None:
    session = SandboxSession()
    for run in (session.execute_command, lambda line: session.execute_commands([(line, None)])):
        with pytest.raises(CommandEmptyError, match="is no command; give one"):
            run(command)


def test_a_run_that_was_stopped_says_why() -> None:
    with SandboxSession(runtime_configs={"mem_limit": "64m"}) as session:
        done = session.run("x = bytearray(1 << 30)")
    assert not done.success()
    assert "memory" in done.stderr.lower()


def test_who_interrupts_from_another_thread_ends_the_run() -> None:
    with SandboxSession() as session:
        started = threading.Event()

        def stop() -> None:
            started.wait(30)
            session.interrupt()

        stopper = threading.Thread(target=stop)
        stopper.start()
        done = session.run("print('on', flush=True)\nwhile True: pass", on_stdout=lambda text: started.set())
        stopper.join()
        assert not done.success()
        assert session.run("print(1)").stdout == "1\n"


@pytest.mark.anyio
async def test_a_session_that_nobody_holds_any_more_lets_its_sandbox_go() -> None:
    session = SandboxSession()
    session.open()
    listed = session._sandboxes().service.list_sessions
    assert len(portal.ask(listed)) == 1
    del session
    await until(lambda: not portal.ask(listed), 10)


def test_a_callback_cannot_use_the_session_that_waits_for_it() -> None:
    uses: dict[str, Callable[[ArtifactSandboxSession], object]] = {
        "run": lambda session: session.run("print(2)"),
        "execute_command": lambda session: session.execute_command("true"),
        "install": lambda session: session.install(["six"]),
        "copy_to_runtime": lambda session: session.copy_to_runtime(__file__, "file"),
        "get_archive": lambda session: session.get_archive("file"),
        "clear_plots": lambda session: session.clear_plots(),
    }
    with ArtifactSandboxSession() as session:
        for use in uses.values():

            def callback(text: str, use: Callable[[ArtifactSandboxSession], object] = use) -> None:
                use(session)

            with pytest.raises(ValidationError, match="callback"):
                session.run("print(1)", on_stdout=callback)
        # What stops the run, and what only looks, does not wait for it.
        with pytest.raises(SandboxTimeoutError):
            session.run("print(1, flush=True)\nwhile True: pass", timeout=0.5, on_stdout=lambda _: look(session))
        assert session.run("print(3)", on_stdout=lambda _: None).stdout == "3\n"


def look(session: SandboxSession) -> None:
    assert session.get_artifacts() == []


def test_threads_and_what_is_done_at_the_end_belong_to_the_run() -> None:
    code = (
        "import atexit, sys, threading, time\natexit.register(print, 'bye')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\nprint('main')\nsys.exit(3)"
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
