"""Installs libraries beside the prepared ones: `{environment}/bin/python -I beside.py UV LIBRARIES INDEX NAME...`

uv plans what to add to a model, an environment that has only the metadata of what code can import. If a plan replaces
something, and others do not fit that, the next plan has to find versions of those, too. Only what the last plan adds is
downloaded.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from contextlib import contextmanager

OPTIONS = ("--no-config", "--no-python-downloads", "--no-progress", "--color", "never")
CHANGE = re.compile(r"^ ([-+]) ([^=\s]+)(==\S+| @ \S.*)", re.MULTILINE)
"""A library that goes or comes: its name, and its version, or its address if it is not from the index."""
UNFIT = re.compile(r"^The package `(\S+)` requires `.*, but `\S+` is installed$", re.MULTILINE)
WHERE = re.compile(r"^Using .*\n")
SIZE = re.compile(r"\bsize = (\d+)")


def main(uv, libraries, index, *names):
    here, index = ("--python", sys.executable, *OPTIONS), ("--default-index", index)
    prepared = metadata_in(sysconfig.get_path("purelib"))
    added = plan(uv, index, names, prepared, {**prepared, **metadata_in(libraries)})
    again = [name for name, which in added.items() if name in prepared and which == f"=={version_of(prepared[name])}"]
    new = [f"{name}{which}" for name, which in added.items() if name not in again]
    if new:
        lock = run(
            uv, "pip", "compile", *here, *index, "--no-deps", "--format", "pylock.toml", "-", given="\n".join(new)
        )
        check_room(new, lock)
    if again:
        run(uv, "pip", "uninstall", *here, "--target", libraries, "--", *again)
    if new:
        # uv's cache stays in its default place, below HOME like the libraries: with hard links, files take space once.
        with scratch() as folder:
            with open(f"{folder}/pylock.toml", "w", encoding="utf-8") as file:
                file.write(lock)
            install = (uv, "pip", "install", *here, "--link-mode", "hardlink", "--target", libraries, "-r", file.name)
            sys.exit(subprocess.run(install).returncode)


def plan(uv, index, names, prepared, there):
    """What to add: by name, the version as `==1.0`, or the address as ` @ https://...`."""
    asked, wheels, why = [*names], [], ""
    with scratch() as folder:
        now = model(uv, f"{folder}/now", there, {})
        while True:
            changes = run(uv, "pip", "install", "--dry-run", *now, *index, *wheels, "--", *asked, why=why)
            gone, added = ({name: which for sign, name, which in CHANGE.findall(changes) if sign == by} for by in "-+")
            if not gone:
                return added
            kept = {name: path for name, path in there.items() if name not in gone}
            then = model(uv, f"{folder}/{len(asked)}", kept, added)
            check = subprocess.run((uv, "pip", "check", *then), capture_output=True, text=True)
            unfit = [name for name in dict.fromkeys(UNFIT.findall(check.stdout + check.stderr)) if name not in asked]
            if not unfit:
                return added
            asked += unfit
            # As in the environment itself, what has to fit is not built.
            wheels = [f"--only-binary={name}" for name in prepared]
            swaps = (f"{name} {old[2:]} with {added.get(name, '==nothing')[2:]}" for name, old in gone.items())
            why = f"it would replace {', '.join(swaps)}, and {', '.join(unfit)} would not fit; ask for another version"


@contextmanager
def scratch():
    """An empty folder; what an installation that was stopped has left in it is removed."""
    folder = os.path.join(os.environ["HOME"], ".beside")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def metadata_in(packages):
    """The folders of metadata among packages, by the normalized name of the library."""
    found = sorted(os.listdir(packages)) if os.path.isdir(packages) else []
    folders = [name for name in found if name.endswith(".dist-info") and os.path.isdir(os.path.join(packages, name))]
    return {re.sub(r"[-_.]+", "-", name.split("-")[0]).lower(): os.path.join(packages, name) for name in folders}


def version_of(metadata):
    """The version in the name of a folder of metadata."""
    return os.path.basename(metadata)[: -len(".dist-info")].partition("-")[2]


def model(uv, folder, there, added):
    """Makes an environment of metadata, and of names and versions of what is added; returns the options to use it."""
    run(uv, "venv", "--python", sys.executable, *OPTIONS, folder)
    packages = sysconfig.get_path("purelib", "posix_prefix", {"base": folder})
    for path in there.values():
        # A link to the whole folder would be ignored.
        os.mkdir(copy := os.path.join(packages, os.path.basename(path)))
        for entry in os.scandir(path):
            if entry.is_file():
                os.symlink(entry.path, os.path.join(copy, entry.name))
    for name, version in ((name, which[2:]) for name, which in added.items() if which.startswith("==")):
        os.mkdir(copy := os.path.join(packages, f"{name.replace('-', '_')}-{version}.dist-info"))
        with open(os.path.join(copy, "METADATA"), "w", encoding="utf-8") as file:
            file.write(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return ("--python", f"{folder}/bin/python", *OPTIONS)


def run(*command, given="", why=""):
    """What uv prints; if it fails, exits as it does, and says at last `why` it was run."""
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    if done.returncode:
        print(WHERE.sub("", done.stderr), why, sep="", file=sys.stderr)
        sys.exit(done.returncode)
    return done.stdout or done.stderr


def check_room(new, lock):
    """Exits if what would be downloaded does not fit below HOME before it is unpacked, as far as sizes are known."""
    # All wheels of a library are listed, and one of them is downloaded.
    wheels = [package.partition("\nwheels = ")[2] for package in lock.split("[[packages]]")]
    needed = sum(min(map(int, SIZE.findall(sizes)), default=0) for sizes in wheels)
    room = os.statvfs(os.environ["HOME"])
    free = room.f_bavail * room.f_frsize
    if needed <= free:
        return
    why = f"No space left on device: {needed >> 20} MiB would be downloaded, and {free >> 20} MiB are free"
    if any(name.startswith("nvidia-") for name in new):
        why += (
            "; much of it is for graphics cards: PyTorch publishes smaller wheels for CPUs in an index of its own, "
            "which the operator can set (languages.python.index in the profile)"
        )
    sys.exit(why)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(str(error))
