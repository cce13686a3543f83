"""Which package manager installs libraries: the first one of the language that the sandbox has. What a failure says."""

import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import pytest

from llm_sandbox_mcp.backends.base import Completed, Fullness, Sandbox, Usage
from llm_sandbox_mcp.backends.listening import Listener, listen_on
from llm_sandbox_mcp.base.errors import InstallFailed, PolicyDenied
from llm_sandbox_mcp.base.results import Library
from llm_sandbox_mcp.base.units import format_size
from llm_sandbox_mcp.languages.languages import included_languages
from llm_sandbox_mcp.languages.places import Places
from llm_sandbox_mcp.libraries.installing import Installer, choose
from llm_sandbox_mcp.profile.profile import load_profile
from tests.unit.policies import POLICY

pytestmark = pytest.mark.anyio

PYTHON = Places(included_languages()["python"], environment="/usr/local", tools="/usr/local/bin")


class Has:
    """A sandbox with these programs."""

    def __init__(self, *programs: str, image: str = "debian") -> None:
        self.image = image
        self.path = "/opt/ruby/bin:/usr/bin"
        self.origin = f"image {image}" if image else "/usr of this machine"
        self._programs = programs
        self.searches = 0

    async def lacking(self, programs: Sequence[str], env: Mapping[str, str]) -> Sequence[str]:
        assert env["PATH"] == "/usr/local/bin:/opt/ruby/bin:/usr/bin"
        self.searches += 1
        return [program for program in programs if program not in self._programs]


async def chosen(sandbox: Has, places: Places = PYTHON) -> Any:
    return await choose(cast(Sandbox, sandbox), places)


async def test_uv_is_preferred_and_then_nothing_else_is_searched() -> None:
    image = Has("/usr/local/bin/uv", "/usr/local/bin/python", "python3", "pip3")
    assert await chosen(image) == PYTHON.language.handler.libraries
    assert image.searches == 1


@pytest.mark.parametrize("programs", [(), ("/usr/local/bin/uv",), ("/usr/local/bin/python",)])
async def test_pip_is_used_instead_with_the_shared_settings(programs: tuple[str, ...]) -> None:
    pip = await chosen(Has("python3", "pip3", *programs))
    first = PYTHON.language.handler.libraries
    assert first is not None
    assert pip.manager == "pip"
    assert pip.install == first.alternatives[0].install != first.install
    assert (pip.name_pattern, pip.files_pattern) == (first.name_pattern, first.files_pattern)
    assert pip.installed_pattern == first.installed_pattern


async def test_if_neither_is_available_the_error_names_both() -> None:
    with pytest.raises(InstallFailed) as raised:
        await chosen(Has("/usr/local/bin/python", "python3"))
    assert str(raised.value) == (
        "libraries of python cannot be installed without /usr/local/bin/uv, or pip3, which image debian does not have; "
        "add it to the image, or build one that has it: llm-sandbox-mcp images build"
    )


async def test_a_program_that_the_machine_lacks_is_to_be_installed_there() -> None:
    ruby = Places(included_languages()["ruby"], environment="/usr/local")
    with pytest.raises(InstallFailed, match="without gem, which /usr of this machine does not have; install gem there"):
        await chosen(Has(image=""), ruby)


async def test_a_language_without_a_package_manager_is_refused() -> None:
    with pytest.raises(PolicyDenied, match="bash has no package manager"):
        await chosen(Has(), Places(included_languages()["bash"], environment="/usr/local"))


class Lists(Has):
    """A sandbox that has one library, and in which nothing can be installed."""

    async def run(self, argv: Sequence[str], *_: object, **__: object) -> Completed:
        assert "list" in argv
        return Completed(0, b"six==1.0\n", b"")


async def test_nothing_is_installed_if_all_is_part_of_the_language(installer: Installer) -> None:
    has = cast(Sandbox, Lists("/usr/local/bin/uv", "/usr/local/bin/python"))
    assert await installer.install(has, PYTHON, ()) == ((Library("six", "1.0"),), {})


class Fails(Has):
    """A sandbox whose package manager prints this and fails."""

    policy = POLICY

    def __init__(self, stdout: bytes, stderr: bytes) -> None:
        super().__init__("/usr/local/bin/uv", "/usr/local/bin/python")
        self._printed = stdout, stderr

    def listen(self) -> AbstractAsyncContextManager[Listener]:
        return listen_on(socket.create_server(("127.0.0.1", 0)))

    async def run(self, *_: object, **__: object) -> Completed:
        return Completed(1, *self._printed)

    async def usage(self) -> Usage:
        return Usage()

    async def fullness(self, *, thorough: bool) -> Fullness:
        return Fullness()


@pytest.fixture(scope="module")
def installer(tmp_path_factory: pytest.TempPathFactory) -> Installer:
    """Reads the certificates of the machine once."""
    profile = load_profile(over={"languages": {"python": {"index": "http://127.0.0.1:1/simple"}}})
    return Installer(profile, tmp_path_factory.mktemp("cache"), {})


LINES = [f"line {number}" for number in range(1, 31)]


@pytest.mark.parametrize(
    ("stdout", "stderr", "told"),
    [
        ("\n".join(LINES), "", " | ".join(LINES[-12:])),
        ("left out", "\n \n".join([*LINES[:11], "  last\r\n"]), " | ".join([*LINES[:11], "last"])),
        ("", "x\n" + "😀" * 1999 + "y", "😀" * 1999 + "y"),
        ("", "one\n" * 12, "one" + " | one" * 11),
        ("", " \n", "no reason given"),
    ],
    ids=["twelve lines", "what stderr has, without empty lines", "2000 characters", "exactly twelve", "nothing"],
)
async def test_a_failure_ends_with_the_last_lines_of_the_package_manager(
    stdout: str, stderr: str, told: str, installer: Installer
) -> None:
    sandbox = cast(Sandbox, Fails(stdout.encode(), stderr.encode()))
    with pytest.raises(InstallFailed) as raised:
        await installer.install(sandbox, PYTHON, ["numpy"])
    assert str(raised.value) == f"uv could not install numpy: {told}"


@pytest.mark.parametrize(
    "line", ["npm error ENOSPC: no space left on device, write", "OSError: [Errno 28] No space left on device"]
)
async def test_a_package_manager_that_found_no_room_names_the_limit_and_its_key(
    line: str, installer: Installer
) -> None:
    with pytest.raises(InstallFailed) as raised:
        await installer.install(cast(Sandbox, Fails(b"", line.encode())), PYTHON, ["numpy"])
    size = format_size(POLICY.disk)
    assert str(raised.value) == (
        f"uv could not install numpy: the disk limit of {size} was reached (limits.disk in the profile); {line}; "
        "install fewer or smaller ones, or raise limits.disk in the profile"
    )
