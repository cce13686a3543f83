"""Blocking sessions, as in LLM Sandbox, with the same sandboxes as the server's."""

import os
import shlex
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...base.errors import PolicyDenied
from ...base.results import Execution
from . import copies
from .exceptions import (
    CommandEmptyError,
    LibraryInstallationNotSupportedError,
    PackageManagerError,
    SandboxTimeoutError,
    SecurityViolationError,
    UnsupportedBackendError,
    ValidationError,
    translated,
)
from .lifetime import Lifetime
from .options import check_libraries, check_seconds
from .portal import portal
from .registry import own_backend
from .running import Cell, CellSession, exports, follow, refresh
from .security import SecurityPattern, patterns_of
from .values import ConsoleOutput, SandboxBackend, StreamCallback, output

Command = str | tuple[str, str | None]
"""A command line of the shell, optionally with the folder that it runs in."""


class _Sessions(type):
    """Lets a backend that the program has registered make its own sessions."""

    def __call__(cls, backend: SandboxBackend | str = SandboxBackend.AUTO, *arguments: Any, **named: Any) -> Any:
        own = own_backend(backend)
        if own is None:
            return super().__call__(backend, *arguments, **named)
        if cls is not SandboxSession:
            raise UnsupportedBackendError(
                f"backend {own.name}: {cls.__name__} is only for the included backends", "use SandboxSession"
            )
        return own.factory(*arguments, **named)


