"""The variables of a Python session are saved in a folder and opened in another interpreter.

The two interpreters are plain processes that share the folder, where no limit of a sandbox matters.
"""

import io
import os
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree

import anyio
import pytest

from llm_sandbox_mcp import Sandboxes
from tests.engines import MIB, host_folder, need, small_profile

from .driver import Run, Runner, RunnerEnded
from .python_environment import python

SAVE = "__import__('sandbox_state').save('{}')"
OPEN = "__import__('sandbox_state').open_('{}')"
LIBRARIES = ("numpy", "pandas")


class Saved:
    """A session that is saved, and opened in new interpreters."""

    def __init__(self, place: Path, stack: ExitStack, *libraries: str) -> None:
        self._place = place
        self._stack = stack
        self._libraries = libraries
        self._count = 0
        self._cells = 0
        self.folder = place / "saved"
        self.folder.mkdir()

    def interpreter(self, *libraries: str) -> Runner:
        """A new interpreter."""
        self._count += 1
        return self._stack.enter_context(python(self._place / str(self._count), *(libraries or self._libraries)))

    def save(self, *cells: str) -> Runner:
        """Runs cells, and saves what they leave; returns the interpreter, which goes on."""
        runner = self.interpreter()
        for cell in cells:
            assert runner.run(cell).err == ""
        self.save_again(runner)
        return runner

    def save_again(self, runner: Runner) -> None:
        run = self._act(runner, SAVE)
        assert (run.out, run.err, run.result, run.files) == ("", "", None, [])

    def open(self, *libraries: str) -> Runner:
        """Opens it, and returns the interpreter."""
        runner = self.interpreter(*libraries)
        runner.cell = self._cells
        run = self._act(runner, OPEN)
        assert (run.out, run.err, run.result) == ("", "", None)
        assert not (self.folder / "opening").exists()
        return runner

    def _act(self, runner: Runner, code: str) -> Run:
        """Runs code of the server's own, which is no cell of the session."""
        self._cells, runner.cell = runner.cell, -1
        run = runner.run(code.format(self.folder))
        runner.cell = self._cells
        return run

    def save_for_later(self, *cells: str) -> Runner:
        """The same, so that the next save can leave out what has not changed."""
        (self.folder / "known").touch()
        return self.save(*cells)

    def save_what_changed(self, runner: Runner) -> int:
        """Saves again what is not saved already; returns the bytes of the parts that are written."""
        earlier = self._place / f"earlier{len([*self._place.iterdir()])}"
        self.folder.rename(earlier)
        self.folder.mkdir()
        (self.folder / "known").write_text("".join(f"{path.name}\n" for path in (earlier / "parts").iterdir()))
        self.save_again(runner)
        written = self.parts()
        assert not {*written} & {path.name for path in (earlier / "parts").iterdir()}
        for path in (earlier / "parts").iterdir():
            path.rename(self.folder / "parts" / path.name)
        return sum(written.values())

    def parts(self) -> dict[str, int]:
        """The sizes of the parts that are there, by name."""
        return {path.name: path.stat().st_size for path in (self.folder / "parts").iterdir()}

    def report(self) -> dict[str, tuple[str, str]]:
        """What is lost, by name."""
        lines = [line.split("\t") for line in (self.folder / "report").read_text().splitlines()]
        assert lines[-1][0] == "kept" and int(lines[-1][1]) >= 0
        return {line[1]: (line[2], line[3]) for line in lines if line[0] == "lost"}

    def notes(self) -> list[str]:
        lines = [line.split("\t") for line in (self.folder / "report").read_text().splitlines()]
        return [line[1] for line in lines if line[0] == "note"]


@pytest.fixture
def saved(tmp_path: Path) -> Iterator[Saved]:
    with ExitStack() as stack:
        yield Saved(tmp_path, stack)


