"""Imports a module before any code asks for it, so that the code's own import of it costs nothing."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import warnings

import sandbox_rich  # noqa: F401 - code that uses such modules shows values, and would load it then
import sandbox_state_pickler  # noqa: F401 - so that a session is saved sooner
import sandbox_state_reader  # noqa: F401 - and opened
import sandbox_state_save  # noqa: F401 - what code has imported later cannot be in their way
import sandbox_state_stored  # noqa: F401
from sandbox_channel import quote

_MISSED = 200
"""The most modules that the report names."""
_ANEW = ("matplotlib.pyplot",)
"""Modules that act on what the code has set before it imports them, and cost little without those they import."""
_REHEARSED = {
    "pandas": """
import pandas
frame = pandas.DataFrame({"a": [1, 2, 1], "b": [3.5, 4.0, 5.0], "c": ["x", "y", "z"]})
repr(frame), repr(frame.a), frame.groupby("a").b.sum().to_dict(), frame[frame.b > 4], frame.describe()
frame.merge(frame, on="a").sort_values("b_x")
"""
}
"""What is run after an import, so that the code's own first use is as quick as the next. It must print nothing."""
_SO_DOMAIN, _AF_UNIX = 39, 1


def preload(name: str) -> str:
    """Imports a module, and returns what the report says of it; raises the errors of its code."""
    top = name.partition(".")[0]
    missed = _Missed()
    memory, connections = _own_memory(), _connections()
    folder, mask = os.getcwd(), os.umask(0o022)
    os.umask(mask)
    sys.meta_path.append(missed)
    try:
        importlib.import_module(name)
        _rehearse(name)
    except ModuleNotFoundError:
        if top in missed.names:
            return '{"missing":true}'
        raise
    finally:
        sys.meta_path.remove(missed)
        os.chdir(folder)
        os.umask(mask)
    if name in _ANEW:
        parent, _, child = name.rpartition(".")
        del sys.modules[name], sys.modules[parent].__dict__[child]
    starts = "threads" if len(sys._current_frames()) > 1 else "processes" if _has_children() else ""
    if not starts and _connections() > connections:
        starts = "connections"
    _end_threads()
    gc.collect()
    gc.freeze()  # no later collection, such as that at the end of a run, looks at what modules consist of
    names = ",".join(map(quote, sorted(missed.names)[:_MISSED]))
    return f'{{"memory":{max(0, _own_memory() - memory)},"starts":"{starts}","missed":[{names}]}}'


def _rehearse(name: str) -> None:
    """Uses a module in the ways that most code does."""
    if name in _REHEARSED:
        # Another version of the module may lack something: then the first use is slower, and that is all.
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            exec(_REHEARSED[name], {})


class _Missed:
    """The last finder: it is asked only for modules that no other one knows, such as libraries that are optional."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name, path=None, target=None) -> None:
        if path is None:
            self.names.add(name)


def _own_memory() -> int:
    """The bytes that this process shares with no file."""
    with open("/proc/self/statm") as file:
        resident, shared = map(int, file.read().split()[1:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _connections() -> int:
    """How many sockets of a network this process has open, or listens on."""
    from _socket import SOL_SOCKET, socket

    count = 0
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                found = socket(fileno=os.dup(number))
                count += found.getsockopt(SOL_SOCKET, _SO_DOMAIN) != _AF_UNIX
                found.close()
        except OSError:
            pass  # the descriptor of the list itself
    return count


def _end_threads() -> None:
    """Ends the threads of libraries that calculate: they end before a fork, and start again when they are needed.

    Code that forks without using them is then not told that it has threads.
    """
    try:
        child = os.fork()
    except OSError:
        return
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
