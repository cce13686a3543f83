"""Sessions as programs written for LLM Sandbox use them: lifetime, libraries, threads."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from llm_sandbox_mcp import (
    ArtifactSandboxSession,
    CommandFailedError,
    LibraryInstallationNotSupportedError,
    NotOpenSessionError,
    PackageManagerError,
    SandboxSession,
    SandboxTimeoutError,
    ValidationError,
)
from llm_sandbox_mcp.compat.llm_sandbox.portal import portal
from tests.containers.engines import until

pytestmark = pytest.mark.usefixtures("library")


def test_a_verbose_session_logs_each_step(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("llm_sandbox_mcp")
    monkeypatch.setattr(log, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(log, "level", logging.WARNING)
    with SandboxSession(verbose=True, lang="PY") as session:
        session.run("print('\x1b[31m')")
        session.execute_command("false")
    with SandboxSession() as session:
        session.run("print(1)")
    printed = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in printed] == [
        "opening a session in python on auto",
        "ran python: ok",
        "ran bash: error",
        "closing the session",
    ]


def test_a_session_ends_after_session_timeout() -> None:
    with SandboxSession(session_timeout=5) as session:
        with pytest.raises(SandboxTimeoutError):
            session.run("while True: pass")
        with pytest.raises(SandboxTimeoutError, match="the session ended after") as raised:
            session.run("print(1)")
        assert raised.value.timeout_duration == 5
        assert not session.is_open
        session.open()
        assert session.run("print(1)").stdout == "1\n"


def test_a_session_that_is_not_open_raises_an_error() -> None:
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


def test_a_failed_installation_is_raised_and_the_code_does_not_run() -> None:
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

    def use_own_session(number: int) -> None:
        with SandboxSession() as session:
            results.append(session.run(f"print({number})").stdout)

    def use_shared_session(number: int) -> None:
        results.append(shared.run(f"assert 'x' not in globals()\nx = 1\nprint({number})").stdout)

    with SandboxSession() as shared:
        threads = [threading.Thread(target=use_own_session, args=(number,)) for number in range(6)]
        threads += [threading.Thread(target=use_shared_session, args=(number,)) for number in range(6, 12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(map(int, results)) == list(range(12))


@pytest.mark.anyio
async def test_a_session_works_in_a_thread_that_runs_an_event_loop() -> None:
    with SandboxSession() as session:
        assert session.run("print(1)").stdout == "1\n"
    assert await anyio.to_thread.run_sync(lambda: SandboxSession().__enter__().run("print(2)").stdout) == "2\n"


def test_an_interrupt_from_another_thread_ends_the_run() -> None:
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
async def test_a_session_without_references_releases_its_sandbox() -> None:
    session = SandboxSession()
    session.open()
    listed = session._sandboxes().service.sessions.list
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
        # A timeout, and methods that only read, do not wait for the run.
        with pytest.raises(SandboxTimeoutError):
            session.run("print(1, flush=True)\nwhile True: pass", timeout=0.5, on_stdout=lambda _: look(session))
        assert session.run("print(3)", on_stdout=lambda _: None).stdout == "3\n"


def look(session: SandboxSession) -> None:
    assert session.get_artifacts() == []
