"""Still pictures of figures of plotly and Altair, by the real programs, which are large."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from .driver import Runner
from .python_environment import python
from .test_python_pages import ALTAIR, PLOTLY, written

pytestmark = pytest.mark.only_in_all

PAIR = ["figure-1.html", "figure-1.png"]


@pytest.fixture
def altair(tmp_path: Path) -> Iterator[Runner]:
    with python(tmp_path, "altair", "vl-convert-python") as started:
        yield started


def size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


@pytest.mark.parametrize("plotly", ["plotly<6", "plotly>=6,<7"])
@pytest.mark.parametrize("shown", ["figure", "figure.show()", "pio.show(figure.to_dict())"])
def test_a_plotly_figure_has_a_picture_beside_its_page(tmp_path: Path, plotly: str, shown: str) -> None:
    with python(tmp_path, plotly, "kaleido==0.2.1") as runner:
        run = runner.run(PLOTLY + shown)
        assert written(run) == ("ok", PAIR, "", [], "")
        assert size(tmp_path / "figures/figure-1.png") == (700, 500)


@pytest.mark.parametrize("shown", ["chart", "chart.show()", "display(chart)"])
def test_an_altair_chart_has_a_picture_beside_its_page_which_needs_no_network(
    altair: Runner, tmp_path: Path, shown: str
) -> None:
    assert written(altair.run(ALTAIR + shown)) == ("ok", PAIR, "", [], "")
    width, height = size(tmp_path / "figures/figure-1.png")
    assert 300 < width < 500
    assert 300 < height < 500
    page = (tmp_path / "figures/figure-1.html").read_text()
    assert "<script src=" not in page
    assert "window.vegaEmbed=" in page


def test_a_long_text_of_a_figure_refers_to_both_files(altair: Runner) -> None:
    run = altair.run(ALTAIR + "type(chart).__repr__ = lambda self: 'data' * 1000\nchart")
    assert str(run.result).endswith(".Chart, see figure-1.html and figure-1.png>")


def test_a_chart_that_cannot_be_drawn_is_one_line_and_still_has_its_page(altair: Runner) -> None:
    run = altair.run(ALTAIR + "chart.transform_calculate(c='(')")
    assert written(run)[:4] == ("ok", ["figure-1.html"], "", [])
    assert run.err.startswith("no still picture of Altair charts: ValueError: ")
    assert run.err.count("\n") == 1


def test_a_module_in_the_working_directory_does_not_draw(altair: Runner) -> None:
    for name in ("json", "vl_convert"):
        (altair.workdir / f"{name}.py").write_text("raise SystemExit")
    assert written(altair.run(ALTAIR + "chart"))[1] == PAIR


def test_an_old_altair_has_pictures_too(tmp_path: Path) -> None:
    with python(tmp_path, "altair<5", "vl-convert-python") as runner:
        assert written(runner.run(ALTAIR + "chart")) == ("ok", PAIR, "", [], "")
        assert "<script src=" not in (tmp_path / "figures/figure-1.html").read_text()
