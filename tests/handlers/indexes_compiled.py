"""Package indexes of compiled languages, small enough for a test to make: `pages` maps a path to the answer."""

import hashlib
import io
import lzma
import platform
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Maven:
    """A Maven repository; its jars are compiled when they are added."""

    pages: dict[str, bytes] = field(default_factory=dict)

    def add(self, coordinate: str, pom: str = "", sources: Mapping[str, str] | None = None) -> None:
        """Adds an artifact; `pom` is the content of its project file after the coordinate, `sources` its classes."""
        group, name, version = coordinate.split(":")
        folder = f"/{group.replace('.', '/')}/{name}"
        place = f"{folder}/{version}/{name}-{version}"
        own = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        self._put(f"{place}.pom", f"<project>{own}{pom}</project>".encode())
        self.pages[f"{folder}/maven-metadata.xml"] = (
            f"<metadata><versioning><release>{version}</release></versioning></metadata>".encode()
        )
        if sources is not None:
            self._put(f"{place}.jar", _jar(sources))

    def _put(self, path: str, content: bytes) -> None:
        self.pages[path] = content
        self.pages[f"{path}.sha1"] = hashlib.sha1(content).hexdigest().encode()

    @classmethod
    def small(cls) -> "Maven":
        """A library whose parent sets the version of another library that it needs."""
        index = cls()
        index.add(
            "org.example:words:1.5", sources={"org/example/Words": 'public static String hello() { return "hello"; }'}
        )
        managed = _dependency("org.example:words", "${words.version}")
        index.add(
            "org.example:parent:1",
            "<packaging>pom</packaging><properties><words.version>1.5</words.version></properties>"
            f"<dependencyManagement><dependencies>{managed}</dependencies></dependencyManagement>",
        )
        index.add(
            "org.example:greeting:1.0",
            "<parent><groupId>org.example</groupId><artifactId>parent</artifactId><version>1</version></parent>"
            f"<dependencies>{_dependency('org.example:words')}"
            f"{_dependency('org.example:absent', '1', '<scope>test</scope>')}"
            f"{_dependency('org.example:absent', '1', '<optional>true</optional>')}</dependencies>",
            {
                "org/example/Greeting": "public static String to(String name) {"
                ' try { return Class.forName("org.example.Words").getMethod("hello").invoke(null) + ", " + name; }'
                " catch (ReflectiveOperationException e) { throw new IllegalStateException(e); } }"
            },
        )
        index.add(
            "org.example:broken:1.0", f"<dependencies>{_dependency('org.example:absent', '3.1')}</dependencies>", {}
        )
        return index


def _dependency(key: str, version: str = "", more: str = "") -> str:
    group, name = key.split(":")
    tag = f"<version>{version}</version>" if version else ""
    return f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>{tag}{more}</dependency>"


def _jar(sources: Mapping[str, str]) -> bytes:
    archive = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(archive, "w") as jar:
        files = []
        for name, body in sources.items():
            package, _, simple = name.rpartition("/")
            files.append(Path(folder, f"{simple}.java"))
            files[-1].write_text(f"package {package.replace('/', '.')}; public class {simple} {{ {body} }}")
        if files:
            subprocess.run(["javac", "-d", folder, "--release", "11", *files], check=True, timeout=60)
        for made in Path(folder).rglob("*.class"):
            jar.write(made, str(made.relative_to(folder)))
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    return archive.getvalue()


@dataclass
class GoProxy:
    """A Go module proxy."""

    pages: dict[str, bytes] = field(default_factory=dict)

    def add(self, module: str, version: str, files: Mapping[str, str], needs: Mapping[str, str] | None = None) -> None:
        requires = "".join(f"require {name} {needed}\n" for name, needed in (needs or {}).items())
        definition = f"module {module}\n\ngo 1.19\n\n{requires}"
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as content:
            for name, text in {"go.mod": definition, **files}.items():
                content.writestr(f"{module}@{version}/{name}", text)
        place = f"/{module}/@v"
        self.pages[f"{place}/list"] = self.pages.get(f"{place}/list", b"") + f"{version}\n".encode()
        self.pages[f"{place}/{version}.info"] = f'{{"Version": "{version}", "Time": "2024-01-01T00:00:00Z"}}'.encode()
        self.pages[f"{place}/{version}.mod"] = definition.encode()
        self.pages[f"{place}/{version}.zip"] = archive.getvalue()

    @classmethod
    def small(cls) -> "GoProxy":
        """A module in two versions, one of whose packages needs another module."""
        index = cls()
        index.add("example.com/words", "v1.2.0", {"words.go": 'package words\n\nconst Hello = "hello"\n'})
        for version in ("v1.0.0", "v1.1.0"):
            code = f'package greeting\n\nconst Version = "{version}"\n'
            below = (
                'package polite\n\nimport "example.com/words"\n\n'
                'func To(name string) string { return words.Hello + ", " + name }\n'
            )
            index.add(
                "example.com/greeting",
                version,
                {"greeting.go": code, "polite/polite.go": below},
                {"example.com/words": "v1.2.0"},
            )
        return index


@dataclass
class Debian:
    """A Debian repository of this system's own release."""

    pages: dict[str, bytes] = field(default_factory=dict)
    _stanzas: list[str] = field(default_factory=list)

    def add(self, name: str, version: str, files: Mapping[str, str], depends: str = "") -> None:
        package = b"!<arch>\n"
        for member, content in (
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", _tar({"./control": f"Package: {name}\nVersion: {version}\nArchitecture: all\n"})),
            ("data.tar.gz", _tar({f"./{path}": text for path, text in files.items()})),
        ):
            head = f"{member:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
            package += head.encode() + content + b"\n" * (len(content) % 2)
        place = f"pool/{name}_{version}_all.deb"
        self.pages[f"/{place}"] = package
        self._stanzas.append(
            f"Package: {name}\nVersion: {version}\nDepends: {depends}\nFilename: {place}\n"
            f"SHA256: {hashlib.sha256(package).hexdigest()}\n"
        )
        self.pages[f"/dists/{_codename()}/main/binary-{_architecture()}/Packages.xz"] = lzma.compress(
            "\n".join(self._stanzas).encode()
        )

    @classmethod
    def small(cls) -> "Debian":
        """Headers in a separate folder, which a pkg-config file names, and which need headers of another package."""
        index = cls()
        index.add("libwords-dev", "2.0-1", {"usr/include/words.hpp": '#define HELLO "hello"\n'})
        index.add(
            "libgreeting-dev",
            "1.0-1",
            {
                "usr/include/greeting-1/greeting.hpp": '#include <words.hpp>\n#define GREETING HELLO ", "\n',
                "usr/share/pkgconfig/greeting.pc": "prefix=/usr\nCflags: -I${prefix}/include/greeting-1\n",
            },
            "libc6 (>= 2.14) | libc7, libwords-dev (= 2.0-1)",
        )
        index.add("libbroken-dev", "1.0-1", {}, "libabsent-dev")
        return index


def _tar(files: Mapping[str, str]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    return archive.getvalue()


def _codename() -> str:
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")


def _architecture() -> str:
    done = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
