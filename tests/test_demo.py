"""The demo of `make run`, and the picture of it in the README."""

import re
import struct
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .cli.command import LIMIT, ROOT, environment
from .documents import DOCUMENTS

SHOWN = ROOT / "docs/session.svg"
_FIGURE = re.compile(r"(?<=data:image/png;base64,)[^\"]+")


def parts(picture: str) -> tuple[str, tuple[int, int]]:
    """A picture without its figure, and the width and height of the figure: its bytes differ between matplotlib's versions."""
    (figure,) = _FIGURE.findall(picture)
    return _FIGURE.sub("", picture), struct.unpack(">II", b64decode(figure)[16:24])


def test_the_picture_in_the_readme_is_small_and_needs_no_other_file() -> None:
    assert "](docs/session.svg)" in DOCUMENTS["README.md"]
    assert SHOWN.stat().st_size < 100_000
    elements = [*ElementTree.parse(SHOWN).iter()]
    leads = {value[:15] for element in elements for name, value in element.attrib.items() if name.endswith("href")}
    assert leads == {"data:image/png;"}


@pytest.mark.usefixtures("embedded")
def test_the_demo_analyses_the_table_in_three_languages_and_writes_the_figure(tmp_path: Path) -> None:
    demo = [sys.executable, "-m", "tests.demo"]
    done = subprocess.run(
        demo, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done
    for found in ("333 complete rows of 3 species", "Biscoe 6300 g", "Adelie 152, Chinstrap 68, Gentoo 124"):
        assert found in done.stdout
    assert (tmp_path / "out" / "penguins.png").read_bytes().startswith(b"\x89PNG")
    made = (tmp_path / "out" / "session.svg").read_text(encoding="utf-8")
    assert parts(made) == parts(SHOWN.read_text(encoding="utf-8")), "make run; cp out/session.svg docs/"
