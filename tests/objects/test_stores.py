"""What every kind of store promises, on real servers, and with encryption."""

from pathlib import Path

import pytest

from ..unit.state.test_stores import *
from ..unit.state.test_stores import Place, in_folder
from .conftest import encrypted, on_server
from .servers import ObjectServer


@pytest.fixture(params=["moto", "rclone", "encrypted on moto", "encrypted in a folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    kind, _, where = request.param.rpartition(" ")
    if where == "folder":
        return encrypted(in_folder(tmp_path / "saved"))
    server: ObjectServer = request.getfixturevalue(f"on_{where}")
    on = on_server(server, monkeypatch)
    return encrypted(on) if kind else on
