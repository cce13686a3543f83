"""Builds what is published, in `dist`: `make dist`. What pyproject.toml knows is written nowhere else."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w
from uv import find_uv_bin

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAME, VERSION, SOURCE = PROJECT["name"], PROJECT["version"], PROJECT["urls"]["Source"]

MCPB = "@anthropic-ai/mcpb@2.1.2"
"""The official tool for bundles, an npm package."""
PARTS = ("packages", "server", "bundle", "image")


def main(argv: Sequence[str]) -> int:
    """Builds the parts and prints the path of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", choices=PARTS, action="append", metavar="PART", help=f"{', '.join(PARTS)}; repeatable"
    )
    parser.add_argument("--into", type=Path, default=ROOT / "dist", metavar="FOLDER")
    parser.add_argument("--image-options", default="", metavar="TEXT", help="options of `docker build`")
    options = parser.parse_args(argv)
    into = options.into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    wheel = into / f"{NAME.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    for part in options.only or PARTS:
        match part:
            case "packages":
                run(sys.executable, "-m", "hatchling", "build", "-d", into)
                print(wheel, into / f"{wheel.name.split('-py3')[0]}.tar.gz", sep="\n")
            case "server":
                write_json(into / "server.json", server())
                print(into / "server.json")
            case "bundle":
                print(bundle(wheel, into / f"{NAME}-{VERSION}.mcpb"))
            case "image":
                print(image(into / f"{NAME}-{VERSION}-image.tar", options.image_options.split()))
    return 0


def server() -> dict[str, Any]:
    """The entry in the registry of MCP servers."""
    entry = read_json("server.json")
    entry |= {
        "description": PROJECT["description"],
        "version": VERSION,
        "repository": {"url": SOURCE, "source": "github"},
        "websiteUrl": PROJECT["urls"]["Homepage"],
    }
    entry["packages"] = [package | {"identifier": NAME, "version": VERSION} for package in entry["packages"]]
    return entry


def bundle(wheel: Path, target: Path) -> Path:
    """Packs the wheel, the environment that it needs and the manifest; the official tool checks and packs them."""
    with tempfile.TemporaryDirectory(prefix="bundle-") as name:
        folder = Path(name)
        shutil.copy(wheel, folder)
        shutil.copy(HERE / "bundle/start.py", folder)
        (folder / "pyproject.toml").write_text(tomli_w.dumps(environment(wheel, folder)), encoding="utf-8")
        write_json(folder / "manifest.json", manifest())
        run("npx", "--yes", MCPB, "validate", folder / "manifest.json")
        run("npx", "--yes", MCPB, "pack", folder, target)
    return target


def manifest() -> dict[str, Any]:
    """The manifest of the bundle."""
    urls = PROJECT["urls"]
    document = read_json("bundle/manifest.json")
    document["compatibility"]["runtimes"] = {"python": PROJECT["requires-python"]}
    return document | {
        "name": NAME,
        "version": VERSION,
        "description": PROJECT["description"],
        "author": {**PROJECT["authors"][0], "url": urls["Homepage"]},
        "repository": {"type": "git", "url": SOURCE},
        "homepage": urls["Homepage"],
        "documentation": urls["Documentation"],
        "support": urls["Issues"],
        "license": PROJECT["license"],
        "keywords": PROJECT["keywords"],
    }


def environment(wheel: Path, folder: Path) -> dict[str, Any]:
    """The project that a host's uv installs: the wheel in the bundle, and one version of each package that it needs.

    Not a lock file: that would name the package index of whoever built the bundle.
    """
    document = tomllib.loads((HERE / "bundle/pyproject.toml").read_text(encoding="utf-8"))
    document["project"] |= {"version": VERSION, "requires-python": PROJECT["requires-python"]}
    document["tool"]["uv"]["sources"] = {NAME: {"path": wheel.name}}
    (folder / "pyproject.toml").write_text(tomli_w.dumps(document), encoding="utf-8")
    resolving = (find_uv_bin(), "pip", "compile", "--universal", "--no-header", "--no-annotate", "pyproject.toml")
    resolved = run(*resolving, cwd=folder).splitlines()
    document["tool"]["uv"]["constraint-dependencies"] = [line for line in resolved if "==" in line]
    return document


def image(target: Path, options: Sequence[str]) -> Path | str:
    """Saves the server's image as an archive for `docker load` or `podman load`; a reason if no engine answers."""
    engines = [name for name in ("docker", "podman") if answers(name)]
    if not engines:
        return "no image was built, as neither Docker nor Podman answers; start one, then: make dist"
    tag = f"{NAME}:{VERSION}"
    labels = {
        "io.modelcontextprotocol.server.name": read_json("server.json")["name"],
        "org.opencontainers.image.source": SOURCE,
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.licenses": PROJECT["license"],
    }
    given = [word for label, value in labels.items() for word in ("--label", f"{label}={value}")]
    run(engines[0], "build", "--quiet", "--file", HERE / "Dockerfile", "--tag", tag, *given, *options, ROOT)
    target.unlink(missing_ok=True)
    run(engines[0], "save", "--output", target, tag)
    return target


def answers(engine: str) -> bool:
    """Whether the command of an engine is there, and reaches it."""
    if shutil.which(engine) is None:
        return False
    return subprocess.run([engine, "version"], capture_output=True, check=False).returncode == 0


def run(*argv: str | Path, cwd: Path = ROOT) -> str:
    """Runs a command and returns what it printed; if it fails, ends this program with that."""
    try:
        done = subprocess.run([*map(str, argv)], cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise SystemExit(f"{argv[0]} is missing; install it") from error
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, argv))}: failed\n{done.stdout}{done.stderr}")
    return done.stdout


def read_json(name: str) -> dict[str, Any]:
    """One of the templates in this folder."""
    document: dict[str, Any] = json.loads((HERE / name).read_text(encoding="utf-8"))
    return document


def write_json(target: Path, document: dict[str, Any]) -> None:
    """Writes a document as people read it."""
    target.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
