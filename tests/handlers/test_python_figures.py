"""The figures that a run of Python code produces, with a real matplotlib.

It takes long because an interpreter needs half a second to import matplotlib, and some cases need a new one.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from .drawing import Drawing
from .driver import Run, Runner
from .python_environment import keep_bytecode, python

LIBRARIES = ("matplotlib", "pandas", "seaborn")


@pytest.fixture(scope="module", autouse=True)
def bytecode() -> None:
    keep_bytecode("matplotlib.pyplot, seaborn", *LIBRARIES)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """An interpreter that has imported nothing yet."""
    with python(tmp_path, *LIBRARIES) as started:
        yield started


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with python(tmp_path_factory.mktemp("drawing"), *LIBRARIES) as started:
        assert started.run("import matplotlib.pyplot as plt").status == "ok"
        yield started


@pytest.fixture
def drawing(started: Runner) -> Drawing:
    return Drawing(started)


def figures(run: Run) -> list[str]:
    assert run.err == ""
    return list(run.report["figures"])


def size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_matplotlib_is_not_imported_before_the_code_does(runner: Runner) -> None:
    assert runner.run("import sys\n'matplotlib' in sys.modules").result == "False"


def test_warnings_of_matplotlib_name_the_line_of_the_code(runner: Runner) -> None:
    code = "import matplotlib.pyplot as plt\nplt.title('\u58f2')\nplt.plot([1])\n"
    assert "<cell 1>:4: UserWarning: Glyph" in runner.run(f"{code}plt.savefig('a.png')").err
    assert "<cell 2>:5: UserWarning: Glyph" in runner.run(f"{code}\nplt.show()").err
    assert "sys:1: UserWarning: Glyph" in runner.run(code).err  # drawn after the end of the code


def test_show_writes_each_open_figure_once_and_closes_it(drawing: Drawing) -> None:
    code = (
        "import matplotlib.pyplot as plt\n"
        "plt.figure(figsize=(3, 2), dpi=50)\nplt.plot([1, 2])\nplt.figure()\nplt.plot([2, 1])\n"
        "plt.show()\nplt.get_fignums()"
    )
    run = drawing.run(code)
    assert figures(run) == ["figure-1.png", "figure-2.png"]
    assert run.result == "[]"
    assert size(drawing.file(1)) == (150, 100)
    assert run.files == []
    assert figures(drawing.run("1")) == []


def test_only_new_files_are_figures_of_a_run(runner: Runner) -> None:
    runner.run("import os\nfolder = os.environ['SANDBOX_FIGURES']\nopen(f'{folder}/a.svg', 'w').close()")
    run = runner.run(
        "for name in ('b10.svg', 'b9.svg', '.hidden', '\\udcff'):\n    open(f'{folder}/{name}', 'w').close()\n"
        "os.mkdir(f'{folder}/more')\nos.symlink('/etc/passwd', f'{folder}/link')\nos.remove(f'{folder}/a.svg')"
    )
    assert figures(run) == ["b9.svg", "b10.svg"]
    assert figures(runner.run("import shutil\nshutil.rmtree(folder)")) == []


def test_figure_numbers_continue_through_the_session(runner: Runner) -> None:
    runner.run("import matplotlib.pyplot as plt\nplt.plot([1]); plt.show()")
    assert figures(runner.run("for _ in range(10):\n    plt.plot([1]); plt.show()"))[-2:] == [
        "figure-10.png",
        "figure-11.png",
    ]


def test_open_figures_are_written_when_the_run_ends_also_after_an_error(drawing: Drawing) -> None:
    assert figures(drawing.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]) and None")) == ["figure-1.png"]
    assert figures(drawing.run("plt.get_fignums()")) == []
    run = drawing.run("plt.plot([1, 2])\n1 / 0")
    assert run.report["figures"] == ["figure-2.png"]
    assert run.exit_code == 1


@pytest.mark.parametrize("backend", ["", "import matplotlib\nmatplotlib.use('Agg')\n"])
def test_a_figure_that_the_code_saved_is_not_written_again(runner: Runner, backend: str) -> None:
    code = "import matplotlib.pyplot as plt\nfig, axes = plt.subplots()\naxes.plot([1, 2])\n"
    run = runner.run(backend + code + "fig.savefig('plot.png')")
    assert (figures(run), run.files) == ([], ["plot.png"])
    run = runner.run(code + "plt.savefig('plot.svg')\nplt.figure(); plt.plot([3])")
    assert (figures(run), run.files) == (["figure-1.png"], ["plot.svg"])


def test_a_figure_that_was_saved_is_written_again_only_if_it_changed_since(drawing: Drawing) -> None:
    code = "import matplotlib.pyplot as plt\nfig, axes = plt.subplots()\naxes.plot([1, 2])\nfig.savefig('plot.png', dpi=50)\n"
    for number, end in enumerate(("plt.show()", "fig.show()", "fig", ""), 1):
        run = drawing.run(code + end)
        assert (figures(run), run.files) == ([], ["plot.png"]), end
        run = drawing.run(code + "axes.lines[0].set_color('red')\n" + end)
        assert (figures(run), run.files) == ([f"figure-{number}.png"], ["plot.png"]), end


def test_a_figure_saved_elsewhere_is_written(drawing: Drawing) -> None:
    for number, target in enumerate(("io.BytesIO()", "tempfile.mktemp('.png')"), 1):
        code = f"import io, tempfile\nimport matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig({target})"
        assert figures(drawing.run(code)) == [f"figure-{number}.png"], target


def test_figures_are_captured_with_any_backend_that_the_code_chose(runner: Runner) -> None:
    code = "import matplotlib\nmatplotlib.use({!r})\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]) and None"
    assert figures(runner.run(code.format("Agg"))) == ["figure-1.png"]
    assert figures(runner.run(code.format("svg"))) == ["figure-2.png"]


def test_show_of_one_figure_writes_that_figure(drawing: Drawing) -> None:
    run = drawing.run("import matplotlib.pyplot as plt\na = plt.figure(); plt.plot([1])\na.show()\nplt.get_fignums()")
    assert (figures(run), run.result) == (["figure-1.png"], "[]")


def test_empty_figures_are_not_written(drawing: Drawing) -> None:
    assert figures(drawing.run("import matplotlib.pyplot as plt\nplt.figure() and None")) == []


def test_pandas_and_seaborn_draw(drawing: Drawing) -> None:
    code = "import pandas\nframe = pandas.DataFrame({'x': [1, 2, 3], 'y': [3, 1, 2]})\n"
    assert figures(drawing.run(code + "frame.plot(x='x') and None")) == ["figure-1.png"]
    run = drawing.run(
        "import seaborn\nseaborn.scatterplot(frame, x='x', y='y')\nimport matplotlib.pyplot as plt\nplt.show()"
    )
    assert figures(run) == ["figure-2.png"]


def test_errors_while_drawing_are_printed_and_the_run_ends(drawing: Drawing) -> None:
    bad = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.title('$\\\\frac{$')\n"
    run = drawing.run(bad + "plt.figure(); plt.plot([2])\n'value'")
    assert (run.status, run.result) == ("ok", "'value'")
    assert "ParseFatalException" in run.err or "ValueError" in run.err
    assert run.report["figures"] == ["figure-1.png"]
    run = drawing.run(bad + "plt.show()")
    assert run.status == "error"
    assert "line 4, in <module>\n    plt.show()\n" in run.err
    assert "sandbox_" not in run.err
    assert figures(drawing.run("plt.get_fignums()")) == []


def test_an_interrupt_while_drawing_ends_the_run(drawing: Drawing) -> None:
    drawing.runner.send(
        "import matplotlib.pyplot as plt\nfrom matplotlib.artist import Artist\n"
        "class Slow(Artist):\n    def draw(self, renderer):\n        print('started')\n        while True: pass\n"
        "plt.figure().add_artist(Slow()) and None"
    )
    drawing.runner.wait_for("started")
    drawing.runner.interrupt()
    run = drawing.finish()
    assert (run.interrupted, run.exit_code) == (True, 130)
    assert drawing.run("1").result == "1"


def test_children_write_figures_to_the_same_folder(drawing: Drawing) -> None:
    drawing.run("import matplotlib.pyplot as plt\nplt.plot([1]); plt.show()")
    child = "import matplotlib.pyplot as plt; plt.plot([1]); plt.show()"
    run = drawing.run(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}]).returncode")
    assert (run.result, figures(run)) == ("0", ["figure-2.png"])


def test_a_figure_closed_by_the_code_is_not_written(drawing: Drawing) -> None:
    assert figures(drawing.run("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.close()")) == []


def test_no_caches_are_written_to_the_working_directory(runner: Runner) -> None:
    runner.run("import matplotlib.pyplot as plt\nplt.plot([1]); plt.show()")
    assert list(runner.workdir.iterdir()) == []
