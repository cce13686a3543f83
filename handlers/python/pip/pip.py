"""Stands for pip: code cannot install libraries without a network, and what it installs belongs to the session.

It has uv do the rest, or the image's own pip. Programs that import pip find its `main` wherever pip has had it.
"""

import os
import subprocess
import sys

__path__ = []  # a package, as pip is
for name in ("pip", "pip._internal", "pip._internal.cli", "pip._internal.cli.main"):
    sys.modules.setdefault(name, sys.modules[__name__])


def main(args=None):
    """Runs a command of pip, such as `["install", "numpy"]`, and returns its exit status."""
    args = sys.argv[1:] if args is None else list(args)
    uv, place = os.environ.get("SANDBOX_UV", ""), []
    if args[:1] == ["install"]:
        if os.environ.get("SANDBOX_NETWORK") == "none":
            print(f"pip: there is no network, so code cannot install: {' '.join(args[1:])}", file=sys.stderr)
            return 1
        place = ["--target", os.environ["SANDBOX_PYTHON_LIBRARIES"]]
    if not os.path.exists(uv):
        return subprocess.call([sys.executable, "-I", "-m", "pip", *args, *place])
    if args[:1] in (["--version"], ["-V"]):
        version = subprocess.run([uv, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[1]
        print(f"pip (uv {version}) from {__file__} (python {sys.version_info[0]}.{sys.version_info[1]})")
        return 0
    return subprocess.call([uv, "pip", *args, "--python", sys.executable, *place])


if __name__ == "__main__":
    sys.exit(main())
