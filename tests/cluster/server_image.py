"""The server's own image, built by the tests' Docker and imported into the cluster's containerd."""

import subprocess
import tempfile
from pathlib import Path

from tests.engines import base_image, docker
from tests.engines.images import build_arguments, client

ROOT = Path(__file__).parents[2]
_DOCKERFILE = ROOT / "configs" / "publish" / "Dockerfile"
_NAME = "llm-sandbox-mcp"


def ensure(containerd: Path) -> str:
    """Builds the current image, imports it into the cluster, and returns its tag; an unchanged image is not imported
    again."""
    with client(docker.daemon()) as engine:
        image, _ = engine.images.build(
            path=str(ROOT),
            dockerfile=str(_DOCKERFILE),
            buildargs=build_arguments(_DOCKERFILE.read_text(encoding="utf-8"), base_image.NAME),
            network_mode="host",
            tag=_NAME,
            rm=True,
        )
        tag = str(image.short_id).partition(":")[2]
        there = [name for name in _ctr(containerd, "list", "-q").split() if f"/{_NAME}:" in name]
        if not any(name.endswith(f"/{_NAME}:{tag}") for name in there):
            image.tag(_NAME, tag)
            with tempfile.NamedTemporaryFile(prefix="sandbox-test-", suffix=".tar") as archive:
                archive.writelines(engine.images.get(f"{_NAME}:{tag}").save(named=f"{_NAME}:{tag}"))
                archive.flush()
                _ctr(containerd, "import", archive.name)
            engine.images.remove(f"{_NAME}:{tag}")
            # A node reports only its fifty largest images, and these old ones would be among them.
            if there:
                _ctr(containerd, "remove", *there)
    return tag


def _ctr(containerd: Path, *words: str) -> str:
    argv = ["ctr", "--address", str(containerd), "--namespace", "k8s.io", "images", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout.strip()
