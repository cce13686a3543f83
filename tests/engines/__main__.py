"""python -m tests.engines install|up|down|status|save: engines of the tests' own, with images of all languages."""

import argparse
import signal
import sys

from . import starting

parser = argparse.ArgumentParser(prog="python -m tests.engines", description="Engines of the tests' own.")
commands = parser.add_subparsers(required=True)
for command in (starting.install, starting.up, starting.down, starting.status, starting.save):
    commands.add_parser(command.__name__, help=command.__doc__).set_defaults(command=command)
commands.choices["up"].add_argument("engine", nargs="?", default="", choices=("", *starting.NAMES))
commands.choices["up"].add_argument("--every-language", action="store_true", help="on a cluster, too")
options = vars(parser.parse_args())
# Ended from outside it ends what it has begun, too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
sys.exit(options.pop("command")(**options))
