"""The image that all others are built on, made with debootstrap, so that no image registry is needed.

It equals `debian:bookworm-slim`, with Python and this machine's certificate authorities added.
"""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import docker

from .daemon import Unusable
from .packages import mirror
from .places import CACHE

NAME = "llm-sandbox-mcp-base"
PROGRAMS = {"debootstrap": "debootstrap"}
RECIPE = "llm-sandbox-mcp.recipe"
"""Label with the hash of everything that an image was made from."""

_SUITE = "bookworm"
_AUTHORITIES = Path("usr/local/share/ca-certificates")
# As in Debian's own images: no manuals, no kept package archives, and no disk sync after each file.
_FILES = {
    "etc/dpkg/dpkg.cfg.d/docker": "force-unsafe-io\n",
    "etc/dpkg/dpkg.cfg.d/slim": (
        "path-exclude /usr/share/man/*\npath-exclude /usr/share/info/*\npath-exclude /usr/share/locale/*\n"
        "path-exclude /usr/share/doc/*\npath-include /usr/share/doc/*/copyright\n"
    ),
    "etc/apt/apt.conf.d/docker": (
        'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\nAcquire::Languages "none";\n'
        'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };\n'
    ),
}
_MANUALS = ("usr/share/man", "usr/share/info", "usr/share/locale", "var/cache/apt/archives", "var/lib/apt/lists")


def ensure(client: docker.DockerClient) -> str:
    """The id of the base image, which is made when it is missing or out of date."""
    recipe = _recipe()
    for image in client.images.list(NAME):
        if image.labels.get(RECIPE) == recipe:
            return str(image.id)
    print(f"base: debootstrap {_SUITE}, about a minute", flush=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="base-") as folder:
        root = Path(folder)
        _bootstrap(root)
        _slim(root)
        print("base: docker import", flush=True)
        with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as archive:
            assert archive.stdout
            client.api.import_image_from_stream(
                archive.stdout, repository=NAME, tag="latest", changes=[f"LABEL {RECIPE}={recipe}"]
            )
    return str(client.images.get(NAME).id)


def _bootstrap(root: Path) -> None:
    command = ["debootstrap", "--variant=minbase", "--include=python3,ca-certificates", _SUITE, str(root)]
    done = subprocess.run([*command, *mirror()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        (CACHE / "debootstrap.log").write_text(done.stdout)
        raise Unusable(f"debootstrap failed: {done.stdout.strip().splitlines()[-1]}; see {CACHE / 'debootstrap.log'}")
    shutil.copytree("/" / _AUTHORITIES, root / _AUTHORITIES, dirs_exist_ok=True)
    subprocess.run(["chroot", root, "update-ca-certificates"], check=True, capture_output=True)


def _slim(root: Path) -> None:
    for name, text in _FILES.items():
        (root / name).write_text(text)
    for name in _MANUALS:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir()
    (root / "var/cache/apt/archives/partial").mkdir()


def _recipe() -> str:
    authorities = sorted(path.read_text() for path in ("/" / _AUTHORITIES).rglob("*.crt"))
    return hashlib.sha256(repr((_SUITE, _FILES, _MANUALS, mirror(), authorities)).encode()).hexdigest()
