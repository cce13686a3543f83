"""Values that are shown as images, pages or tables, with the real libraries."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .drawing import Drawing
from .driver import Run, Runner
from .python_environment import python

LIBRARIES = ("pandas", "matplotlib", "pillow", "ipython")


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Runner]:
    """Python without any library."""
    with python(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with python(tmp_path_factory.mktemp("drawing"), *LIBRARIES) as started:
        yield started


@pytest.fixture
def drawing(started: Runner) -> Drawing:
    return Drawing(started)


def figures(run: Run) -> list[str]:
    assert (run.status, run.err) == ("ok", "")
    return list(run.report["figures"])


def a_value(method: str, body: str) -> str:
    return (
        f"class Thing:\n    def {method}(self, **options):\n        {body}\n    def __repr__(self): return 'a thing'\n"
    )


@pytest.mark.parametrize(
    ("method", "gives", "name", "written"),
    [
        ("_repr_png_", "b'png'", "figure-1.png", b"png"),
        ("_repr_png_", "(b'png', {'width': 1})", "figure-1.png", b"png"),
        ("_repr_png_", "'cG5n'", "figure-1.png", b"png"),
        ("_repr_jpeg_", "b'jpeg'", "figure-1.jpg", b"jpeg"),
        ("_repr_svg_", "'<svg/>'", "figure-1.svg", b"<svg/>"),
        ("_repr_html_", "'<html>é</html>'", "figure-1.html", "<html>é</html>".encode()),
        ("_repr_html_", "'<b>é</b>'", "figure-1.html", '<!DOCTYPE html>\n<meta charset="utf-8">\n<b>é</b>'.encode()),
        ("_repr_mimebundle_", "{'text/plain': 'x', 'image/svg+xml': '<svg/>'}", "figure-1.svg", b"<svg/>"),
        ("_repr_mimebundle_", "({'image/png': 'cG5n'}, {})", "figure-1.png", b"png"),
    ],
)
def test_a_last_value_with_a_picture_or_a_page_is_written_and_shown_as_text(
    plain: Runner, tmp_path: Path, method: str, gives: str, name: str, written: bytes
) -> None:
    run = plain.run(a_value(method, f"return {gives}") + "Thing()")
    assert (figures(run), run.result, run.out) == ([name], "a thing", "")
    assert (tmp_path / "figures" / name).read_bytes() == written


def test_the_best_of_several_forms_is_the_only_one_written(plain: Runner) -> None:
    code = a_value("_repr_html_", "return '<b/>'") + "Thing._repr_svg_ = lambda self: '<svg/>'\nThing()"
    assert figures(plain.run(code)) == ["figure-1.svg"]


def test_a_long_text_is_replaced_by_a_reference_to_the_picture(plain: Runner) -> None:
    code = a_value("_repr_png_", "return b'png'") + "Thing.__repr__ = lambda self: 'data' * 1000\nThing()"
    assert plain.run(code).result == "<__main__.Thing, see figure-1.png>"
    assert plain.run("display(Thing())").out == ""


@pytest.mark.parametrize("gives", ["None", "''", "42", "()", "[b'png']"])
def test_a_form_without_content_is_ignored(plain: Runner, gives: str) -> None:
    run = plain.run(a_value("_repr_png_", f"return {gives}") + "Thing()")
    assert (figures(run), run.result) == ([], "a thing")


@pytest.mark.parametrize("method", ["_repr_mimebundle_", "_repr_png_", "_repr_html_"])
def test_an_error_in_a_form_is_printed_and_the_text_is_shown(plain: Runner, method: str) -> None:
    run = plain.run(a_value(method, "return 1 / 0") + "Thing()")
    assert (run.status, run.result, run.report["figures"]) == ("ok", "a thing", [])
    assert run.err == f"Thing.{method}: ZeroDivisionError: division by zero\n"


def test_for_content_in_a_wrong_format_the_text_is_shown(plain: Runner) -> None:
    run = plain.run(a_value("_repr_png_", "return 'a'") + "Thing()")
    assert (run.status, run.result, run.report["figures"]) == ("ok", "a thing", [])
    assert "Thing could not be drawn" in run.err


def test_an_interrupt_in_a_form_ends_the_run(plain: Runner) -> None:
    plain.send(a_value("_repr_png_", "print('started')\n        while True: pass") + "Thing()")
    plain.wait_for("started")
    plain.interrupt()
    assert plain.finish().interrupted
    assert plain.run("1").result == "1"


def test_values_with_an_attribute_for_every_name_are_shown_as_text(plain: Runner) -> None:
    run = plain.run("from unittest.mock import Mock\nMock(name='it')")
    assert figures(run) == []
    assert run.result is not None and run.result.startswith("<Mock name='it'")
    assert figures(plain.run("class Any:\n    def __getattr__(self, name): return lambda: b'png'\nAny()")) == []


def test_a_class_is_not_treated_like_its_instances(plain: Runner) -> None:
    assert figures(plain.run(a_value("_repr_png_", "return b'png'") + "Thing")) == []


def test_display_shows_pictures_and_prints_the_rest(plain: Runner) -> None:
    run = plain.run(a_value("_repr_png_", "return b'png'") + "display(Thing(), [1, 2], 'text', display_id=True)")
    assert (run.out, run.result, run.report["figures"]) == ("[1, 2]\n'text'\n", None, ["figure-1.png"])
    assert plain.run("def display(x): return 'mine'\ndisplay(1)").result == "'mine'"


def test_runs_that_show_nothing_do_not_load_the_modules_for_it(plain: Runner) -> None:
    run = plain.run("import sys\n[1, 2]\n'sandbox_rich' in sys.modules or 'sandbox_shown' in sys.modules")
    assert run.result == "False"


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "I;16", "CMYK", "YCbCr", "HSV", "F", "RGBa"])
@pytest.mark.parametrize("shown", ["image.show()", "image"])
def test_a_pillow_image_of_any_mode_becomes_png(drawing: Drawing, mode: str, shown: str) -> None:
    run = drawing.run(f"from PIL import Image\nimage = Image.new({mode!r}, (30, 20))\n{shown}")
    assert figures(run) == ["figure-1.png"]
    assert drawing.file(1).read_bytes()[:24].endswith(b"\0\0\0\x1e\0\0\0\x14")
    assert bool(run.result and "size=30x20" in run.result) is (shown == "image")


def test_a_data_frame_is_text_and_not_a_figure(drawing: Drawing) -> None:
    run = drawing.run("import pandas as pd\nframe = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})\nframe")
    assert (figures(run), run.result) == ([], "   a  b\n0  1  x\n1  2  y")
    assert figures(drawing.run("frame['a']")) == []
    run = drawing.run("pd.DataFrame({'n': range(1000)})")
    assert run.result is not None and run.result.endswith("[1000 rows x 1 columns]")
    run = drawing.run("display(frame)")
    assert (figures(run), run.out) == ([], "   a  b\n0  1  x\n1  2  y\n")


def test_a_matplotlib_figure_as_last_value_is_written_once(drawing: Drawing) -> None:
    endings = (
        "figure",  # open: written at the end of the run
        "plt.show()\nfigure",  # written already
        "plt.close()\nfigure",
        "plt.close()\ndisplay(figure)\nfigure",
        "display(figure)",
        "from matplotlib.figure import Figure\nplt.close()\nbare = Figure()\nbare.subplots().plot([1])\nbare",
    )
    for number, last in enumerate(endings, 1):
        run = drawing.run("import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\naxes.plot([1, 2])\n" + last)
        assert (figures(run), run.out) == ([f"figure-{number}.png"], ""), last


def test_a_matplotlib_figure_is_written_again_in_a_later_run(drawing: Drawing) -> None:
    drawing.run("import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\naxes.plot([1, 2])\nplt.show()")
    assert figures(drawing.run("axes.set_title('new')\nfigure")) == ["figure-2.png"]


@pytest.mark.parametrize("where", ["IPython.display", "IPython.core.display_functions"])
def test_values_that_ipython_displays_are_written(drawing: Drawing, where: str) -> None:
    code = (
        f"from {where} import display\nfrom IPython.display import HTML, SVG\n"
        "display(HTML('<b>bold</b>'), 42)\nSVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"
    )
    run = drawing.run(code)
    assert (figures(run), run.out) == (["figure-1.html", "figure-2.svg"], "42\n")
    assert "<b>bold</b>" in drawing.file(1, "html").read_text()


def test_line_numbers_and_future_imports_are_those_of_the_code(plain: Runner) -> None:
    run = plain.run("from __future__ import annotations\n\nraise ValueError('here')")
    assert 'File "<cell 1>", line 3' in run.err