@pytest.mark.parametrize(
    ("code", "checked"),
    [
        ("a = [1, {'b': (2.5, None, True)}, b'x', 'é', {3}, frozenset([4]), 10**30, 1j]", "a[1]['b'], a[-2] == 10**30"),
        ("import datetime, decimal, re\na = datetime.date(2020, 1, 2), decimal.Decimal('1.5'), re.compile('x')", "a[0].year"),
        ("def f(x, *, y=2):\n    'doc'\n    return x + y", "f(1), f.__doc__, f.__kwdefaults__"),
        ("f = lambda x: x * n\nn = 3", "f(2)"),
        ("def f():\n    return [g(x) for x in range(2)]\ndef g(x):\n    return x + 1", "f()"),
        ("def f(n):\n    return 1 if n == 0 else n * f(n - 1)", "f(5)"),
        ("even = lambda n: n == 0 or odd(n - 1)\nodd = lambda n: n != 0 and even(n - 1)", "even(10)"),
        ("def f():\n    yield 1\n    yield 2", "[*f()]"),
        ("async def f():\n    return 3", "await f()"),
        ("def f():\n    def g(n):\n        return n and g(n - 1) + 1\n    return g\ng = f()", "g(3), f()(4)"),
        (
            "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(f(x))\n    return g\n"
            "@twice\ndef f(x):\n    return x + 1\n@functools.lru_cache\ndef c(x):\n    return x\np = functools.partial(f, 1)",
            "f(1), p(), f.__wrapped__(1), c(5)",
        ),
        (
            "from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n    x: int\n"
            "    y: list = field(default_factory=list)\np = P(1)",
            "p == P(1), p, P(2) > p, P(1).y is p.y",
        ),
        (
            "from enum import Enum, Flag\nclass C(Enum):\n    RED = 1\n    @property\n    def low(self):\n"
            "        return self.name.lower()\nclass F(Flag):\n    A = 1\n    B = 2\nc = C.RED\nf = F.A | F.B",
            "c is C.RED, c.low, f == F.A | F.B",
        ),
        (
            "from typing import NamedTuple\nfrom collections import namedtuple\nclass N(NamedTuple):\n    a: int\n    b: int = 2\n"
            "M = namedtuple('M', 'x y')\nn, m = N(1), M(3, 4)",
            "n, m, isinstance(n, N), type(m) is M, N(5).b",
        ),
        (
            "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass B(Generic[T]):\n    def __init__(self, v: T):\n"
            "        self.v = v\nb = B[int](1)\nclass I(B[int]): pass",
            "b.v, isinstance(b, B), I(2).v, B[str].__args__",
        ),
        (
            "class A:\n    __slots__ = ('x',)\n    def __init__(self):\n        self.x = 1\n    def m(self):\n        return 'A'\n"
            "class B(A):\n    k = 0\n    def m(self):\n        return super().m() + 'B'\n    @classmethod\n    def make(cls):\n"
            "        cls.k += 1\n        return cls()\n    @staticmethod\n    def s():\n        return 's'\n    @property\n"
            "    def p(self):\n        return self.x\n    @p.setter\n    def p(self, v):\n        self.x = v\nb = B.make()\nm = b.m\nb.p = 7",
            "b.m(), m(), b.p, B.make().k, B.s(), m.__self__ is b, isinstance(b, A)",
        ),
        ("import abc\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def m(self): ...\nclass B(A):\n    def m(self): return 1\nb = B()", "b.m(), isinstance(b, A)"),
        ("import os.path, xml.dom.minidom, json as j\nfrom math import pi, floor", "xml.dom.minidom.__name__, j.dumps([1]), floor(pi), os.path.sep"),
        ("view = memoryview(bytearray(b'ab'))\nb = bytearray(b'c')\nr = range(3)", "bytes(view), view.readonly, b, r"),
        ("deep = []\nfor _ in range(3000): deep = [deep]", "len(deep)"),
        ("e = ValueError('x')\nclass E(Exception):\n    pass\nmine = E(1)", "e.args, mine.args, isinstance(mine, E)"),
        ("import random\nr = random.Random(1)\nx = r.getstate()", "r.getstate() == x"),
    ],
)  # fmt: skip
def test_values_and_definitions_are_the_same_after_opening(saved: Saved, code: str, checked: str) -> None:
    runner = saved.save(code)
    assert saved.report() == {}
    expected = runner.run(checked)
    assert expected.status == "ok", expected.err
    opened = saved.open()
    assert saved.report() == {}
    assert opened.run(checked).result == expected.result


def test_what_is_shared_stays_shared(saved: Saved) -> None:
    saved.save(
        "a = [1]\nb = {'a': a}\na.append(b)\nclass C: pass\nc = C()\nc.a = a\nd = [c, C]\n"
        "def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n        return n\n"
        "    return up, lambda: n\nup, look = counter()"
    )
    opened = saved.open()
    assert opened.run("a is b['a'], a[1] is b, c.a is a, d[0] is c, type(c) is C, d[1] is C").result == str((True,) * 6)
    assert opened.run("up(), up(), look()").result == "(1, 2, 2)"


