"""`llm-sandbox-mcp images`, as people use it: build, pull, list and remove on real engines."""

import io
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import docker
import pytest
from docker.errors import ImageNotFound

from llm_sandbox_mcp.backends.containers.templates import LABEL
from tests.cli.command import ARGV, command, environment, refused

from .engines import address, profile_file
from .registry import registry

PREFIX = "llm-sandbox-mcp-scratch"
NAME = f"{PREFIX}/bash"
SOON = 10.0
USED = " of 20 templates (containers.templates)"


class Images(Protocol):
    """Runs `images ACTION` under a profile with these settings for containers."""

    def __call__(self, *arguments: str, **containers: object) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def images(engine: str, folder: Path, client: docker.DockerClient) -> Iterator[Images]:
    def run(*arguments: str, **containers: object) -> subprocess.CompletedProcess[str]:
        settings = {"image": f"{PREFIX}/{{language}}", **containers}
        profile = profile_file(engine, address(engine), folder, containers=settings)
        return command("images", *arguments, "--profile", str(profile))

    yield run
    for image in client.images.list():
        for tag in image.tags:
            # By name: an image that was built here may be part of another image, such as the language's.
            if PREFIX in tag:
                client.images.remove(tag)


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    """The rows of the printed table, by the name of the image."""
    assert (done.returncode, done.stderr) == (0, ""), done
    head, _, *lines = done.stdout.splitlines()
    assert head.split() == ["language", "image", "present", "size"]
    cells = [line.split(maxsplit=3) for line in lines if not line.endswith(USED)]
    return {image: [language, *rest] for language, image, *rest in cells}


def test_builds_are_shown_line_by_line_and_one_that_fails_does_not_stop_the_others(
    images: Images, folder: Path, engine: str
) -> None:
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nRUN echo one; echo two >&2; exit 7\n")
    chosen = ("--language", "go", "--language", "sh")
    own = {"go": str(folder / "Dockerfile")}
    built = images("build", *chosen, "--base", "llm-sandbox-mcp-base", "--network", "host", dockerfiles=own)
    assert (built.returncode, built.stdout) == (2, "")
    lines = built.stderr.splitlines()
    of_go = [line for line in lines if line.startswith("go: ")]
    of_bash = lines[len(of_go) :]
    assert len(of_go) > 3 and any("FROM" in line for line in of_go)
    assert of_go[-1].startswith(f"go: image {PREFIX}/go cannot be built by {engine} at unix://")
    assert re.search(r"\bone\b.*\btwo\b.*\b7\b.*; fix its Dockerfile$", of_go[-1])
    assert len(of_bash) > 3 and all(line.startswith("bash: ") for line in of_bash)
    assert of_bash[-1].startswith(f"bash: {NAME} is ready after ")
    listed = rows(images("list", *chosen))
    assert listed.pop(f"{PREFIX}/go") == ["go", "no", "-"]
    (language, present, size) = listed.pop(NAME)
    assert (language, present, listed) == ("bash", "yes", {})
    assert size.endswith("MiB") and float(size.removesuffix("MiB")) > 10


def test_an_image_is_pulled_from_a_registry(images: Images, client: docker.DockerClient, folder: Path) -> None:
    (folder / "context").mkdir()
    (folder / "context/Dockerfile").write_text("FROM scratch\nCOPY mark /mark\n")
    (folder / "context/mark").write_text(folder.name)
    client.images.build(path=str(folder / "context"), tag=NAME, rm=True)
    saved = b"".join(client.images.get(NAME).save())
    client.images.remove(NAME)
    with registry(NAME, saved) as place:
        done = images("pull", "--language", "bash", registry=place)
    assert (done.returncode, done.stdout) == (0, ""), done
    lines = done.stderr.splitlines()
    assert len(lines) > 1 and lines[-1].startswith(f"bash: {place}/{NAME} is ready after ")
    assert rows(images("list", "--language", "bash", registry=place))[f"{place}/{NAME}"][:2] == ["bash", "yes"]
    client.images.remove(f"{place}/{NAME}")


def test_a_registry_that_does_not_answer_is_soon_reported(engine: str, folder: Path) -> None:
    containers = {"image": NAME, "registry": "127.0.0.1:9"}
    profile = profile_file(engine, address(engine), folder, containers=containers)
    done = subprocess.run(
        [*ARGV, "images", "pull", "--language", "bash", "--profile", str(profile)],
        capture_output=True,
        text=True,
        timeout=SOON,
        env=environment(),
    )
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"bash: image 127.0.0.1:9/{NAME} cannot be pulled by {engine} at unix://")
    assert "refused" in last and last.endswith("; check its name, and that its registry answers")


def test_nothing_is_pulled_where_the_profile_says_never(engine: str, folder: Path) -> None:
    containers = {"image": NAME, "registry": "127.0.0.1:9", "pull": "never"}
    profile = profile_file(engine, address(engine), folder, containers=containers)
    said = refused("run", "--profile", str(profile), "--language", "bash", "-c", "echo on")
    assert f"{engine} at " in said and f"has no image 127.0.0.1:9/{NAME}" in said
    assert said.endswith("; build it: llm-sandbox-mcp images build")


def test_a_template_is_listed_and_removed_and_nothing_else_is(images: Images, client: docker.DockerClient) -> None:
    template = f"{PREFIX}/mine:1"
    client.images.build(fileobj=io.BytesIO(b"FROM scratch\nENV A=b\n"), tag=template, labels={LABEL: template}, rm=True)
    client.images.build(fileobj=io.BytesIO(b"FROM scratch\nENV A=c\n"), tag=NAME, rm=True)
    shown = images("list")
    listed = rows(shown)
    assert listed[template][:2] == ["(template)", "yes"] and listed[NAME][1] == "yes"
    assert shown.stdout.splitlines()[-1] == f"1{USED}"
    done = images("remove", NAME, template)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line == (
        f"image '{NAME}:latest' is not a template: it was not made from a session; run `images list` to see the templates"
    )
    assert client.images.get(NAME)
    with pytest.raises(ImageNotFound):
        client.images.get(template)