class SandboxSession(Lifetime, metaclass=_Sessions):
    """One sandbox: each run has its own interpreter in it; files and libraries stay until the session is closed.

    Takes the arguments of `Options` by name, and `pool`. Use it in a with statement, or with `open` and `close`, in any
    number of threads: one run at a time, the others wait. If something keeps code from running, a `SandboxError` is
    raised; code that fails returns a result.
    """

    def run(
        self,
        code: str,
        libraries: Sequence[str] | None = None,
        timeout: float | None = None,
        on_stdout: StreamCallback | None = None,
        on_stderr: StreamCallback | None = None,
    ) -> ConsoleOutput:
        """Runs code in its own interpreter; `libraries` are installed first, `timeout` is in seconds.

        The callbacks get the code's output as it appears, in this thread; an exception in a callback stops the run and
        is raised. Raises `SandboxTimeoutError` when time runs out, `SecurityViolationError` if the policy forbids it.
        """
        return self._output(self._run(code, libraries, timeout, on_stdout, on_stderr))

    def execute_command(
        self,
        command: str,
        workdir: str | None = None,
        on_stdout: StreamCallback | None = None,
        on_stderr: StreamCallback | None = None,
    ) -> ConsoleOutput:
        """Runs a command line in the sandbox's shell, in the working directory or the given folder.

        It finds the programs and libraries of the session's language, as its code does.
        """
        if not isinstance(command, str) or not command.strip():
            raise CommandEmptyError(f"{str(command)[:40]!r} is not a command")
        session = self._free()
        with translated():
            known = portal.call(exports, self._sandboxes().service, session)
        folder = workdir or self.options.workdir

        def wrap(command: str) -> str:
            # On a separate line, a command cannot turn what follows into a comment.
            return f"({known}cd -- {shlex.quote(folder)} || exit\n{command}\n)"

        return self._output(self._execute(command, "bash", None, on_stdout, on_stderr, wrap=wrap))

    def execute_commands(
        self,
        commands: Sequence[Command],
        workdir: str | None = None,
        on_stdout: StreamCallback | None = None,
        on_stderr: StreamCallback | None = None,
    ) -> ConsoleOutput:
        """Runs commands one after the other until one fails; returns the result of the last one that ran."""
        if isinstance(commands, str):
            raise ValidationError("commands is a text", f"give a list, such as [{commands[:40]!r}]")
        output = ConsoleOutput()
        for command in commands:
            line, folder = (command, workdir) if isinstance(command, str) else command
            output = self.execute_command(line, folder, on_stdout, on_stderr)
            if not output.success():
                break
        return output

    def install(self, libraries: Sequence[str] | None = None) -> None:
        """Installs libraries; a `CommandFailedError` contains the package manager's last output."""
        check_libraries(libraries)
        if not libraries:
            return
        if self.options.skip_environment_setup:
            raise LibraryInstallationNotSupportedError(
                "the session was made with skip_environment_setup=True, so nothing is installed", "leave that out"
            )
        if self._sandboxes().service.languages[self.options.lang].handler.libraries is None:
            raise PackageManagerError(
                f"{self.options.lang} has no package manager here", "use execute_command, or another language"
            )
        policy = self.options.security_policy
        for library in libraries:
            if policy is not None and policy.forbids(library):
                raise SecurityViolationError(
                    f"{library} is a restricted module of the policy", "install another library"
                )
        session = self._free()
        self._log_verbose("installing %s", ", ".join(libraries))
        with translated():
            portal.call(session.install, *libraries)

    def copy_to_runtime(self, src: str | os.PathLike[str], dest: str) -> None:
        """Copies a file or a folder of this machine to `dest`, a path relative to the working directory or below it."""
        session = self._free()
        with translated():
            for source, path in list(copies.sources(Path(src), dest)):  # first check everything, then copy
                self._log_verbose("copying %s to %s", source, path)
                if source.is_dir():
                    portal.call(session.make_folder, path)
                else:
                    executable = bool(source.stat().st_mode & stat.S_IXUSR)
                    portal.call(partial(session.write, path, source.read_bytes(), executable=executable))

    def copy_from_runtime(self, src: str, dest: str | os.PathLike[str]) -> None:
        """Copies a file or a folder out of the working directory; `FileNotFoundError` if it does not exist."""
        self._log_verbose("copying %s to %s", src, dest)
        archive, _ = self.get_archive(src)
        copies.unpack(archive, Path(dest))

    def get_archive(self, path: str) -> tuple[bytes, dict[str, Any]]:
        """A file or a folder of the working directory as a tar archive, and its metadata: name, size, mode.

        `FileNotFoundError` if it does not exist; `ValidationError` for more than twice `limits.disk` of the profile.
        """
        session = self._free()
        inner = copies.inner(path, whole=True)
        with translated():
            archive = portal.call(session.pack, inner)
        return archive, copies.known(archive)

    def is_safe(self, code: str) -> tuple[bool, list[SecurityPattern]]:
        """Whether the policy allows code to run, and which of its patterns were found. Nothing is run.

        Code that cannot be judged, for example because that takes too long, is not safe even if nothing was found:
        `run` refuses it, and its error says why.
        """
        policy = self.options.security_policy
        if policy is None:
            return True, []
        with translated():
            service = self._sandboxes().service
            try:
                findings = portal.call(service.findings, code, self.options.lang)
            except PolicyDenied:
                return False, []
            found = patterns_of(policy, findings)
        threshold = policy.severity_threshold
        return not (threshold and any(one.severity >= threshold for one in found)), found

    def commit(self, image: str) -> str:
        """Makes an image of the session's files and libraries, and returns its name; only for containers."""
        session = self._free()
        with translated():
            return portal.call(self._sandboxes().service.sessions.commit, session.id, image)

    def interrupt(self) -> None:
        """Stops the run of another thread; that run returns."""
        session = self._opened()
        with translated():
            portal.call(session.interrupt)

    def get_artifacts(self) -> list[str]:
        """The names of the files and figures that runs left behind."""
        session = self._opened()
        with translated():
            return [artifact.name for artifact in portal.ask(session.artifacts)]

    def _begin(self, session: CellSession) -> None:
        super()._begin(session)
        self.install(self.options.libraries)

    def _run(
        self,
        code: str,
        libraries: Sequence[str] | None,
        timeout: float | None,
        on_stdout: StreamCallback | None,
        on_stderr: StreamCallback | None,
    ) -> Execution:
        """One run in a fresh interpreter; afterwards the next interpreter starts in the background."""
        session = self._free()
        self.install(libraries)
        with self._turn:
            try:
                return self._execute(code, self.options.lang, timeout, on_stdout, on_stderr, last=True)
            finally:
                if self.is_open:
                    portal.begin(refresh, session)

    def _execute(
        self,
        code: str,
        language: str,
        timeout: float | None,
        on_stdout: StreamCallback | None,
        on_stderr: StreamCallback | None,
        variables: Mapping[str, object] | None = None,
        *,
        last: bool = False,
        wrap: Callable[[str], str] | None = None,
        quiet: bool = False,
    ) -> Execution:
        """One run, or a part of one, which is `quiet`; for `wrap` and `last`, see `Cell`."""
        session = self._free()
        if not isinstance(code, str):
            raise ValidationError(f"the code is of type {type(code).__name__}", "give text")
        seconds = self._seconds(timeout)
        cell = Cell(code, language, seconds, variables, wrap, last)
        with translated():
            if on_stdout is None and on_stderr is None:
                done = portal.call(session.run_cell, cell)
            else:
                stream = session.stream_cell(cell)
                self._in_callback.add(threading.get_ident())
                try:
                    done = follow(stream, {"stdout": on_stdout, "stderr": on_stderr})
                finally:
                    self._in_callback.discard(threading.get_ident())
        if done.session_state == "ended":
            self._opened()  # raises the error that ended the session
        if not quiet:
            self._log_verbose("ran %s: %s, exit code %d, %.3f s", language, done.status, done.exit_code, done.duration)
        if done.status == "timeout":
            raise SandboxTimeoutError(
                f"the code ran longer than {seconds:g} s and was stopped", timeout_duration=seconds
            )
        return done

    def _seconds(self, timeout: float | None) -> float:
        """Seconds that code may run: the timeout of the run or the session, else the default or the profile's limit."""
        if timeout is None:
            timeout = self.options.execution_timeout
        if timeout is None:
            return min(self.options.default_timeout or self._longest, self._longest)
        check_seconds("timeout", timeout)
        if timeout > self._longest:
            raise ValidationError(
                f"timeout: {timeout:g} s is above the {self._longest:g} s of limits.timeout in the profile", "give less"
            )
        return timeout

    def _output(self, done: Execution) -> ConsoleOutput:
        return output(done, self.options.encoding_errors)


create_session = SandboxSession
