"""The files below configs/kubernetes as people use them: from their own kustomization, in their own namespace."""

import json
import os
import subprocess
from pathlib import Path

import anyio

from tests.engines import kubeconfig

CONFIGS = Path(__file__).parents[2] / "configs" / "kubernetes"
SERVER_NAME = "llm-sandbox-mcp"
PROFILE = (CONFIGS / "profile.toml").read_text(encoding="utf-8")


def write(folder: Path, namespace: str, profile: str = PROFILE, **more: object) -> Path:
    """Writes a kustomization for a namespace, with a profile and further fields; returns its folder."""
    base = os.path.relpath(CONFIGS, folder.resolve())
    (folder / "profile.toml").write_text(profile, encoding="utf-8")
    generated = {"name": "llm-sandbox-mcp-profile", "behavior": "replace", "files": ["profile.toml"]}
    whole = {"namespace": namespace, "resources": [base], "configMapGenerator": [generated], **more}
    (folder / "kustomization.yaml").write_text(json.dumps(whole), encoding="utf-8")
    return folder


def without_server(folder: Path, namespace: str, **more: object) -> Path:
    """The same without a running server, so that its image is not needed."""
    return write(folder, namespace, PROFILE, replicas=[{"name": SERVER_NAME, "count": 0}], **more)


async def kubectl(*words: str, given: str = "", seconds: float = 60) -> str:
    """Runs kubectl on the tests' cluster with `given` as input; returns its output, or fails with it."""
    argv = ["kubectl", "--kubeconfig", str(kubeconfig()), *words]
    with anyio.fail_after(seconds):
        done = await anyio.run_process(argv, input=given.encode(), stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode()
