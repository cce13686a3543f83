"""python -m tests.engines install|up|down|status|save: separate engines for the tests, with images of all languages."""

import argparse
import signal
import sys

from . import starting

parser = argparse.ArgumentParser(prog="python -m tests.engines", description="Separate engines for the tests.")
commands = parser.add_subparsers(required=True)
for command in (starting.install, starting.up, starting.down, starting.status, starting.save):
    commands.add_parser(command.__name__, help=command.__doc__).set_defaults(command=command)
commands.choices["up"].add_argument("engine", nargs="?", default="", choices=("", *starting.NAMES))
commands.choices["up"].add_argument(
    "--every-language", action="store_true", help="give a cluster the images of all languages"
)
options = vars(parser.parse_args())
# On SIGTERM it also ends what it has started.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
sys.exit(options.pop("command")(**options))
