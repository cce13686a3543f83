"""Each figure is returned once, with the run that drew it, and the code is not changed."""

import base64

import pytest

from llm_sandbox_mcp import ArtifactSandboxSession, FileType, LanguageNotSupportPlotError

SHOWN = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.plot([3, 4])\nplt.savefig('saved.svg')\n"


@pytest.mark.usefixtures("rich")
def test_every_figure_is_returned_once_and_nothing_else_is_printed() -> None:
    with ArtifactSandboxSession() as session:
        first = session.run(SHOWN)
        assert (first.exit_code, first.stdout, first.stderr) == (0, "", "")
        assert sorted(plot.format.value for plot in first.plots) == ["png", "svg"]
        png = next(plot for plot in first.plots if plot.format is FileType.PNG)
        assert base64.b64decode(png.content_base64).startswith(b"\x89PNG")
        assert (png.width, png.height) == (640, 480)
        assert "content_base64" not in first.to_json()
        assert '"png"' in first.to_json(include_plots=True)
        assert session.run("print(1)").plots == []
        assert len(session.run(SHOWN, clear_plots=True).plots) == 2
        session.clear_plots()
        assert session.get_artifacts() == []


@pytest.mark.usefixtures("rich")
def test_line_numbers_and_future_imports_are_not_affected() -> None:
    with ArtifactSandboxSession() as session:
        done = session.run("from __future__ import annotations\n\n1 / 0")
        assert "line 3" in done.stderr


@pytest.mark.usefixtures("library")
def test_a_language_without_plots_is_an_error_unless_plotting_is_disabled() -> None:
    with ArtifactSandboxSession(lang="bash") as session, pytest.raises(LanguageNotSupportPlotError, match="bash"):
        session.run("echo 1")
    with ArtifactSandboxSession(lang="bash", enable_plotting=False) as session:
        assert session.run("echo 1").stdout == "1\n"
