"""Images that the tests' Docker builds and the cluster's containerd gets, first of all the server's own."""

import subprocess
import tempfile
from pathlib import Path

from docker import DockerClient

from tests.engines import base_image, docker
from tests.engines.images import build_arguments, client

ROOT = Path(__file__).parents[2]
_DOCKERFILE = ROOT / "configs" / "publish" / "Dockerfile"
_NAME = "llm-sandbox-mcp"


def ensure(containerd: Path) -> str:
    """Builds the server's current image, imports it into the cluster, and returns its tag."""
    with client(docker.daemon()) as engine:
        engine.images.build(
            path=str(ROOT),
            dockerfile=str(_DOCKERFILE),
            buildargs=build_arguments(_DOCKERFILE.read_text(encoding="utf-8"), base_image.NAME),
            network_mode="host",
            tag=_NAME,
            rm=True,
        )
        return import_image(engine, _NAME, containerd).rpartition(":")[2]


def import_image(engine: DockerClient, name: str, containerd: Path) -> str:
    """Imports an image into the cluster, and returns its name there, with a tag; an unchanged one is not imported
    again."""
    tag = str(engine.images.get(name).short_id).partition(":")[2]
    there = [known for known in _ctr(containerd, "list", "-q").split() if f"/{name}:" in known]
    if not any(known.endswith(f"/{name}:{tag}") for known in there):
        engine.images.get(name).tag(name, tag)
        with tempfile.NamedTemporaryFile(prefix="sandbox-test-", suffix=".tar") as archive:
            archive.writelines(engine.images.get(f"{name}:{tag}").save(named=f"{name}:{tag}"))
            archive.flush()
            _ctr(containerd, "import", archive.name)
        engine.images.remove(f"{name}:{tag}")
        # A node reports only its fifty largest images, and these old ones would be among them.
        if there:
            _ctr(containerd, "remove", *there)
    return f"{name}:{tag}"


def _ctr(containerd: Path, *words: str) -> str:
    argv = ["ctr", "--address", str(containerd), "--namespace", "k8s.io", "images", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout.strip()