def test_functions_see_and_change_the_variables_of_the_session(saved: Saved) -> None:
    saved.save(
        "n = 1\ndef up():\n    global n\n    n += 1\n    return n\nclass C:\n    def see(self):\n        return n\n"
        "c = C()\ng = globals()\ndeep = [globals(), __import__('__main__')]"
    )
    opened = saved.open()
    assert opened.run("up(), n, c.see()").result == "(2, 2, 2)"
    assert opened.run("n = 9\nc.see(), up()").result == "(9, 10)"
    main = "__import__('sys').modules['__main__']"
    checks = f"up.__globals__ is globals(), g is globals(), deep[0] is g, deep[1] is {main}, C.see.__globals__ is g"
    assert opened.run(checks).result == str((True,) * 5)
    assert opened.run("type(__builtins__).__name__, __name__").result == "('module', '__main__')"


def test_what_is_odd_costs_nothing_else(saved: Saved) -> None:
    saved.save(
        "import functools, os, tempfile\nx = 1\nbare = eval(\"type('A', (), {})\", {})\nb = bare()",
        "class C:\n    @functools.cached_property\n    def p(self):\n        return 41\nc = C()\nc.p",
        "with tempfile.TemporaryDirectory() as folder:\n    os.chdir(folder)",
        "closed = open('/etc/passwd')\nclosed.close()",
    )
    assert set(saved.report()) <= {"bare", "b"}
    opened = saved.open()
    assert opened.run("x, c.p, C().p, closed.closed").result == "(1, 41, 41, True)"


def test_of_many_that_hang_only_the_first_are_tried(saved: Saved) -> None:
    saved.save(
        "import time\nclass Slow:\n    def __reduce__(self):\n        time.sleep(60)\nkept = [1]",
        "for number in range(40):\n    globals()[f'slow{number}'] = Slow()",
    )
    lost = saved.report()
    assert len(lost) == 40
    assert {why for _, why in lost.values()} == {"saving it takes too long", "others of this type could not be saved"}
    assert saved.open().run("kept").result == "[1]"


def test_the_source_of_cells_is_kept(saved: Saved) -> None:
    saved.save("def fail():\n    return 1 / 0\nclass C:\n    pass")
    opened = saved.open()
    error = opened.run("fail()").err
    assert '  File "<cell 1>", line 2, in fail\n    return 1 / 0\n' in error
    assert '  File "<cell 2>", line 1, in <module>' in error
    assert opened.run("import inspect\nprint(inspect.getsource(fail), inspect.getsource(C))").out == (
        "def fail():\n    return 1 / 0\n class C:\n    pass\n\n"
    )
    rmtree(saved.folder)
    saved.folder.mkdir()
    saved.save_again(opened)
    assert '"<cell 1>", line 2, in fail\n    return 1' in saved.open().run("fail()").err


