"""Docker and Podman work as on macOS: nothing that only Linux has is used on the server's side."""

from pathlib import Path

from tests.other_systems import command_on

from .engines import address, profile_file


def test_code_runs_without_what_only_linux_has(engine: str, folder: Path) -> None:
    profile = profile_file(engine, address(engine), folder)
    done = command_on("darwin", "run", "--profile", str(profile), "-c", "print(6 * 7)", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
