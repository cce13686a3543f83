"""Starts the server of this bundle; a host passes the folders that its person chose as separate words."""

import argparse
import sys

from llm_sandbox_mcp.__main__ import main

parser = argparse.ArgumentParser()
parser.add_argument("--read", nargs="*", default=[], metavar="FOLDER")
parser.add_argument("--write", nargs="*", default=[], metavar="FOLDER")
chosen = parser.parse_args()
folders = [*chosen.read, *(f"{folder}:rw" for folder in chosen.write)]
sys.argv[1:] = ["serve", *(f"--folder={folder}" for folder in folders)]
sys.exit(main())
