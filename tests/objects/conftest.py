"""Servers that the tests of this folder share, and stores on them."""

import os
import re
import secrets
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ..unit.state.test_stores import Place, in_folder
from .servers import BUCKET, ObjectServer, moto, rclone


@pytest.fixture(scope="package")
def on_moto() -> Iterator[ObjectServer]:
    with moto() as server:
        yield server


@pytest.fixture(scope="package")
def on_rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server
