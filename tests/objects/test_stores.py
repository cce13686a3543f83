"""What every kind of store promises, on real servers, and with encryption."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..unit.state.test_stores import *
from ..unit.state.test_stores import Place, in_folder
from .conftest import encrypted, on_server


@pytest.fixture(params=["moto", "rclone", "encrypted on moto", "encrypted on folder"])  # type: ignore[no-redef]
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    kind, _, where = request.param.rpartition(" on ")
    if where == "folder":
        yield encrypted(in_folder(tmp_path / "saved"))
        return
    with on_server(request.getfixturevalue(f"on_{where}"), monkeypatch) as on:
        yield encrypted(on) if kind else on
