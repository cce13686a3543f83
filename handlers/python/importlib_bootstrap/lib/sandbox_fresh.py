"""Gives processes that start fresh (spawn, forkserver) what the code defines; loaded with `multiprocessing.spawn`.

Such a process runs the file of its parent's `__main__` under another name. A session has no such file, and its
statements must not run again. So the process gets a file of only its definitions: functions, classes and imports, in
the order of the cells, and the values of the names that they use.
"""

from __future__ import annotations

import functools
import marshal
import pickle
import sys

_DEFINITIONS = ".definitions"
_VALUE_LIMIT = 64 << 20
"""The most bytes of one value: each process has its own copy."""


def prepare(spawn, session) -> None:
    """Makes new processes run the definitions of the session."""
    from multiprocessing.util import get_temp_dir
    from tempfile import mkstemp

    original = spawn.get_preparation_data
    written: dict[int, str] = {}
    """The last file, by what it contains."""

    @functools.wraps(original)
    def get_preparation_data(name):
        content = marshal.dumps((*_definitions(session.sources, session.names), session.sources))
        if hash(content) not in written:
            descriptor, file = mkstemp(".py", "session-", get_temp_dir())  # multiprocessing deletes it at exit
            with open(f"{file}{_DEFINITIONS}", "wb") as definitions:
                definitions.write(content)
            with open(descriptor, "w") as main:
                main.write('__import__("sandbox_fresh").define(globals())\n')
            written.clear()
            written[hash(content)] = file
        return {**original(name), "init_main_from_path": written[hash(content)]}

    spawn.get_preparation_data = get_preparation_data


def _definitions(sources: dict, names: dict) -> tuple[list, dict]:
    """Returns the code of the definitions, and the pickled values of the other names that they mention."""
    import __future__

    import ast

    codes, mentioned = [], set()
    for cell, (_, _, lines, _) in sources.items():
        try:
            body = ast.parse("".join(lines)).body
        except (SyntaxError, ValueError):
            continue  # this cell was not run either
        flags = 0
        for node in body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                for feature in node.names:
                    flags |= getattr(__future__, feature.name).compiler_flag
            elif _defines(node, names):
                try:
                    codes.append(compile(ast.Module([node], []), cell, "exec", flags, dont_inherit=True))
                except SyntaxError:
                    continue  # as above
                mentioned.update(part.id for part in ast.walk(node) if isinstance(part, ast.Name))
    values = {name: _pickled(names[name]) for name in mentioned if name in names}
    return codes, {name: value for name, value in values.items() if value}


def _defines(node, names: dict) -> bool:
    """Whether a statement at the top level only defines something."""
    import ast

    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass)):
        return True
    if isinstance(node, ast.Assign):
        # Such as a lambda, a namedtuple or a TypeVar: they are pickled by their names.
        kinds = [names.get(target.id) for target in node.targets if isinstance(target, ast.Name)]
        return all(getattr(kind, "__module__", None) == "__main__" and hasattr(kind, "__name__") for kind in kinds)
    if isinstance(node, ast.If):
        return all(_defines(part, names) for part in (*node.body, *node.orelse))
    if isinstance(node, ast.Try):
        handled = [part for handler in node.handlers for part in handler.body]
        return all(_defines(part, names) for part in (*node.body, *handled, *node.orelse, *node.finalbody))
    return False


def _pickled(value) -> bytes | None:
    """Returns a value as a pickle; None if it cannot be pickled, as files and locks cannot, or is too large."""
    try:
        if sys.getsizeof(value) <= _VALUE_LIMIT:
            pickled = pickle.dumps(value)
            return pickled if len(pickled) <= _VALUE_LIMIT else None
    except Exception:  # also errors of the user's own classes
        pass
    return None


def define(names: dict) -> None:
    """Defines, in a new process, everything in the names of its main module."""
    import linecache

    with open(f"{names['__file__']}{_DEFINITIONS}", "rb") as definitions:
        codes, values, sources = marshal.load(definitions)
    linecache.cache.update(sources)
    failures: list[str] = []
    main = sys.modules["__main__"]
    sys.modules["__main__"] = sys.modules[names["__name__"]]  # where the classes of pickled values are
    try:
        for code in codes:
            _load(values, names)
            try:
                exec(code, names)
            except Exception as error:
                failures.append(f"line {error.__traceback__.tb_next.tb_lineno} of {code.co_filename}: {error!r}")
        _load(values, names)
    finally:
        sys.modules["__main__"] = main
    names["__getattr__"] = functools.partial(_missing, failures)


def _load(values: dict, names: dict) -> None:
    """Sets the names whose values can be loaded already; the classes of others may be defined later."""
    for name in [*values]:
        try:
            names[name] = pickle.loads(values[name])
            del values[name]
        except Exception:
            continue


def _missing(failures: list[str], name: str) -> type:
    """Stands for what could not be defined. It fails when it is called: a pool replaces a process that ends earlier,
    and would do so without end."""
    if name.startswith("__"):
        raise AttributeError(name)
    reason = "".join(f"; {failure}" for failure in failures)
    message = (
        f"{name!r} is not known in a process that starts fresh (spawn, forkserver){reason}; define it with def or "
        'class at the top level, import it from a file, or use multiprocessing.get_context("fork")'
    )

    def fail(self, *args, **kwargs):
        raise AttributeError(message)

    def make(kind, *args, **kwargs):
        return object.__new__(kind)

    return type(name, (), {"__module__": "__main__", "__new__": make, "__init__": fail})
