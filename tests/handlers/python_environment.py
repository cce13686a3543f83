"""Python environments for the tests, made as the server makes them: uv builds them, then they are moved elsewhere.

The server has uv compile all modules, which would take longer here than the tests that use them: see `keep_bytecode`.
"""

import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uv

from .driver import Runner, start

INTERPRETER = os.environ.get("SANDBOX_TEST_PYTHON", "/usr/bin/python3")

_folder = Path()
"""The folder that contains them."""


@contextmanager
def place() -> Iterator[None]:
    """Makes a folder for them, and removes it after the last test."""
    global _folder
    with tempfile.TemporaryDirectory(prefix="python-environments-") as made:
        _folder = Path(made)
        yield
    environment.cache_clear()


@functools.cache
def environment(*libraries: str) -> str:
    """Makes an environment, once for all tests, and returns its folder."""
    folder = Path(tempfile.mkdtemp(dir=_folder))
    built = folder / "built"
    tool = uv.find_uv_bin()
    subprocess.run(
        [tool, "venv", "--quiet", "--relocatable", "--python", INTERPRETER, str(built)], check=True, timeout=60
    )
    if libraries:
        python = str(built / "bin/python")
        command = [tool, "pip", "install", "--quiet", "--python", python, *libraries]
        subprocess.run(command, check=True, timeout=300)
    return str(built.rename(folder / "moved"))


def keep_bytecode(modules: str, *libraries: str) -> None:
    """Compiles these modules, and all that they import; otherwise each runner compiles them again, as it writes nothing."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [environment(*libraries) + "/bin/python", "-s", "-c", f"import {modules}"]
    with tempfile.TemporaryDirectory(dir=_folder) as home:  # where matplotlib leaves its list of fonts
        subprocess.run(command, check=True, timeout=300, env={**env, "HOME": home}, cwd=home)


@contextmanager
def python(folder: Path, *libraries: str, **env: str) -> Iterator[Runner]:
    """A live Python runner."""
    with start("python", folder, env=env, environment=environment(*libraries)) as runner:
        yield runner
