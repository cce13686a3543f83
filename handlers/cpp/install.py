"""install.py INDEX PACKAGE[=VERSION]...: unpacks Debian packages and their dependencies into the session's libraries.

Nothing is installed: the packages' scripts are not run, and packages that the system has already are used from there.
"""

import hashlib
import io
import lzma
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

LIBRARIES = Path(os.environ["SANDBOX_LIBRARIES"])
ROOT = LIBRARIES / "root"
INSTALLED = LIBRARIES / "installed"
SYSTEM = Path("/etc/os-release")
KEYS = ("Package", "Version", "Depends", "Pre-Depends", "Provides", "Filename", "SHA256")

Package = Mapping[str, str]


class Failure(Exception):
    """Why the packages cannot be installed; the message is for the caller."""


class Repository:
    """The packages of this system's release in the index."""

    def __init__(self, index: str) -> None:
        self._index = index.rstrip("/")
        self._packages: dict[str, Package] = {}
        self._providers: dict[str, str] = {}
        for place in _lists():
            with self._open(place) as compressed, lzma.open(compressed, "rt", encoding="utf-8") as lines:
                for package in _stanzas(lines):
                    self._packages.setdefault(package["Package"], package)
                    for name in _names(package.get("Provides", "")):
                        self._providers.setdefault(name[0], package["Package"])

    def find(self, name: str) -> Package | None:
        return self._packages.get(name) or self._packages.get(self._providers.get(name, ""))

    def fetch(self, package: Package, target: Path) -> None:
        with self._open(package["Filename"]) as source:
            content = source.read()
        if hashlib.sha256(content).hexdigest() != package["SHA256"]:
            raise Failure(f"{package['Filename']} is not the file that the index describes: its checksum differs")
        target.write_bytes(content)

    def _open(self, path: str) -> BinaryIO:
        try:
            with urllib.request.urlopen(f"{self._index}/{path}", timeout=120) as answer:
                return io.BytesIO(answer.read())
        except urllib.error.HTTPError as error:
            raise Failure(f"the index has no {path} ({error.code})") from error
        except OSError as error:
            raise Failure(f"the index cannot be reached: {error}") from error


def _lists() -> list[str]:
    """The paths of the package lists for this system in an index."""
    system = dict(re.findall(r'^(\w+)="?([^"\n]*)', SYSTEM.read_text(), re.MULTILINE))
    if "debian" not in (system.get("ID"), *system.get("ID_LIKE", "").split()):
        name = system.get("PRETTY_NAME", "this system")
        raise Failure(f"{name} is not of Debian's family, and cannot use its packages: use an image that is")
    machine = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    # Ubuntu and its derivatives have most libraries outside of main.
    ubuntu = system.get("UBUNTU_CODENAME")
    return [
        f"dists/{ubuntu or system.get('VERSION_CODENAME', 'stable')}/{part}/binary-{machine.stdout.strip()}/Packages.xz"
        for part in (("main", "universe") if ubuntu else ("main",))
    ]


def resolve(repository: Repository, wanted: Iterable[str], have: Iterable[str]) -> list[Package]:
    """The wanted packages and all their dependencies, except those in `have` and on the system."""
    chosen: dict[str, Package] = {}
    for word in wanted:
        name, _, version = word.partition("=")
        package = repository.find(name)
        if package is None:
            raise Failure(f"there is no package {name}")
        if version not in ("", package["Version"]):
            raise Failure(f"{name} is available only in version {package['Version']}, not {version}")
        chosen[package["Package"]] = package
    waiting = list(chosen.values())
    skipped = set(have)
    while waiting:
        package = waiting.pop()
        for alternatives in _names(f"{package.get('Pre-Depends', '')},{package.get('Depends', '')}"):
            if any(name in chosen or name in skipped or _on_system(name) for name in alternatives):
                continue
            needed = next(filter(None, map(repository.find, alternatives)), None)
            if needed is None:
                raise Failure(f"{package['Package']} needs {' or '.join(alternatives)}, which is not in the index")
            if needed["Package"] not in chosen:
                chosen[needed["Package"]] = needed
                waiting.append(needed)
    return list(chosen.values())


