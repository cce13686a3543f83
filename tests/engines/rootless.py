"""The Podman service of an ordinary user who exists only inside it: this machine's users and groups do not change."""

import os
import shutil
from pathlib import Path

from .daemon import Daemon
from .places import CACHE, RUNTIME
from .podman import CONFIGURATION

PROGRAM = "newuidmap"
"""Without it an ordinary user has only one uid, but images need more."""

RUNTIME_DIR = RUNTIME / "rootless"
"""The user's XDG_RUNTIME_DIR."""

_HOME = CACHE / "rootless"
_ETC = CACHE / "rootless-etc"
UID, SUBUIDS = 190_000, range(200_000_000, 200_065_536)
_RANGE = f"{SUBUIDS.start}:{len(SUBUIDS)}"
_NAME = "sandbox-rootless"

# In separate namespaces: our files are overlaid on this machine's /etc, the user can reach folders that only root can
# reach elsewhere, and processes that rootless Podman leaves running end with the first process.
_SERVE = """\
mount -t overlay overlay -o "lowerdir=$1:/etc" /etc && mount --bind "$2" /srv && mount --bind "$3" /mnt || exit
setpriv --reuid "$4" --regid "$4" --clear-groups env -i PATH="$PATH" HOME=/srv XDG_RUNTIME_DIR=/mnt \
  CONTAINERS_CONF=/srv/containers.conf CONTAINERS_REGISTRIES_CONF=/srv/registries.conf \
  podman --storage-driver=overlay system service --time=0 &
wait
"""


def daemon() -> Daemon:
    """The service, not started; only SIGKILL ends all of its processes."""
    spaces = ["unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
    places = [str(_ETC), str(_HOME), str(RUNTIME_DIR), str(UID)]
    return Daemon(
        "rootless-podman",
        (*spaces, "sh", "-c", _SERVE, "sh", *places),
        place=RUNTIME_DIR / "podman/podman.sock",
    )


def prepare() -> None:
    """Makes the user, and removes state of an earlier service whose processes are gone."""
    shutil.rmtree(RUNTIME_DIR, ignore_errors=True)
    _ETC.mkdir(exist_ok=True)
    for name, line in {
        "passwd": f"{_NAME}:x:{UID}:{UID}::/srv:/bin/sh",
        "group": f"{_NAME}:x:{UID}:",
        "subuid": f"{_NAME}:{_RANGE}",
        "subgid": f"{_NAME}:{_RANGE}",
    }.items():
        original = Path("/etc", name)
        (_ETC / name).write_text(f"{original.read_text() if original.exists() else ''}{line}\n")
    for folder in (_HOME, RUNTIME_DIR):
        folder.mkdir(exist_ok=True, mode=0o700)
        os.chown(folder, UID, UID)
    for name, text in (("containers.conf", CONFIGURATION), ("registries.conf", "")):
        (_HOME / name).write_text(text)
