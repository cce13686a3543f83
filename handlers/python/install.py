"""Installs libraries with the image's own pip, or lists them: `python3 -I install.py [LIBRARIES [INDEX NAME...]]`.

They go into an environment beside the libraries, which are a link into it: only in an environment does pip find what it
installed before, and replace another version as a whole. What the image's Python has counts as installed.
"""

import os
import sys
import venv
from glob import glob

import pip

# What pip would read for its settings: files, and variables of the image.
SETTINGS = {"PIP_CONFIG_FILE": os.devnull}
OPTIONS = ("--isolated", "--disable-pip-version-check", "--no-input", "--no-color")
# A cache would take the room of each file twice.
INSTALL = ("--no-cache-dir", "--no-compile", "--no-warn-script-location", "--progress-bar", "off")


def main(libraries="", index="", *names):
    if not index:
        place = ("--path", libraries) if libraries else ()
        run(sys.executable, "list", "--format", "freeze", *place)
    environment = f"{libraries}.venv"
    if not os.path.islink(libraries):
        venv.create(environment, symlinks=True)
        (packages,) = glob(f"{environment}/lib/python3*/site-packages")
        os.symlink(packages, libraries)  # last, so that what was given up half way is made again
    run(f"{environment}/bin/python3", "install", "--index-url", index, *INSTALL, "--", *names)


def run(python, command, *options):
    """Becomes pip, which is the image's whatever its Python."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    os.execve(python, (python, "-I", pip.__path__[0], command, *OPTIONS, *options), {**settings, **SETTINGS})


if __name__ == "__main__":
    main(*sys.argv[1:])
