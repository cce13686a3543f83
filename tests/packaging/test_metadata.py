"""What a package index shows of the wheel and the sdist."""

import email
import json
import re
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from twine.commands.check import check

from .building import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCE = "https://github.com/llm-sandbox-mcp/llm-sandbox-mcp"


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


@pytest.fixture(scope="module")
def page(metadata: Message) -> str:
    """The text of the package's page."""
    payload = metadata.get_payload()
    assert isinstance(payload, str)
    return payload


def test_twine_accepts_both(wheel: Path, sdist: Path) -> None:
    assert check([str(wheel), str(sdist)], strict=True) is False  # no failure


def test_the_page_names_its_authors_licence_and_addresses(metadata: Message) -> None:
    assert metadata["Author"] == "The llm-sandbox-mcp authors"
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    labels = [line.partition(", ")[0] for line in metadata.get_all("Project-URL", ())]
    assert labels == ["Homepage", "Documentation", "Source", "Issues", "Changelog"]
    assert all(line.partition(", ")[2].startswith(SOURCE) for line in metadata.get_all("Project-URL", ()))


def test_each_python_from_the_oldest_on_is_named(metadata: Message) -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [line.removeprefix(prefix) for line in metadata.get_all("Classifier", ()) if line.startswith(prefix)]
    assert named == ["11", "12", "13", "14"]
    assert metadata["Requires-Python"] == f">=3.{named[0]}"
    assert "Typing :: Typed" in metadata.get_all("Classifier", ())


def test_links_of_the_page_lead_to_files_of_the_source(page: str) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", page)
    files = [target.removeprefix(f"{SOURCE}/blob/main/") for target in targets if target.startswith(f"{SOURCE}/blob/")]
    assert [name for name in files if not (ROOT / name.partition("#")[0]).exists()] == []
    assert len(files) > 10
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_the_picture_of_the_page_is_one_of_the_source(page: str) -> None:
    (target,) = re.findall(r"!\[[^\]]+\]\(([^)\s]+)\)", page)
    start = "https://raw.githubusercontent.com/llm-sandbox-mcp/llm-sandbox-mcp/main/"
    assert target.startswith(start)
    assert (ROOT / target.removeprefix(start)).is_file()


def test_no_command_of_the_page_needs_a_checkout_but_those_of_make(page: str) -> None:
    assert "pip install ." not in page and "pip install '." not in page


def test_the_registry_of_servers_finds_its_name_on_the_page(page: str) -> None:
    template = json.loads((ROOT / "configs/publish/server.json").read_text(encoding="utf-8"))
    assert f"mcp-name: {template['name']} -->" in page


def test_the_page_is_the_readme(page: str) -> None:
    assert page.startswith("# llm-sandbox-mcp\n")
    assert len(page) > len((ROOT / "README.md").read_text(encoding="utf-8"))
