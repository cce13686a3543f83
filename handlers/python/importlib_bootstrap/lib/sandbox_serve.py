"""The runner's start-up, its loop, and the steps of one run. The protocol is in `handlers/README.md`."""

from __future__ import annotations

import atexit
import os
import sys

from sandbox_cell import Session, Start, display
from sandbox_channel import Channel, quote
from sandbox_files import Scan, added, changed, listed
from sandbox_guard import INTERRUPTED, Guard
from sandbox_imports import AfterImport

DESCRIPTORS_LOST = 71
"""The runner's exit status when the code has closed the descriptors that connect it to the server."""
_RESERVE = 4 << 20
"""Bytes that the runner gives up once code has used all memory that this process may have: enough to report the error,
and to read the next request."""


def set_up() -> tuple[Guard, Session]:
    """Prepares this interpreter for user code; does not use any descriptor, so that it can be forked afterwards."""
    guard = Guard()
    session = Session()
    sys.meta_path.insert(
        0,
        AfterImport(
            {
                "linecache": session.fill_linecache,
                "traceback": _hide_from_traceback,
                "inspect": session.show_in_inspect,
                "asyncio": session.enter_loop,
                "anyio._core._eventloop": session.nest_anyio,
                "multiprocessing.spawn": session.prepare_processes,
                "matplotlib._api": _hide_from_matplotlib,
                "matplotlib.backend_bases": _note_saved_figures,
                "plotly.io._renderers": _show_plotly_here,
                "altair": _show_altair_here,
                "PIL.ImageShow": _show_pillow_here,
                "IPython.core.display_functions": _display_here,
                "sandbox_state": session.give_to_state,
            }
        ),
    )
    atexit.register = session.note_exit_functions(atexit.register)
    sys.argv[:] = [""]
    sys.path.append(os.environ["SANDBOX_WORKDIR"])  # last, so that a `code.py` of the user shadows nothing
    session.start = Start()
    return guard, session


def serve(guard: Guard, session: Session) -> None:
    """Answers requests until the input ends; does not return."""
    status = 0
    try:
        runs = Runs(guard, session, Channel())
        while runs.serve_one():
            pass
    except OSError:
        status = DESCRIPTORS_LOST
    except MemoryError:
        os.write(2, b"MemoryError: the code left the interpreter no memory\n")
        status = 1
    # sys.exit would wait for the code's threads.
    os._exit(status)


