"""Installs libraries with the image's own pip, or lists them: `python3 -I install.py [LIBRARIES [INDEX NAME...]]`.

Installs into a virtual environment next to the libraries folder, which is a link into that environment: only in an
environment does pip find what it installed before and replace another version completely. Packages next to the image's
pip count as installed. What they need constrains what is installed: otherwise they would no longer work.
"""

import os
import sys
import venv
from glob import glob
from importlib.metadata import distributions

import pip
from pip._vendor.packaging.requirements import Requirement

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
        venv.create(environment, symlinks=True, system_site_packages=True)
        needs = {constraint(need) for found in distributions() for need in found.requires or ()}
        with open(f"{environment}/constraints.txt", "w", encoding="utf-8") as file:
            file.write("\n".join(sorted(needs)))
        (packages,) = glob(f"{environment}/lib/python3*/site-packages")
        os.symlink(packages, libraries)  # last: after an interruption, all of this is done again
    os.dup2(2, 1)  # pip says which versions are in conflict on its standard output
    needs = ("--constraint", f"{environment}/constraints.txt")
    run(f"{environment}/bin/python3", "install", "--index-url", index, *INSTALL, *needs, "--", *names)


def constraint(need):
    """What a requirement of a library in the image allows; empty if it is for an extra, or if pip could not read it."""
    try:
        wanted = Requirement(need)
    except ValueError:
        return ""
    if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
        return ""
    return f"{wanted.name}{wanted.specifier}"


def run(python, command, *options):
    """Replaces this process with pip: the image's pip, run by the given Python."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    os.execve(python, (python, "-I", pip.__path__[0], command, *OPTIONS, *options), {**settings, **SETTINGS})


if __name__ == "__main__":
    main(*sys.argv[1:])
