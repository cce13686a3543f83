"""Saves the variables of a session in a folder, and opens them in another interpreter.

They are pickled in a child process: the interpreter of the session stays as it is, whatever the hooks of objects do.
"""

from __future__ import annotations

import posix  # the functions of `os`, where code may have replaced them
import sys
from _signal import SIG_DFL, SIGALRM, SIGINT, SIGKILL, SIGTERM, signal

session = None
"""The session, which the runner sets; see `sandbox_serve`."""
_OWN = "__annotations__", "__annotate__", "__conditional_annotations__", "__file__", "__warningregistry__"
"""Names that Python itself gives a module while its code runs."""
_PATIENCE = 3.0, 0.5
"""Seconds in which a child must get on, at first and after some have not."""
_TRIES_WITH_PATIENCE = 4
_SAME = 3
"""Variables of one type that end a child in the same way, after which others of the type are not tried."""
_STEP = 0.1
_LINE = 4096
"""Bytes for what a child does: a number that grows while it gets on, then the type and the number of the variable."""
_DONE, _FAILED = ".", "!"


def save(folder: str) -> None:
    """Saves the variables: tries it without those that end the process that pickles them."""
    names = session.names
    order = [name for name in [*names] if type(name) is str and name not in session.start.names and name not in _OWN]
    threading = sys.modules.get("threading")
    live = posix.getpid(), [*threading._active.values()] if threading else [], session.loop
    lost: dict[str, tuple[str, str]] = {}
    hopeless: list[str] = []
    parts = _parts(folder)
    while True:
        last = _try(folder, order, lost, hopeless, live)
        kind, _, rest = last.partition("\t")
        if kind == _DONE:
            return
        if kind == _FAILED:
            raise RuntimeError(f"the variables could not be saved: {rest}")
        number, _, why = rest.partition("\t")
        lost[order[int(number)]] = kind, why
        for part in {*_parts(folder)} - {*parts}:  # what this try has left
            _unlink(f"{folder}/parts/{part}")
        if sum(each == (kind, why) for each in lost.values()) >= _SAME:
            hopeless.append(kind)


def open_(folder: str) -> None:
    """Opens the variables that were saved in a folder."""
    from sandbox_state_open import Opening

    Opening(session, folder).run()


def _parts(folder: str) -> list:
    """The files in the folder of the parts, which is made first."""
    try:
        return posix.listdir(f"{folder}/parts")
    except FileNotFoundError:
        posix.mkdir(f"{folder}/parts", 0o700)
        return []


def _try(folder: str, order: list, lost: dict, hopeless: list, live: tuple) -> str:
    """Saves in a child; returns its last line, or the type, the number and the reason of the variable that ended it."""
    reader, writer = posix.pipe()
    doing = child = 0
    try:
        doing = _open_doing(folder)
        child = _fork()
        if not child:
            _work(folder, order, lost, hopeless, live, writer, doing)
        posix.close(writer)
        writer = 0
        said, stuck = _watch(child, reader, doing, _PATIENCE[len(lost) >= _TRIES_WITH_PATIENCE])
        last = said.decode().rpartition("\n")[0].rpartition("\n")[2]
        if last.startswith((_DONE, _FAILED)):
            return last
        last = posix.pread(doing, _LINE, 0).partition(b"\n")[0].decode().partition("\t")[2]
    finally:
        for descriptor in (reader, writer, doing):
            if descriptor:
                posix.close(descriptor)
        status = _end(child) if child else 0
    how = f"signal {status & 127}" if status & 127 else f"exit status {status >> 8}"
    why = "saving it takes too long" if stuck else f"saving it ended the interpreter ({how})"
    return f"{last}\t{why}" if last else f"{_FAILED}\t{why.replace('saving it', 'the process')}"


def _open_doing(folder: str) -> int:
    """A file in which a child says what it does: unlike a pipe, that wakes nobody each time."""
    path = f"{folder}/doing"
    doing = posix.open(path, posix.O_RDWR | posix.O_CREAT | posix.O_TRUNC, 0o600)
    _unlink(path)
    posix.write(doing, bytes(_LINE))  # so that there is room later, too
    return doing


def _unlink(path: str) -> None:
    try:  # noqa: SIM105 - code may have replaced `suppress`
        posix.unlink(path)
    except OSError:  # code has put something else there
        pass


def _fork() -> int:
    if sys.version_info < (3, 12):
        return posix.fork()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks while the code's own threads run
        return posix.fork()


def _watch(child: int, reader: int, doing: int, patience: float) -> tuple[bytes, bool]:
    """Reads what a child says at last, or until it has not got on for too long; returns it, and which of the two."""
    from select import POLLIN, poll

    waiting = poll()
    waiting.register(reader, POLLIN)
    said, done, still = b"", b"", 0.0
    while still < patience:
        if waiting.poll(int(_STEP * 1000)):
            piece = posix.read(reader, 1 << 16)
            said += piece
            if not piece or said.endswith(b"\n"):
                return said, False
        elif _has_ended(child):  # while a process that it started has the pipe
            return said, False
        else:
            now = posix.pread(doing, _LINE, 0)
            done, still = now, still + _STEP if now == done else 0.0
    return said, True


def _has_ended(child: int) -> bool:
    try:
        return posix.waitid(posix.P_PID, child, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT) is not None
    except ChildProcessError:  # a handler of the code has waited for it
        return True


def _end(child: int) -> int:
    """Ends a child if it still runs, and returns its status."""
    try:
        if not _has_ended(child):
            posix.kill(child, SIGKILL)
        return posix.waitpid(child, 0)[1]
    except (ChildProcessError, ProcessLookupError):
        return 0


def _work(folder: str, order: list, lost: dict, hopeless: list, live: tuple, writer: int, doing: int) -> None:
    """What the child does; does not return."""
    last = _FAILED
    try:
        null = posix.open("/dev/null", posix.O_RDWR)
        for public in range(3):
            posix.dup2(null, public)
        for number in (SIGINT, SIGTERM, SIGALRM):
            signal(number, SIG_DFL)
        builtins, start = vars(sys.modules["builtins"]), session.start
        replaced = [name for name, value in start.builtins.items() if builtins.get(name) is not value and name != "_"]
        builtins.update(start.builtins)
        path, sys.path[:] = [*sys.path], start.path
        from sandbox_state_save import Saving

        sys.path[:] = path
        Saving(session, folder, doing, replaced).run(order, lost, hopeless, live)
        last = _DONE
    except BaseException as error:
        from sandbox_state_report import clean, reason

        last = f"{_FAILED}\t{clean(reason(error))}"
    finally:
        posix.write(writer, f"{last}\n".encode())
        posix._exit(0)