def test_the_environment_the_folder_and_the_path_are_kept(saved: Saved, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    saved.save(
        f"import os, sys\nos.environ['ADDED'] = 'x'\nos.environ['LANG'] = 'C'\nos.chdir('{other}')\n"
        f"sys.path.insert(0, '/first')\nsys.path.append('/last')"
    )
    opened = saved.open()
    assert opened.run("os.environ['ADDED'], os.environ['LANG'], os.getcwd()").result == str(("x", "C", str(other)))
    assert opened.run("sys.path[0], sys.path[-1]").result == "('/first', '/last')"
    assert opened.run("os.environ['SANDBOX_WORKDIR'].endswith('2/workdir')").result == "True"


LOST = {
    "file": ("open('/etc/passwd')", "_io.TextIOWrapper", "a file that is open"),
    "binary": ("open('/etc/passwd', 'rb')", "_io.BufferedReader", "a file that is open"),
    "generator": ("(i for i in ())", "generator", ""),
    "sock": ("socket.socket()", "socket.socket", ""),
    "thread": ("threading.Thread()", "threading.Thread", ""),
    "lock": ("threading.Lock()", "_thread.lock", ""),
    "process": ("subprocess.Popen(['sleep', '60'])", "subprocess.Popen", ""),
    "database": ("sqlite3.connect(':memory:')", "sqlite3.Connection", ""),
}


def test_what_cannot_be_kept_is_named(saved: Saved) -> None:
    code = "import asyncio, socket, sqlite3, subprocess, threading, time\nkept = [1]\n"
    code += "".join(f"{name} = [kept, {make}][1]\n" for name, (make, _, _) in LOST.items())
    code += "hidden = {'kept': kept, 'file': file}\n_after = [kept]\n__own = 1\n"
    code += "threading.Thread(target=time.sleep, args=(60,), name='sleeper', daemon=True).start()\n"
    code += "task = asyncio.create_task(asyncio.sleep(60), name='waiter')\nawait asyncio.sleep(0)\nprint = print"
    runner = saved.save(code)
    lost = saved.report()
    for name, (_, kind, why) in LOST.items():
        found, says = lost.pop(name)
        assert found == kind and (says == why if why else says.startswith("cannot pickle '"))  # in words of its version
    assert lost.pop("hidden") == ("dict", "a file that is open")
    assert lost.pop("task")[0] == "_asyncio.Task"
    assert lost.pop("waiter") == ("task", "it waits in the interpreter")
    assert lost.pop("sleeper") == ("thread", "it runs in the interpreter")
    (child,) = lost.values()
    assert child == ("process", "it runs sleep")
    assert runner.run("file.readline() != '', thread.name != '', kept").result == "(True, True, [1])"
    opened = saved.open()
    assert saved.report() == {}
    assert opened.run("kept is _after[0], __own, 'file' in globals()").result == "(True, 1, False)"


HOSTILE = """
import os, time
class Raises:
    def __reduce__(self): raise ValueError("no")
class Leaves:
    def __reduce__(self): raise SystemExit(2)
class Ends:
    def __reduce__(self): os._exit(3)
class Kills:
    def __reduce__(self): os.kill(os.getpid(), 9)
class Hangs:
    def __reduce__(self):
        while True: pass
class Floods:
    def __reduce__(self):
        os.write(1, b"x" * 200_000); os.write(2, b"x" * 200_000); print("x" * 200_000)
        return list, ()
class Lies:
    def __reduce__(self): return 7
class Changes:
    def __reduce__(self):
        shared.append("changed")
        raise ValueError
class Metaclass(type):
    def __getattribute__(kind, name):
        if name == "__qualname__": raise KeyError(name)
        return type.__getattribute__(kind, name)
class Strange(metaclass=Metaclass): pass
shared = [1]
"""


def test_hostile_objects_cost_only_themselves_when_they_are_saved(saved: Saved) -> None:
    kinds = ("Raises", "Leaves", "Ends", "Kills", "Hangs", "Floods", "Lies", "Strange")
    runner = saved.save(
        HOSTILE,
        "".join(f"{kind[0].lower()}{at} = [shared, {kind}()]\n" for at, kind in enumerate(kinds)),
        "last = [shared]\nwith_fresh = [[9], Raises()]\nfresh = with_fresh[0]\nagain = [fresh, fresh]",
    )
    lost = saved.report()
    assert lost.pop("with_fresh") == ("list", "ValueError: no")
    assert lost == {
        "r0": ("list", "ValueError: no"),
        "l1": ("list", "SystemExit: 2"),
        "e2": ("list", "saving it ended the interpreter (exit status 3)"),
        "k3": ("list", "saving it ended the interpreter (signal 9)"),
        "h4": ("list", "saving it takes too long"),
        "l6": ("list", lost["l6"][1]),
        "s7": ("list", "KeyError: '__qualname__'"),
        "Strange": ("Metaclass", "KeyError: '__qualname__'"),
    }  # fmt: skip
    assert runner.run("len(r0), shared, type(h4[1]).__name__").result == "(2, [1], 'Hangs')"
    opened = saved.open()
    assert opened.run("last[0] is shared, f5[0] is shared, f5[1]").result == "(True, True, [])"
    assert opened.run("fresh, again[0] is fresh, again[1] is fresh").result == "([9], True, True)"


def test_the_live_session_is_not_changed_by_hooks(saved: Saved) -> None:
    runner = saved.save(HOSTILE, "c = Changes()", "5")
    assert runner.run("shared, _").result == "([1], 5)"
    assert (
        runner.run("import sys; [n for n in sys.modules if n.startswith('sandbox_cloud') or n == 'pickle']").result
        == "[]"
    )


OPENED = """
import os, time
class Ends:
    def __reduce__(self): return os._exit, (9,)
class Hangs:
    def __reduce__(self): return time.sleep, (60,)
class Raises:
    def __reduce__(self): return int, ("x",)
class Floods:
    def __reduce__(self): return os.write, (1, b"x" * 200_000)
"""


def test_hostile_objects_cost_only_themselves_when_they_are_opened(saved: Saved) -> None:
    saved.save(
        OPENED,
        "shared = [1]\na = [[0], Ends()]\nb = [shared, Raises()]\nhead = [2]\nc = {'head': head, 'x': [head, Raises()]}\n"
        "c['self'] = c\nd = [3, c]\ne = [shared, Hangs()]\nf = Floods()\ng = [shared, [head]]\nh = Ends()\ni = a[0]",
    )
    assert saved.report() == {}
    for last in ("a", "h"):
        runner = saved.interpreter()
        with pytest.raises(RunnerEnded, match="exit code 9"):
            runner.run(OPEN.format(saved.folder))
        assert (saved.folder / "opening").read_text() == last
        assert not (saved.folder / "report").exists()
    for _ in range(2):
        opened = saved.open()
        assert saved.report() == {
            "a": ("list", "opening it ended the interpreter"),
            "b": ("list", "ValueError: invalid literal for int() with base 10: 'x'"),
            "c": ("dict", "ValueError: invalid literal for int() with base 10: 'x'"),
            "d": ("list", "it shares something with c, which is lost"),
            "e": ("list", "opening it takes too long"),
            "h": ("Ends", "opening it ended the interpreter"),
        }
        assert opened.run("g[0] is shared, g[1][0] is head, head, i, f").result == "(True, True, [2], [0], 200000)"


def test_a_session_that_has_replaced_what_everyone_uses_is_saved(saved: Saved) -> None:
    runner = saved.save(
        "import builtins, os, sys, io, time\nkept = [1]\nimported = []\noriginal = __import__\n"
        "def __import__(name, *rest):\n    imported.append(name)\n    return original(name, *rest)\n"
        "builtins.__import__ = __import__\nbuiltins.print = builtins.open = builtins.zip = None\nsys.stdout = io.StringIO()\n"
        "os.fork = os.open = time.sleep = None\nsys.setrecursionlimit(200)\nimported.clear()"
    )
    ((what, names),) = (note.split(": ") for note in saved.notes())
    assert what == "what code put in the place of builtins is not saved"
    assert {*names.split(", ")} == {"__import__", "open", "print", "zip"}
    assert runner.run("os.fork, builtins.zip, kept").result == "(None, None, [1])"
    opened = saved.open()
    assert opened.run("kept, sys.stdout is not None").result == "([1], True)"


def test_threads_of_the_code_go_on_while_it_is_saved(saved: Saved) -> None:
    runner = saved.save(
        "import threading, time\nn = 0\ntable = {}\ndef work():\n    global n\n    while True:\n        n += 1\n"
        "        table[n % 1000] = n\n        globals()[f'v{n % 50}'] = n\n        time.sleep(0)\n"
        "threading.Thread(target=work, daemon=True, name='worker').start()\nwhile not n: time.sleep(0.001)"
    )
    assert saved.report() == {"worker": ("thread", "it runs in the interpreter")}
    assert runner.run("before = n\nwhile n == before: time.sleep(0.001)\nn > before").result == "True"
    assert saved.open().run("len(table) > 0").result == "True"


def test_an_interrupt_ends_the_child_and_not_the_session(saved: Saved) -> None:
    runner = saved.interpreter()
    runner.run(HOSTILE + "\nh = Hangs()")
    runner.send(SAVE.format(saved.folder))
    anyio.run(anyio.sleep, 0.7)
    runner.interrupt()
    assert runner.finish().interrupted
    assert not (saved.folder / "report").exists()
    assert (
        runner.run(
            "import subprocess\nsubprocess.run(['pgrep', '-P', str(os.getpid())], capture_output=True).stdout"
        ).result
        == "b''"
    )


def test_a_module_of_the_user_is_found_again_and_a_missing_one_is_named(saved: Saved, tmp_path: Path) -> None:
    for place in ("1", "2"):
        folder = tmp_path / place / "workdir"
        folder.mkdir(parents=True)
        (folder / "mine.py").write_text("class C:\n    pass\n")
    (tmp_path / "1/workdir/gone.py").write_text("class D:\n    pass\n")
    saved.save("import mine, gone\nc = mine.C()\nd = gone.D()\nlast = [c]")
    opened = saved.open()
    missing = "No module named 'gone'"
    assert saved.report() == {"gone": ("module", missing), "d": ("gone.D", missing)}
    assert opened.run("isinstance(c, mine.C), last[0] is c").result == "(True, True)"


def test_code_of_another_version_is_made_anew_from_its_source(saved: Saved) -> None:
    saved.save(
        "n = 2\ndef f(x):\n    return [x * n for _ in range(2)]\ng = lambda x: x + n\nh = eval('lambda: 1')\ndata = [f, 1]\nd = {'x': 1}"
    )
    index = saved.folder / "index"
    magic = saved.interpreter().run("import importlib.util\nimportlib.util.MAGIC_NUMBER.hex()").result
    assert magic
    old = bytes.fromhex(magic.strip("'"))
    assert index.read_bytes().count(old) == 1
    index.write_bytes(index.read_bytes().replace(old, b"\x00\x0c\r\n"))
    opened = saved.open()
    ((name, (kind, why)),) = saved.report().items()
    assert (name, kind) == ("h", "function") and why.startswith("a function of Python 3.")
    assert opened.run("f(3), g(1), data[0] is f, d").result == "([6, 6], 3, True, {'x': 1})"


def test_arrays_and_tables_are_kept_and_can_still_be_changed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        saved = Saved(tmp_path, stack, *LIBRARIES)
        saved.save(
            "import numpy as np\nimport pandas as pd\nlarge = np.arange(2_000_000.0)\nsmall = np.ones(3)\n"
            "constant = np.arange(100_000)\nconstant.flags.writeable = False\n"
            "frame = pd.DataFrame({'a': np.arange(50_000), 'b': ['x'] * 50_000})\nagain = [large, frame]\n"
            "turned = np.ones((300, 400)).T\nclass Bad:\n    def __reduce__(self): raise ValueError\nbad = [large + 1, Bad()]\nlast = large * 2"
        )
        assert [*saved.report()] == ["bad"]
        assert sum(saved.parts().values()) < 50 * MIB
        opened = saved.open()
        assert saved.report() == {}
        checks = "again[0] is large, again[1] is frame, float(large.sum()), float(last.sum()), turned.shape, frame.a.sum(), list(frame.b[:2])"
        shown = "(True, True, 1999999000000.0, 3999998000000.0, (400, 300), np.int64(1249975000), ['x', 'x'])"
        assert opened.run(checks).result == shown
        assert (
            opened.run("large[0] = small[0] = 5\nframe.loc[0, 'a'] = 7\nlarge[0], constant.flags.writeable").result
            == "(np.float64(5.0), False)"
        )
        index = saved.folder / "index"
        version = opened.run("pd.__version__").result
        assert version
        version = version.strip("'")
        index.write_bytes(index.read_bytes().replace(version.encode(), b"0" * len(version)))
        saved.open()
        assert saved.notes() == [f"pandas is {version} now; the session was saved with {'0' * len(version)}"]


ARRAYS = "import numpy as np\nlarge = np.arange(2_000_000.0)\nview = {'large': large, 'small': [1]}\nn = 1"


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    with ExitStack() as stack:
        saved = Saved(tmp_path, stack, "numpy")
        runner = saved.save_for_later(ARRAYS, DEFINED, LONG)
        assert sum(saved.parts().values()) > 16_000_000
        assert saved.save_what_changed(runner) == 0
        runner.run("n = 2\nnew = [view]")
        assert 0 < saved.save_what_changed(runner) < 20_000
        runner.run("large[1_000_000] = 7")
        assert 16_000_000 <= saved.save_what_changed(runner) < 16_100_000
        runner.run("rows[50_000]['n'] = -1")
        assert 1_000_000 < saved.save_what_changed(runner) < 4_000_000
        opened = saved.open()
        assert saved.report() == {}
        assert (
            opened.run("n, view['large'] is large, new[0] is view, int(large[1_000_000])").result
            == "(2, True, True, 7)"
        )
        assert opened.run("rows[50_000]['n'], len(rows), c.x, type(c) is C").result == "(-1, 100000, 1, True)"
        assert saved.save_what_changed(opened) < 20_000


DEFINED = """
import enum, typing
from dataclasses import dataclass
T = typing.TypeVar('T')
@dataclass
class C:
    x: int
class Color(enum.Enum):
    RED = 1
c, red = C(1), Color.RED
def f(x): return g(x)
g = lambda x: x + 1
names = {'a', 'b'}
"""
LONG = "rows = [{'n': at, 'name': f'n{at}'} for at in range(100_000)]"


def test_what_is_shared_stays_shared_when_some_of_it_has_changed(saved: Saved) -> None:
    runner = saved.save_for_later(
        "a = [1] * 5000\nb = {'a': a}\nc = [2] * 5000\nd = [c]\nbytes_ = b'x' * 3_000_000\ne = [bytes_]"
    )
    runner.run("b['new'] = 1\nd.append(a)")
    assert saved.save_what_changed(runner) < 100_000
    opened = saved.open()
    assert saved.report() == {}
    assert (
        opened.run("b['a'] is a, d[0] is c, d[1] is a, b['new'], e[0] is bytes_").result
        == "(True, True, True, 1, True)"
    )


def test_long_values_share_with_all_others(saved: Saved) -> None:
    runner = saved.save_for_later(
        "class C: pass\nalone = [C]\nfirst = {'n': 0}\nother = [first]\n" + LONG,
        "rows[3] = first\nsome = rows[::2]\nby = {row['name']: row for row in rows[1:] if 'name' in row}",
    )
    opened = saved.open()
    assert saved.report() == {}
    checks = "rows[3] is first, other[0] is first, some[1] is rows[2], by['n5'] is rows[5], alone[0] is C, len(rows)"
    assert opened.run(checks).result == "(True, True, True, True, True, 100000)"
    runner.run("rows[3] = {}")
    assert saved.save_what_changed(runner) > 1_000_000
    opened = saved.open()
    assert opened.run("rows[3], other[0] is first, some[1] is rows[2], len(some)").result == "({}, True, True, 50000)"


def test_many_values_share_with_each_other(saved: Saved) -> None:
    runner = saved.save_for_later(
        "shared = [1]\nfor at in range(700):\n    globals()[f'v{at}'] = [shared, *(f'{at}-{n}' for n in range(900))]",
        "for at in range(400):\n    globals()[f'w{at}'] = [at]\nlast = [v1, v699, w7]\nx = [*v5]\ny = [*v5]",
    )
    opened = saved.open()
    assert saved.report() == {}
    assert (
        opened.run("all(globals()[f'v{at}'][0] is shared for at in range(700)), last[1] is v699").result
        == "(True, True)"
    )
    assert opened.run("last[2] is w7, w399, y[0] is shared, len(v699)").result == "(True, [399], True, 901)"
    runner.run("w3.append(1)")
    assert saved.save_what_changed(runner) < 100_000


def test_a_value_that_cannot_be_saved_twice_costs_only_itself(saved: Saved) -> None:
    saved.save(
        "class Once:\n    count = 0\n    def __reduce__(self):\n        Once.count += 1\n"
        "        if Once.count > 1: raise ValueError('again')\n        return list, ()\n"
        "shared = [1]\nonce = [shared, Once()]\nlast = [shared]"
    )
    assert saved.report() == {"once": ("list", "ValueError: again")}
    assert saved.open().run("last[0] is shared, 'once' in globals()").result == "(True, False)"


@pytest.mark.parametrize("kind", ["bytes", "large", "folder", "pipe", "link", "device"])
def test_a_list_of_known_parts_can_be_anything(saved: Saved, kind: str) -> None:
    known = saved.folder / "known"
    match kind:
        case "bytes":
            known.write_bytes(bytes(range(256)) * 100 + b"\n../index\n\n")
        case "large":
            with known.open("wb") as file:
                file.truncate(1 << 40)
        case "folder":
            known.mkdir()
        case "pipe":
            os.mkfifo(known)
        case "link":
            known.symlink_to(known)
        case _:
            known.symlink_to("/dev/zero")
    saved.save("a = [1]\nb = [a]")
    assert saved.report() == {}
    assert saved.open().run("b[0] is a").result == "True"


def test_a_part_that_is_missing_or_damaged_costs_what_is_in_it(tmp_path: Path) -> None:
    with ExitStack() as stack:
        saved = Saved(tmp_path, stack, "numpy")
        runner = saved.save_for_later(
            ARRAYS, "other = np.ones(100_000)\nboth = [other, view]\nwords = [str(n) for n in range(5000)]"
        )
        parts = saved.parts()
        array, words = (
            next(name for name in parts if low < parts[name] < high) for low, high in ((10**7, 10**8), (10**4, 10**5))
        )
        path = saved.folder / "parts" / array
        path.write_bytes(path.read_bytes()[:-1])  # the store finds what is only changed
        (saved.folder / "parts" / words).write_bytes(b"x")
        opened = saved.open()
        assert saved.report() == {
            "large": ("numpy.ndarray", "a part of it is damaged"),
            "view": ("dict", "it shares something with large, which is lost"),
            "both": ("list", "it shares something with large, which is lost"),
            "words": ("list", "a part of it is damaged"),
        }
        assert opened.run("n, float(other.sum())").result == "(1, 100000.0)"
        path.unlink()
        saved.open()
        assert saved.report()["large"] == ("numpy.ndarray", "a part of it is missing")
        for name in parts:
            (saved.folder / "parts" / name).unlink(missing_ok=True)
        saved.open()
        assert {why for _, why in saved.report().values()} == {"a part of it is missing"}
        saved.save_again(runner)
        saved.open()
        assert saved.report() == {}


def test_the_source_of_many_cells_is_in_parts(saved: Saved) -> None:
    runner = saved.save_for_later(*(f"def f{at}():\n    return 1 / 0\n" + "# x" * 10_000 for at in range(5)))
    assert len(saved.parts()) >= 2
    runner.run("n = 1")
    assert saved.save_what_changed(runner) < 10_000
    error = saved.open().run("f0()").err
    assert '  File "<cell 1>", line 2, in f0\n    return 1 / 0\n' in error


def test_losses_beyond_five_hundred_are_counted(saved: Saved) -> None:
    saved.save(
        "for at in range(510): globals()[f'g{at}'] = (i for i in ())\ng = 'a\\tb'\nglobals()['odd\\n\\tname'] = (i for i in ())"
    )
    lost = saved.report()
    assert len(lost) == 500
    assert saved.notes() == ["11 more variables are lost"]


def test_a_library_that_is_missing_costs_what_needs_it(tmp_path: Path) -> None:
    with ExitStack() as stack:
        saved = Saved(tmp_path, stack, *LIBRARIES)
        saved.save("import numpy as np\na = np.ones(100_000)\nb = [1]\nc = [b, a]\nd = [b]")
        saved._libraries = ()
        opened = saved.open()
        missing = "No module named 'numpy'"
        lost = saved.report()
        assert {*lost} == {"np", "a", "c"}
        assert lost["np"] == ("module", missing)
        assert opened.run("d[0] is b").result == "True"


@pytest.fixture
async def here(anyio_backend: str) -> AsyncIterator[Sandboxes]:
    await need("embedded")
    limits = {"memory": 160 * MIB, "disk": 64 * MIB}
    with host_folder() as folder, anyio.fail_after(60):
        async with Sandboxes(small_profile("embedded", folder, limits=limits)) as opened:
            yield opened


@pytest.mark.anyio
async def test_a_session_moves_from_one_sandbox_to_another(here: Sandboxes) -> None:
    async with here.session() as one, here.session() as other:
        await one.run("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\np = P(1)\nq = [p]")
        await one.make_folder("saved")
        run = await one.run(SAVE.format("/sandbox/saved"))
        assert (run.status, run.result, run.stderr.text) == ("ok", None, "")
        with tarfile.open(fileobj=io.BytesIO(await one.pack("saved"))) as archive:
            for member in archive.getmembers():
                file = archive.extractfile(member)
                if file is not None:
                    await other.write(member.name, file.read())
        assert (await other.read("saved/report")).decode() == "kept\t4\n"
        run = await other.run(OPEN.format("/sandbox/saved"))
        assert (run.status, run.result, run.stderr.text) == ("ok", None, "")
        assert (await other.run("q[0] is p, p, P(2)")).result == "(True, P(x=1), P(x=2))"


@pytest.mark.anyio
async def test_what_does_not_fit_is_lost_and_the_session_lives(here: Sandboxes) -> None:
    async with here.session() as session:
        # Of 160 MB; a copy, which is in memory, would end the session.
        await session.run(
            "kept = [1]\nlarge = b'x' * (60 << 20)\nmore = bytearray(50 << 20)\nmiddle = bytearray(2 << 20)\nlater = [kept]"
        )
        await session.make_folder("saved")
        run = await session.run(SAVE.format("/sandbox/saved"))
        assert (run.status, run.stderr.text) == ("ok", "")
        report = (await session.read("saved/report")).decode()
        assert report == (
            "lost\tlarge\tbytes\tno room in the sandbox to save 60 MB\n"
            "lost\tmore\tbytearray\tno room in the sandbox to save 50 MB\nkept\t3\n"
        )
        assert (await session.run("len(large) >> 20, len(more) >> 20, kept")).result == "(60, 50, [1])"


@pytest.mark.anyio
async def test_a_full_disk_costs_what_does_not_fit(here: Sandboxes) -> None:
    async with here.session(limits={"disk": 8 * MIB}) as session:
        await session.run("kept = [1]\nlarge = bytearray(20 << 20)\nmiddle = bytearray(1 << 20)")
        await session.make_folder("saved")
        run = await session.run(SAVE.format("/sandbox/saved"))
        assert (run.status, run.stderr.text) == ("ok", "")
        report = (await session.read("saved/report")).decode()
        assert report == "lost\tlarge\tbytearray\tno room in the sandbox to save 20 MB\nkept\t2\n"
