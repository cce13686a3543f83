"""The `/etc` that a sandbox sees: small, made for it, and the same for every user of the machine.

The host's own `/etc` shows accounts, password hashes, keys and the names of everything installed. Only those files are
copied that programs below /usr need, or that have the same contents on every host.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .connecting import RESOLVER

_WRITTEN = {
    "passwd": (
        "root:x:0:0:root:/:/usr/sbin/nologin\n"
        "sandbox:x:1000:1000:sandbox:/home:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
    ),
    "group": "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
    # The files of a mounted folder belong to somebody else, whose repositories git does not read unless it is told to.
    "gitconfig": "[safe]\n\tdirectory = *\n",
    "hostname": "sandbox\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback sandbox\n",
    "nsswitch.conf": "".join(
        f"{database}: files\n"
        for database in ("passwd", "group", "shadow", "hosts", "networks", "protocols", "services", "ethers", "rpc")
    ),
    # Empty, not missing: without the file some resolvers fail to start instead of finding no server.
    "resolv.conf": "",
}

RESOLVING = {
    "resolv.conf": f"nameserver {RESOLVER}\n",
    "nsswitch.conf": _WRITTEN["nsswitch.conf"].replace("hosts: files\n", "hosts: files dns\n"),
}
"""The contents of these files in a sandbox with an open network."""

_FILES = (
    # Without the cache, libraries in directories that only ld.so.conf names are not found.
    "ld.so.cache",
    "ld.so.conf",
    # Often links; their targets are copied instead, because the targets may not be mounted.
    "localtime",
    "timezone",
    "os-release",
    "mime.types",
    "protocols",
    "services",
    "ssl/openssl.cnf",
    # Java's own trust store.
    "ssl/certs/java/cacerts",
    # Debian's Chromium, which kaleido starts, needs one file of this folder. Others may contain keys of the operator.
    "chromium.d/default-flags",
)

_TREES = (
    "ld.so.conf.d",
    # Debian's /usr/bin/awk, java and R's libraries are links through this folder.
    "alternatives",
    "fonts",
    # On Debian, the files that the JVM and R read at their start are here, with links to them in /usr/lib.
    "java-*-openjdk",
    "R",
)

_BUNDLES = (
    "ssl/certs/ca-certificates.crt",  # Debian, Arch, Alpine
    "pki/tls/certs/ca-bundle.crt",  # Fedora
    "ssl/ca-bundle.pem",  # openSUSE
    "ssl/cert.pem",
)
"""Where distributions keep the CA certificates; each has them in one file, and the first file found is used."""

_BUNDLE = "ssl/certs/ca-certificates.crt"
_BUNDLE_LINKS = {
    "ssl/cert.pem": "certs/ca-certificates.crt",
    "pki/tls/cert.pem": "../../ssl/certs/ca-certificates.crt",
    "pki/tls/certs/ca-bundle.crt": "../../../ssl/certs/ca-certificates.crt",
}
"""The paths that OpenSSL opens on Debian and on Fedora, as links to the bundle, wherever that was copied from."""

_SHARED = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")
"""The host folders that a sandbox sees; on most hosts the last four are links into the first."""


def write_etc(target: Path, source: Path = Path("/etc")) -> None:
    """Fills `target`, which must be empty or missing, with an `/etc` that any user may read.

    Copies only files from `source` that every user of the host may read, and skips missing files. Raises
    FileExistsError if a file exists already, and other OSErrors unchanged.
    """
    etc = _Etc(str(target), str(source))
    for name, text in _WRITTEN.items():
        etc.write(name, text.encode())
    for name in _FILES:
        etc.copy(name)
    if any(etc.copy(bundle, _BUNDLE) for bundle in _BUNDLES):
        for name, leads_to in _BUNDLE_LINKS.items():
            etc.link(name, leads_to)
    for pattern in _TREES:
        for tree in sorted(source.glob(pattern)):
            etc.copy_tree(tree.name)


class _Etc:
    """A directory that is being filled. Modes are set explicitly, because changing the umask would affect the whole
    process."""

    def __init__(self, target: str, source: str) -> None:
        self._target = target
        self._source = source
        self._made: set[str] = set()
        self._directory("")

    def write(self, name: str, content: bytes) -> None:
        self._directory(os.path.dirname(name))
        descriptor = os.open(f"{self._target}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, 0o644)

    def copy(self, name: str, to: str | None = None) -> bool:
        """Copies the file that a name leads to; False if it does not exist or not everyone may read it."""
        try:
            # O_NONBLOCK: opening must not wait if the name is a FIFO.
            descriptor = os.open(f"{self._source}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISREG(mode) and mode & stat.S_IROTH):
                return False
            with open(descriptor, "rb", closefd=False) as file:
                self.write(to or name, file.read())
        finally:
            os.close(descriptor)
        return True

    def link(self, name: str, leads_to: str) -> None:
        self._directory(os.path.dirname(name))
        os.symlink(leads_to, f"{self._target}/{name}")

    def copy_tree(self, name: str) -> None:
        """Copies a directory with its links as links.

        A link is kept if it leads into a folder that the sandbox sees too, whether or not the target exists: it then
        behaves as on the host, and its target need not be checked. Any other link would only reveal the host's other
        directories. Links to manual pages, five of six in Debian's alternatives, are not kept: each link costs a write
        to the disk.
        """
        try:
            entries = list(os.scandir(f"{self._source}/{name}"))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return
        self._directory(name)
        for entry in entries:
            inner = f"{name}/{entry.name}"
            if entry.is_symlink():
                leads_to = os.readlink(entry.path)
                if self._stays(inner, leads_to):
                    self.link(inner, leads_to)
            elif entry.is_dir():
                self.copy_tree(inner)
            else:
                self.copy(inner)

    def _stays(self, name: str, leads_to: str) -> bool:
        end = os.path.normpath(os.path.join("/etc", os.path.dirname(name), leads_to))
        return "/man/" not in end and end.startswith((*_SHARED, f"/etc/{name.split('/')[0]}/"))

    def _directory(self, name: str) -> None:
        if name in self._made:
            return
        if name:
            self._directory(os.path.dirname(name))
        path = f"{self._target}/{name}" if name else self._target
        if name or not os.path.isdir(path):
            os.mkdir(path)
        os.chmod(path, 0o755)
        self._made.add(name)
