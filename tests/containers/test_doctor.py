"""What `doctor` reports about an engine: whether each language works in its own image."""

import re
from pathlib import Path

from tests.cli.command import command
from tests.engines.images import LANGUAGES

from .engines import address, profile_file
from .test_posture import LAYERS


def test_each_language_is_checked_in_its_own_image(engine: str, folder: Path) -> None:
    done = command("doctor", "--profile", str(profile_file(engine, address(engine), folder)))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for language in LANGUAGES:
        assert re.search(rf"\n{language} +ok ", done.stdout), done.stdout
    assert done.stdout.endswith("Code can run here.\n")
    for layer in LAYERS.keys() - {"memory, processes, processors"} | {"memory", "limits", "seccomp"}:
        assert re.search(rf"\n{layer} +ok ", done.stdout), done.stdout
    # Docker cannot limit their number, and `doctor` reports that.
    terminals = {"docker": "degraded", "podman": "ok"}[engine]
    assert re.search(rf"\npseudo-terminals +{terminals} ", done.stdout), done.stdout


def test_an_image_that_is_missing_or_without_the_language_is_reported_and_the_others_run(
    engine: str, folder: Path
) -> None:
    images = {"go": "llm-sandbox-mcp-nowhere", "ruby": "llm-sandbox-mcp-bash"}
    file = profile_file(engine, address(engine), folder, containers={"images": images})
    done = command("doctor", "--profile", str(file))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"\ngo +missing .*no image llm-sandbox-mcp-nowhere", done.stdout), done.stdout
    assert re.search(r"\nruby +missing +image llm-sandbox-mcp-bash has no ruby", done.stdout), done.stdout
    assert "llm-sandbox-mcp images build" in done.stdout
    assert re.search(r"\npython +ok ", done.stdout)
    assert done.stdout.endswith("Code can run here.\n")
