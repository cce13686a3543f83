"""The handlers' images: built in Docker when their Dockerfile has changed, and copied to Podman."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import docker
from docker.errors import ImageNotFound
from docker.models.images import Image

from llm_sandbox_mcp.backends.containers.engine import Engine
from llm_sandbox_mcp.backends.containers.making import Build, build
from llm_sandbox_mcp.base.errors import SandboxError
from llm_sandbox_mcp.host.folders import HANDLERS

from . import base_image
from .base_image import RECIPE
from .daemon import Daemon, Unusable

LANGUAGES = tuple(sorted(path.parent.name for path in HANDLERS.glob("*/Dockerfile")))

_PASSED_ON = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
"""The file in the base image with the authorities that this machine trusts; pip would use its own."""


def image_name(language: str) -> str:
    return f"llm-sandbox-mcp-{language}"


ALL = (base_image.NAME, *map(image_name, LANGUAGES))


@contextmanager
def client(daemon: Daemon) -> Iterator[docker.DockerClient]:
    """A Docker client of the daemon."""
    made = docker.DockerClient(base_url=f"unix://{daemon.socket}", timeout=120)
    try:
        yield made
    finally:
        made.close()


def build_all(client: docker.DockerClient, engine: Engine) -> None:
    """Brings every image up to date; if one cannot be built, the others still are."""
    base = base_image.ensure(client)
    failed = []
    for language in LANGUAGES:
        made_of = recipe(language, base)
        if _label(client, image_name(language)) == made_of.labels[RECIPE]:
            continue
        try:
            with closing(engine.http()) as connection:
                build(engine, connection, image_name(language), made_of, partial(_print_step, language))
        except SandboxError as error:
            failed.append(str(error))
    if failed:
        raise Unusable("\n".join(failed))


def recipe(language: str, base: str) -> Build:
    """How to build the image of a language, with a label that changes when the Dockerfile or its arguments do."""
    dockerfile = HANDLERS / language / "Dockerfile"
    text = dockerfile.read_text(encoding="utf-8")
    arguments = build_arguments(text, base)
    label = hashlib.sha256(repr((text, arguments)).encode()).hexdigest()
    # On the host's network: while another daemon runs, our containers reach only this machine.
    return Build(dockerfile, arguments, "host", {RECIPE: label})


def hand_on(source: docker.DockerClient, target: docker.DockerClient, names: Iterable[str]) -> None:
    """Copies images to the second engine that it does not have, or has in another version."""
    for name in names:
        image = _find(source, name)
        existing = _find(target, name)
        if image and (existing is None or existing.id != image.id):
            print(f"load {name}", flush=True)
            target.api.load_image(image.save(named=True))


def save(source: docker.DockerClient, folder: Path, languages: Iterable[str]) -> Iterator[Path]:
    """Archives of images as `docker save` writes them, for the nodes of a cluster; an existing archive is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for language in languages:
        image = source.images.get(image_name(language))
        archive = folder / f"{language}-{str(image.id).partition(':')[2][:12]}.tar"
        if not archive.exists():
            for old in folder.glob(f"{language}-*.tar*"):
                old.unlink()
            unfinished = archive.with_suffix(".tar.part")
            with unfinished.open("wb") as file:
                file.writelines(image.save(named=True))
            unfinished.rename(archive)
        yield archive


def missing(client: docker.DockerClient) -> list[str]:
    """The images that this engine does not have."""
    return [name for name in map(image_name, LANGUAGES) if _find(client, name) is None]


def _print_step(language: str, line: str) -> None:
    if line.startswith("Step ") and " : RUN " in line:
        print(f"{language}: {line.partition(' : ')[2].strip()[:110]}", flush=True)


def build_arguments(dockerfile: str, base: str) -> dict[str, str]:
    """The build arguments that a Dockerfile declares, with their values on this machine."""
    values = {"BASE": base, "PIP_CERT": _CERTIFICATES}
    values |= {name: os.environ[name] for name in _PASSED_ON if os.environ.get(name)}
    return {name: value for name, value in sorted(values.items()) if f"ARG {name}" in dockerfile}


def _label(client: docker.DockerClient, name: str) -> str | None:
    image = _find(client, name)
    return image.labels.get(RECIPE) if image else None


def _find(client: docker.DockerClient, name: str) -> Image | None:
    try:
        return client.images.get(name)
    except ImageNotFound:
        return None
