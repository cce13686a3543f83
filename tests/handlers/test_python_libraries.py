"""How libraries are installed in a session: the commands of `handler.toml`, with an index on this machine."""

import base64
import functools
import hashlib
import http.server
import os
import re
import subprocess
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import uv

from .driver import HANDLERS
from .python_environment import environment, python

LIBRARIES = tomllib.loads((HANDLERS / "python/handler.toml").read_text())["libraries"]


def make_wheel(folder: Path, name: str, version: str) -> None:
    """Writes a wheel with one module, in the folder where a package index has it."""
    place = folder / "simple" / name
    place.mkdir(parents=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text)}\n"
    wheel = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(place / wheel, "w") as archive:
        for path, text in (files | {f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}).items():
            archive.writestr(path, text)
    (place / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    make_wheel(tmp_path / "index", "tinylib", "1.2.3")
    handler = functools.partial(QuietHandler, directory=str(tmp_path / "index"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()
        thread.join(10)


def command(parts: list[str], folder: Path, index: str, *names: str) -> subprocess.CompletedProcess[str]:
    places = {
        "{tools}/uv": uv.find_uv_bin(),
        "{libraries}": str(folder / "libraries"),
        "{environment}": environment(),
        "{index}": index,
        "{handler}": str(HANDLERS / "python"),
    }
    filled = [functools.reduce(lambda text, item: text.replace(*item), places.items(), part) for part in parts]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "LANG": "C.UTF-8"}
    return subprocess.run([*filled, *names], env=env, cwd=folder, capture_output=True, text=True, timeout=30)


def test_an_installed_library_is_found_and_listed(tmp_path: Path, index: str) -> None:
    with python(tmp_path) as runner:
        assert "ModuleNotFoundError" in runner.run("import tinylib").err
        done = command(LIBRARIES["install"], tmp_path, index, "tinylib>=1")
        assert done.returncode == 0, done.stderr
        assert runner.run("import tinylib\ntinylib.version").result == "'1.2.3'"
    lines = command(LIBRARIES["installed"], tmp_path, index).stdout.splitlines()
    found = [match.groupdict() for line in lines if (match := re.search(LIBRARIES["installed_pattern"], line))]
    assert found == [{"name": "tinylib", "version": "1.2.3"}]


def test_a_failed_install_names_the_library(tmp_path: Path, index: str) -> None:
    done = command(LIBRARIES["install"], tmp_path, index, "nosuchlib")
    assert done.returncode != 0
    assert "nosuchlib" in done.stderr


def test_the_default_index_is_in_the_help_text_of_uv(tmp_path: Path) -> None:
    tool, *rest = LIBRARIES["default_index"]
    assert tool == "uv"
    done = subprocess.run([uv.find_uv_bin(), *rest], capture_output=True, text=True, check=True, timeout=30)
    assert re.search(LIBRARIES["default_index_pattern"], done.stdout)


@pytest.mark.parametrize(
    "name",
    [
        "numpy",
        "scikit-learn",
        "zope.interface",
        "Pillow==10.0",
        "requests[socks]>=2,<3",
        "pandas[excel, plot] >= 2.0, != 2.1.*",
        "a",
        "torch==2.1+cpu",
        "x~=1.4.2rc1",
        "y==1!2.0",
    ],
)
def test_names_with_extras_and_versions_are_accepted(name: str) -> None:
    assert re.search(LIBRARIES["name_pattern"], name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " numpy",
        "-r",
        "--index-url=http://x",
        "-e.",
        "git+https://x/y",
        "numpy @ https://x/y.whl",
        "@file",
        "./local",
        "/tmp/x",
        "../x",
        "a/b",
        "~/x",
        "numpy; rm -rf /",
        "numpy;python_version<'3'",
        "numpy==1;x",
        "numpy\n",
        "numpy\n--pre",
        "numpy\0",
        "numpy $(id)",
        "numpy requests",
        "numpy[",
        "numpy[]",
        "numpy==",
        "numpy=1",
        "x-1.0-py3-none-any.whl",
        "x-1.0.tar.gz",
        "x.ZIP",
        "x.tgz",
        "x.tar.bz2",
        "x.tar",
        "file:x",
        "ñ",
        "-",
        "x.",
        "numpy'",
    ],
)
def test_anything_else_is_refused(name: str) -> None:
    assert not re.search(LIBRARIES["name_pattern"], name)


def test_a_long_hostile_name_is_refused_at_once() -> None:
    for name in ("a" * 50_000 + "!", "a" + "-." * 20_000, "a[" + "b," * 20_000, "a" + "==1," * 20_000):
        assert not re.search(LIBRARIES["name_pattern"], name)
