"""The wheel and the sdist of this checkout, built once."""

from pathlib import Path

import pytest

from .building import publish


@pytest.fixture(scope="package")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    assert sorted(publish("packages", folder)) == sorted(folder.iterdir())
    return folder


@pytest.fixture(scope="package")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="package")
def sdist(built: Path) -> Path:
    (found,) = built.glob("*.tar.gz")
    return found
