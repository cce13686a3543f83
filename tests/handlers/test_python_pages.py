"""Figures of plotly and Altair where no still picture of them can be made, with the real libraries."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import uv

from .driver import Run, Runner
from .python_environment import environment, keep_bytecode, python

LIBRARIES = ("pandas", "plotly", "altair", "ipython")
KALEIDO = ("plotly", "kaleido>=1")
PLOTLY = "import plotly.graph_objects as go, plotly.io as pio\nfigure = go.Figure(go.Scatter(y=[*range(500)]))\n"
ALTAIR = (
    "import altair as alt\nrows = [{'a': n, 'b': n % 7} for n in range(6000)]\n"
    "chart = alt.Chart({'values': rows}).mark_point().encode(x='a:Q', y='b:Q')\n"
)
BROWSERS = (
    "kaleido==0.2.1 with plotly<7 brings its own browser; kaleido 1 and later need Chrome, which the operator installs"
)
NO_KALEIDO = f"no still picture of plotly figures: kaleido is not installed ({BROWSERS})\n"
NO_CHROME = f"no still picture of plotly figures: kaleido found no Chrome ({BROWSERS})\n"
NO_CONVERTER = "no still picture of Altair charts, and their pages need a network: vl-convert-python is not installed\n"


@pytest.fixture(scope="module")
def bytecode() -> None:
    keep_bytecode("plotly.express, altair", *LIBRARIES)


@pytest.fixture(scope="module")
def bytecode_of_kaleido() -> None:
    keep_bytecode("plotly.graph_objects, kaleido", *KALEIDO)


@pytest.fixture
def runner(bytecode: None, tmp_path: Path) -> Iterator[Runner]:
    with python(tmp_path, *LIBRARIES) as started:
        yield started


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Runner]:
    """Python without any library."""
    with python(tmp_path) as started:
        yield started


@pytest.fixture
def with_kaleido(bytecode_of_kaleido: None, tmp_path: Path) -> Iterator[Runner]:
    with python(tmp_path, *KALEIDO) as started:
        yield started


def written(run: Run) -> tuple[str, list[str], str, list[str], str]:
    return run.status, list(run.report["figures"]), run.out, run.files, run.err


def test_a_plotly_figure_becomes_a_page_that_needs_no_network(runner: Runner, tmp_path: Path) -> None:
    ways = ("figure.show()", "figure", "figure.show(renderer='browser')", "pio.show(figure)")
    for number, shown in enumerate(ways, 1):
        run = runner.run(PLOTLY + shown)
        assert written(run) == ("ok", [f"figure-{number}.html"], "", [], NO_KALEIDO if number == 1 else ""), shown
        page = (tmp_path / f"figures/figure-{number}.html").read_text()
        assert page.count("plotly.js v") >= 1
        assert "<script src=" not in page
        assert (run.result or "").startswith("Figure({" if shown == "figure" else "")
        assert (run.result is not None) is (shown == "figure")


def test_a_renderer_chosen_by_the_code_changes_nothing(runner: Runner) -> None:
    code = "import plotly.express as px, plotly.io as pio\npio.renderers.default = 'browser'\npx.line(y=[1, 2]).show()"
    assert written(runner.run(code)) == ("ok", ["figure-1.html"], "", [], NO_KALEIDO)


def test_an_altair_chart_with_many_rows_becomes_a_page_however_it_is_shown(runner: Runner, tmp_path: Path) -> None:
    ways = (
        *("chart", "chart.show()", "chart.display()", "display(chart)"),
        "from IPython.display import display as of_ipython\nof_ipython(chart)",
    )
    for number, shown in enumerate(ways, 1):
        run = runner.run(ALTAIR + shown)
        assert written(run) == ("ok", [f"figure-{number}.html"], "", [], NO_CONVERTER if number == 1 else ""), shown
        assert (tmp_path / f"figures/figure-{number}.html").read_text().count('"a": ') == 6000
        assert run.result == ("alt.Chart(...)" if shown == "chart" else None)
    layered = runner.run("alt.layer(chart, chart)")
    assert written(layered) == ("ok", [f"figure-{len(ways) + 1}.html"], "", [], "")


def test_an_interpreter_says_once_what_is_missing(runner: Runner) -> None:
    run = runner.run(f"{PLOTLY}figure.show()\nfigure.show()\n{ALTAIR}chart.show()\nchart")
    assert written(run)[1:] == ([f"figure-{n}.html" for n in range(1, 5)], "", [], NO_KALEIDO + NO_CONVERTER)
    assert written(runner.run("figure.show()\nchart"))[1:] == (["figure-5.html", "figure-6.html"], "", [], "")


def test_libraries_that_are_installed_later_are_used(runner: Runner, tmp_path: Path) -> None:
    assert runner.run(f"{PLOTLY}figure.show()").err == NO_KALEIDO
    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--target", str(tmp_path / "libraries"), "--python"]
    subprocess.run([*command, environment(*LIBRARIES) + "/bin/python", "kaleido>=1"], check=True, timeout=60)
    code = "import os\nos.environ['BROWSER_PATH'] = '/nowhere'\nfigure.show()\nfigure.show()"
    assert written(runner.run(code)) == ("ok", ["figure-2.html", "figure-3.html"], "", [], NO_CHROME)


def a_browser(folder: Path, script: str) -> str:
    """Code that makes kaleido start a script instead of Chrome."""
    browser = folder / "browser"
    browser.write_text(f"#!/bin/sh\n{script}\n")
    browser.chmod(0o755)
    return f"import os\nos.environ['BROWSER_PATH'] = {str(browser)!r}\n"


SILENT = 'echo started > "${0}-started"; exec cat <&3 >/dev/null'
"""It ends when kaleido does."""


def test_an_interrupt_while_a_browser_does_not_answer_ends_the_run(with_kaleido: Runner, tmp_path: Path) -> None:
    pipe = tmp_path / "browser-started"
    code = (
        f"import os, threading\nos.mkfifo({str(pipe)!r})\n"
        f"threading.Thread(target=lambda: print(open({str(pipe)!r}).read()), daemon=True).start()\n"
    )
    with_kaleido.send(a_browser(tmp_path, SILENT) + code + PLOTLY + "figure.show()")
    with_kaleido.wait_for("started")
    with_kaleido.interrupt()
    run = with_kaleido.finish()
    assert (run.interrupted, run.exit_code, run.report["figures"]) == (True, 130, ["figure-1.html"])
    assert with_kaleido.run("1").result == "1"


def test_a_browser_that_does_not_answer_is_tried_only_once(with_kaleido: Runner, tmp_path: Path) -> None:
    code = a_browser(tmp_path, SILENT) + PLOTLY + "import sandbox_pages\nsandbox_pages.LIMIT = 0.01\n"
    run = with_kaleido.run(code + "figure.show()\nsandbox_pages.LIMIT = 1e9\nfigure.show()")
    reason = "it took more than 0.01 seconds, and is not tried again before the session is reset"
    line = f"no still picture of plotly figures: {reason} ({BROWSERS})\n"
    assert written(run) == ("ok", ["figure-1.html", "figure-2.html"], "", [], line)


def test_each_error_of_a_browser_is_one_line(with_kaleido: Runner, tmp_path: Path) -> None:
    run = with_kaleido.run(a_browser(tmp_path, "exit 1") + PLOTLY + "figure.show()\nfigure.show()")
    assert written(run)[:4] == ("ok", ["figure-1.html", "figure-2.html"], "", [])
    lines = run.err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("no still picture of plotly figures: BrowserFailedError: ") for line in lines)


def test_a_process_that_cannot_start_is_one_line(with_kaleido: Runner) -> None:
    run = with_kaleido.run(PLOTLY + "import sys\nsys.executable = '/nowhere'\nfigure.show()")
    reason = "[Errno 2] No such file or directory: '/nowhere'"
    line = f"no still picture of plotly figures: {reason} ({BROWSERS})\n"
    assert written(run) == ("ok", ["figure-1.html"], "", [], line)


def test_a_picture_has_the_number_of_its_page_unless_it_is_taken(plain: Runner, tmp_path: Path) -> None:
    (tmp_path / "figures/figure-2.png").write_bytes(b"of a process that the code started")
    code = (
        "from sandbox_shown import write, write_beside\n"
        "[write_beside(write('page', 'html'), b'picture', 'png') for _ in range(3)]"
    )
    run = plain.run(code)
    assert run.result == "['figure-1.png', 'figure-3.png', 'figure-4.png']"
    names = ["figure-1.html", "figure-1.png", "figure-2.html", "figure-3.png", "figure-4.html", "figure-4.png"]
    assert run.report["figures"] == names


def test_modules_of_the_user_can_have_the_names_of_these_libraries(plain: Runner) -> None:
    for name in ("altair", "plotly"):
        (plain.workdir / f"{name}.py").write_text("value = 42")
        assert plain.run(f"import {name}\n{name}.value").result == "42"


def test_code_that_shows_no_such_figure_does_not_load_what_draws_it(runner: Runner) -> None:
    code = "import sys\nsorted({'sandbox_pages', 'sandbox_still', 'subprocess', 'plotly', 'altair'} & {*sys.modules})"
    assert runner.run(code).result == "[]"
