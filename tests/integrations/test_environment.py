"""Tests on a machine where the frameworks cannot be installed are skipped, or fail if they are required."""

from pathlib import Path

import pytest

from .. import environments
from ..engines import REQUIRE


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that has not downloaded anything and cannot reach a package index; returns its cache."""
    monkeypatch.setattr(environments, "CACHE", tmp_path / "tests")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.delenv(REQUIRE, raising=False)
    return tmp_path / "tests"


def test_without_the_frameworks_a_test_skips_with_the_reason_and_leaves_nothing(cut_off: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match=r"^integrations does not work here: .*network was disabled"):
        environments.python_with("integrations")
    assert [path.name for path in cut_off.iterdir()] == ["integrations.lock"]


@pytest.mark.usefixtures("cut_off")
def test_without_the_frameworks_a_test_fails_where_they_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE, "embedded, integrations")
    with pytest.raises(
        (pytest.fail.Exception, pytest.skip.Exception), match="here: "
    ) as raised:  # so that this test is not skipped itself
        environments.python_with("integrations")
    assert raised.type is pytest.fail.Exception
