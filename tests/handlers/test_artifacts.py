"""Artifacts of runs, with real libraries and the whole server: media types, sizes, and the run that they belong to."""

from collections.abc import AsyncIterator

import anyio
import pytest

from llm_sandbox_mcp.base.results import Execution
from llm_sandbox_mcp.service import Service
from llm_sandbox_mcp.testing.asking import execute, open_session
from tests.engines import need, need_image

from .serving import LANGUAGES, missing, service_with_default_libraries

pytestmark = pytest.mark.anyio

PYTHON = """
import json, pathlib
import matplotlib.pyplot as plt
import pandas as pd

frame = pd.DataFrame({"x": [1, 2], "y": [3, 4]})
figure, axes = plt.subplots(figsize=(3, 2), dpi=100)
axes.plot(frame.x, frame.y)
for ending in ("png", "jpg", "svg", "pdf"):
    figure.savefig(f"plot.{ending}")
frame.to_csv("table.csv")
frame.to_html("table.html")
frame.to_json("table.json")
pathlib.Path("notes.txt").write_text("text")
plt.figure()
plt.plot([1, 2])
plt.show()
"""
KINDS = {
    "plot.png": ("image/png", 300, 200),
    "plot.jpg": ("image/jpeg", 300, 200),
    # matplotlib's SVG is 216 points wide; an inch has 72 points and 96 pixels.
    "plot.svg": ("image/svg+xml", 288, 192),
    "plot.pdf": ("application/pdf", 0, 0),
    "table.csv": ("text/csv", 0, 0),
    "table.html": ("text/html", 0, 0),
    "table.json": ("application/json", 0, 0),
    "notes.txt": ("text/plain", 0, 0),
    "figure-1.png": ("image/png", 640, 480),
}
CHANGES = {
    "bash": "echo more >>old.txt",
    "cpp": '#include <fstream>\nint main() { std::ofstream("old.txt", std::ios::app) << "more"; }',
    "go": 'package main\n\nimport "os"\n\nfunc main() { os.WriteFile("old.txt", []byte("other"), 0o644) }',
    "java": 'java.nio.file.Files.writeString(java.nio.file.Path.of("old.txt"), "other");',
    "javascript": "require('fs').appendFileSync('old.txt', 'more')",
    "python": "open('old.txt', 'a').write('more')",
    "r": "cat('more', file = 'old.txt', append = TRUE)",
    "ruby": "File.write('old.txt', 'other')",
}
ELSEWHERE = {
    "bash": "mkdir sub; echo 1 >/mnt/data/sub/a.csv; echo 1 >/tmp/b.csv; cd /tmp; echo 1 >c.png",
    "cpp": """
#include <filesystem>
#include <fstream>
int main() {
  std::filesystem::create_directory("sub");
  for (auto name : {"/mnt/data/sub/a.csv", "/tmp/b.csv", "/tmp/c.png"}) std::ofstream(name) << "1";
}""",
    "go": """package main

import "os"

func main() {
	os.Mkdir("sub", 0o755)
	for _, name := range []string{"/mnt/data/sub/a.csv", "/tmp/b.csv", "/tmp/c.png"} {
		os.WriteFile(name, []byte("1"), 0o644)
	}
}""",
    "java": """
java.nio.file.Files.createDirectory(java.nio.file.Path.of("sub"));
for (String name : new String[] {"/mnt/data/sub/a.csv", "/tmp/b.csv", "/tmp/c.png"})
  java.nio.file.Files.writeString(java.nio.file.Path.of(name), "1");""",
    "javascript": """
const fs = require('fs');
fs.mkdirSync('sub'); fs.writeFileSync('/mnt/data/sub/a.csv', '1'); fs.writeFileSync('/tmp/b.csv', '1');
process.chdir('/tmp'); fs.writeFileSync('c.png', '1');""",
    "python": """
import os
os.mkdir('sub')
for name in ('/mnt/data/sub/a.csv', '/tmp/b.csv'):
    open(name, 'w').write('1')
os.chdir('/tmp')
open('c.png', 'w').write('1')""",
    "r": """
dir.create('sub'); cat(1, file = '/mnt/data/sub/a.csv'); cat(1, file = '/tmp/b.csv')
setwd('/tmp'); cat(1, file = 'c.png')""",
    "ruby": """
Dir.mkdir('sub'); File.write('/mnt/data/sub/a.csv', '1'); File.write('/tmp/b.csv', '1')
Dir.chdir('/tmp'); File.write('c.png', '1')""",
}
NOTHING = {
    "bash": ":",
    "cpp": "int main() {}",
    "go": "package main\n\nfunc main() {}",
    "java": "System.out.println();",
}


@pytest.fixture
async def service(backend_name: str) -> AsyncIterator[Service]:
    await need(backend_name)
    with anyio.fail_after(120):
        async with service_with_default_libraries(backend_name) as opened:
            yield opened


def kinds(run: Execution) -> dict[str, tuple[str, int, int]]:
    assert run.status == "ok", run
    return {found.name: (found.mime_type, found.width, found.height) for found in run.artifacts}


async def test_every_kind_of_file_has_its_media_type_and_images_their_size(service: Service, backend_name: str) -> None:
    need_image(backend_name, "python")
    run = await execute(service, PYTHON)
    assert kinds(run) == KINDS
    assert kinds(await execute(service, "1", session_id=run.session_id)) == {}


async def test_a_plot_of_r_is_an_image_and_a_widget_of_r_is_a_page(service: Service, backend_name: str) -> None:
    need_image(backend_name, "r")
    if missing(LANGUAGES["r"], libraries=False):
        pytest.skip("needs R")
    drawn = await execute(service, "dev.new(width = 3, height = 2)\nplot(1:3)", language="r")
    assert kinds(drawn) == {"figure-1.png": ("image/png", 360, 240)}
    found = await execute(service, "nzchar(system.file(package = 'plotly'))", language="r", session_id=drawn.session_id)
    if found.result != "[1] TRUE":
        pytest.skip("needs r-cran-plotly")
    code = "plotly::plot_ly(x = 1:3, y = 1:3, type = 'bar')"
    shown = await execute(service, code, language="r", session_id=drawn.session_id)
    assert kinds(shown) == {"figure-2.html": ("text/html", 0, 0)}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_file_that_code_changes_is_an_artifact_of_that_run_only(
    service: Service, backend_name: str, language: str
) -> None:
    need_image(backend_name, language)
    if programs := missing(LANGUAGES[language], libraries=False):
        pytest.skip(f"{language} needs {', '.join(programs)}")
    session = open_session(service, language)
    for name in ("old.txt", "same.txt"):
        await service.files.copy_in(session, name, b"old")
    run = await execute(service, CHANGES[language], language=language, session_id=session)
    assert set(kinds(run)) == {"old.txt"}
    after = await execute(service, NOTHING.get(language, "1"), language=language, session_id=session)
    assert kinds(after) == {}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_files_below_the_other_name_of_the_working_directory_are_found_and_those_elsewhere_named(
    service: Service, backend_name: str, language: str
) -> None:
    need_image(backend_name, language)
    if programs := missing(LANGUAGES[language], libraries=False):
        pytest.skip(f"{language} needs {', '.join(programs)}")
    run = await execute(service, ELSEWHERE[language], language=language)
    assert set(kinds(run)) == {"sub/a.csv"}
    assert run.notes == (
        "/tmp/b.csv, /tmp/c.png stay in the sandbox; save them in the working directory to get them back",
    )
    after = await execute(service, NOTHING.get(language, "1"), language=language, session_id=run.session_id)
    assert (kinds(after), after.notes) == ({}, ())
