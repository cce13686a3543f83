"""Installs libraries with the image's own pip, or lists them: `python3 -I install.py [LIBRARIES [INDEX NAME...]]`.

Installs into a virtual environment next to the libraries folder, which is a link into that environment: only in an
environment does pip find what it installed before and replace another version completely. Packages next to the image's
pip count as installed.
"""

import os
import sys
import venv
from glob import glob

import pip

# pip reads its settings from files and from variables of the image: none of them apply here.
SETTINGS = {"PIP_CONFIG_FILE": os.devnull}
OPTIONS = ("--isolated", "--disable-pip-version-check", "--no-input", "--no-color")
# With a cache, each file would take space twice.
INSTALL = ("--no-cache-dir", "--no-compile", "--no-warn-script-location", "--progress-bar", "off")


def main(libraries="", index="", *names):
    if not index:
        place = ("--path", libraries) if libraries else ()
        run(sys.executable, "list", "--format", "freeze", *place)
    environment = f"{libraries}.venv"
    if not os.path.islink(libraries):
        venv.create(environment, symlinks=True)
        (packages,) = glob(f"{environment}/lib/python3*/site-packages")
        os.symlink(packages, libraries)  # last: after an interruption, all of this is done again
    run(f"{environment}/bin/python3", "install", "--index-url", index, *INSTALL, "--", *names)


def run(python, command, *options):
    """Replaces this process with pip: the image's pip, run by the given Python."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    os.execve(python, (python, "-I", pip.__path__[0], command, *OPTIONS, *options), {**settings, **SETTINGS})


if __name__ == "__main__":
    main(*sys.argv[1:])