class Runs:
    """The runs of one session."""

    def __init__(self, guard: Guard, session: Session, channel: Channel) -> None:
        self._guard = guard
        self._session = session
        self._channel = channel
        self._process = os.getpid()
        self._workdir = os.environ["SANDBOX_WORKDIR"]
        self._figures = os.environ["SANDBOX_FIGURES"]
        self._searched = (os.environ.get("SANDBOX_LIBRARIES", ""), self._workdir)
        self._exit_code = 0
        self._inspection = None
        self._preloaded = ""
        self._told = False
        """Whether the session's report has said that the code has left something for the interpreter's exit."""
        self._reserve = _reserved()

    def serve_one(self) -> bool:
        """Answers one request; False at the end of the input."""
        request = self._channel.read()
        if request is None:
            return False
        self._channel.begin(request["nonce"])
        guard, session = self._guard, self._session
        guard.interrupted = False
        self._reserve = self._reserve or _reserved()
        self._forget_missing_modules()
        files, figures = Scan(self._workdir), listed(self._figures)

        self._inspection = None
        self._preloaded = ""
        if request.get("inspect"):
            guard.run(self._prepare_inspection, request)
        error = guard.run(self._execute, request)
        if isinstance(error, MemoryError):
            self._reserve = None
        forked = os.getpid() != self._process
        last = request.get("last") and not forked
        waiting = guard.run(session.finish, error is not None) if last else None
        drawing = None if forked else guard.run(_write_figures)
        if error is None:
            error = waiting or drawing
        self._finish(error)
        if last:
            guard.run(_end)
            guard.run(_write_figures)
            self._flush()
            self._channel.restore()
        if self._inspection is not None and not forked:
            guard.run(self._inspection.record, error)
            self._flush()
        interrupted = guard.interrupted and isinstance(error, KeyboardInterrupt)
        # As in Guard.run: this frame would keep the objects of the code's frames alive.
        error = waiting = drawing = None
        if last:
            guard.run(session.let_go)
            self._flush()
            self._channel.restore()
        if forked:
            os._exit(self._exit_code)  # a child process of the code ends where the code ends

        waits = "" if last or self._told or not session.leaves else ',"waits":true'
        self._told = session.leaves
        names, omitted = changed(files, Scan(self._workdir))
        drawn = added(figures, self._figures)
        report = (
            f'{{"status":"{"error" if self._exit_code else "ok"}","exit_code":{self._exit_code},'
            f'"result":{"null" if session.result is None else quote(session.result)},'
            f'"interrupted":{"true" if interrupted else "false"},'
            f'"files":[{",".join(map(quote, names))}],"files_omitted":{omitted},'
            f'"figures":[{",".join(map(quote, drawn))}]{waits}'
            f"{'' if self._inspection is None else self._inspection.report}{self._preloaded}}}"
        )
        self._channel.end(request["nonce"], report)
        return True

    def _prepare_inspection(self, request: dict) -> None:
        from sandbox_inspection import Inspection

        code = request.get("instead") or request["code"]  # both bind the same names
        self._inspection = Inspection(self._session.names, code, request["variables"])

    def _execute(self, request: dict) -> None:
        if self._guard.interrupted:
            raise KeyboardInterrupt  # it arrived between the request and this moment
        if "preload" in request:
            from sandbox_preload import preload

            self._preloaded = f',"preloaded":{preload(request["preload"])}'
            return
        variables = request["variables"]
        if "__stdin" in variables:
            self._channel.give(variables.pop("__stdin"))
        self._session.run(request["cell"], request["code"], variables, request.get("instead"))

    def _finish(self, error: BaseException | None) -> None:
        """Restores the streams and prints the error; every step may run user code, so each step is guarded."""
        self._flush()
        self._channel.restore()
        self._exit_code = 0
        if error is not None:
            self._exit_code = 1
            late = self._guard.run(self._print_error, error)
            if isinstance(error, KeyboardInterrupt) and isinstance(late, KeyboardInterrupt):
                # Interrupted again while the first interrupt was printed: print only one line.
                self._exit_code = INTERRUPTED
                self._guard.run(lambda: sys.stderr.write("KeyboardInterrupt\n"))
            self._flush()

    def _flush(self) -> None:
        # They may be objects of the code: closed, broken or None. Then there is nothing left to flush.
        for stream in (sys.stdout, sys.stderr):
            self._guard.run(lambda stream=stream: stream.flush())

    def _print_error(self, error: BaseException) -> None:
        try:
            from sandbox_errors import exit_code, print_error

            self._exit_code = exit_code(error)
            print_error(error, self._session)
        except Exception:
            # The code has broken the import system or its own hook: the interpreter's own hook needs neither.
            sys.__excepthook__(type(error), error, error.__traceback__)

    def _forget_missing_modules(self) -> None:
        """Lets the import system see what was installed or copied in since the last run; only in two folders."""
        for folder in self._searched:
            finder = sys.path_importer_cache.get(folder)
            if finder is None:
                sys.path_importer_cache.pop(folder, None)  # the folder did not exist at the first search
            else:
                finder.invalidate_caches()


def _reserved() -> bytes | None:
    try:
        return bytes(_RESERVE)  # no page of it is ever touched, so it takes no memory of the machine
    except MemoryError:
        return None


def _hide_from_traceback(traceback) -> None:
    from sandbox_frames import hide_from_traceback

    hide_from_traceback(traceback)


def _hide_from_matplotlib(api) -> None:
    from sandbox_frames import hide_from_matplotlib

    hide_from_matplotlib(api)


def _note_saved_figures(backend_bases) -> None:
    from sandbox_saved import watch

    watch(backend_bases)


def _show_plotly_here(renderers) -> None:
    from sandbox_pages import show_plotly

    renderers.show = show_plotly


def _show_altair_here(altair) -> None:
    charts = getattr(altair, "TopLevelMixin", None)  # a module of the user may have this name
    if charts is not None:
        from sandbox_pages import show_altair

        charts.show = charts.display = show_altair


def _show_pillow_here(image_show) -> None:
    from sandbox_rich import PillowViewer

    image_show.register(PillowViewer(), 0)


def _display_here(display_functions) -> None:
    # Without a notebook's shell, IPython's own function only prints a text.
    display_functions.display = display


def _end() -> None:
    """Waits for the code's threads and runs its exit functions, as an interpreter that exits does."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()


def _write_figures() -> None:
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is not None and (helpers.Gcf.figs or "sandbox_figures" in sys.modules):
        from sandbox_figures import write_open

        write_open()
