"""Finds what grows with the number of runs: several clients use a server in every way while it is measured."""