def write_flags() -> None:
    """Writes the compiler's flags for the unpacked packages: include folders, and libraries, linked only if used."""
    flags = []
    for include in [ROOT / "usr/include", *_include_folders()]:
        flags += ["-isystem", str(include)]
    flags += ["-Wl,--as-needed", "-Wl,--disable-new-dtags"]
    for folder in _library_folders():
        flags += [f"-L{folder}", f"-Wl,-rpath,{folder}", f"-Wl,-rpath-link,{folder}"]
        flags += [f"-l:{name}" for name in filter(None, map(_linkable, sorted(folder.glob("lib*.so"))))]
    (LIBRARIES / "flags").write_text("\n".join(flags) + "\n")


def link() -> None:
    """Links headers and libraries into one folder each, which `[env]` names for compilers that code calls itself."""
    for target, folders in ((LIBRARIES / "include", _include_folders()), (LIBRARIES / "lib", _library_folders())):
        target.mkdir(exist_ok=True)
        for found in (entry for folder in folders for entry in folder.iterdir()):
            if not os.path.lexists(target / found.name):
                (target / found.name).symlink_to(found if found.exists() else _on_this_system(found))


def _include_folders() -> list[Path]:
    """The folders of headers other than /usr/include."""
    return [*ROOT.glob("usr/include/*-linux-gnu*"), *sorted(_configured())]


def _library_folders() -> list[Path]:
    return [*ROOT.glob("usr/lib"), *ROOT.glob("usr/lib/*-linux-gnu*"), *ROOT.glob("lib/*-linux-gnu*")]


def _linkable(library: Path) -> str:
    """The name for the linker to find this library."""
    if library.exists():
        return library.name
    leads_to = _on_this_system(library)
    return leads_to.name if leads_to.exists() else ""


def _on_this_system(link: Path) -> Path:
    """What a development package links to, if it is a library that the system has already."""
    return Path("/", link.relative_to(ROOT)).with_name(link.readlink().name)


def _configured() -> Iterator[Path]:
    """The include folders that packages name in their files for pkg-config."""
    for file in ROOT.glob("usr/**/pkgconfig/*.pc"):
        text = file.read_text(errors="replace")
        variables = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
        for flags in re.findall(r"^Cflags:(.*)$", text, re.MULTILINE):
            for folder in re.findall(r"-I\s*(/usr/include/\S+)", _filled(flags, variables)):
                if (place := ROOT / folder.lstrip("/")).is_dir():
                    yield place


def _filled(text: str, variables: Mapping[str, str]) -> str:
    for _ in range(5):
        text = re.sub(r"\$\{(\w+)\}", lambda name: variables.get(name[1], ""), text)
    return text


def _stanzas(lines: Iterable[str]) -> Iterator[Package]:
    package: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if colon and key in KEYS:
            package[key] = value.strip()
        elif line == "\n" and package:
            yield package
            package = {}
    if package:
        yield package


def _names(relations: str) -> list[list[str]]:
    """Reads `a (>= 1) | b:any, c` as [[a, b], [c]]."""
    return [
        [re.split(r"[\s(:\[]", name.strip(), maxsplit=1)[0] for name in part.split("|")]
        for part in relations.split(",")
        if part.strip()
    ]


def _on_system(name: str) -> bool:
    # The list of installed packages is not visible in here, but every package installs its copyright file.
    return Path("/usr/share/doc", name).exists()


def _installed() -> dict[str, str]:
    lines = INSTALLED.read_text().splitlines() if INSTALLED.exists() else []
    return dict(line.split(" ", 1) for line in lines)


def _is_there(word: str, have: Mapping[str, str]) -> bool:
    name, _, version = word.partition("=")
    return name in have and version in ("", have[name])


def main(index: str, wanted: list[str]) -> None:
    ROOT.mkdir(parents=True, exist_ok=True)
    have = _installed()
    if not (wanted := [word for word in wanted if not _is_there(word, have)]):
        return
    archive = LIBRARIES / "package.deb"
    repository = Repository(index)
    for package in resolve(repository, wanted, have):
        if have.get(package["Package"]) == package["Version"]:
            continue
        repository.fetch(package, archive)
        subprocess.run(["dpkg-deb", "-x", archive, ROOT], check=True)
        have[package["Package"]] = package["Version"]
    archive.unlink(missing_ok=True)
    write_flags()
    link()
    INSTALLED.write_text("".join(f"{name} {version}\n" for name, version in sorted(have.items())))


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except (Failure, subprocess.CalledProcessError) as error:
        sys.exit(f"install.py: {error}")
    except OSError as error:
        sys.exit(f"install.py: cannot write the libraries: {error}")
