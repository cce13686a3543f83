"""python -m tests.engines install|up|down|status|save: Docker and Podman of the tests' own, with images of all languages."""

import argparse
import sys

from . import starting

parser = argparse.ArgumentParser(prog="python -m tests.engines", description="Docker and Podman of the tests' own.")
commands = parser.add_subparsers(required=True)
for command in (starting.install, starting.up, starting.down, starting.status, starting.save):
    commands.add_parser(command.__name__, help=command.__doc__).set_defaults(command=command)
sys.exit(parser.parse_args().command())
