"""Installations into one session: a gateway to one package index, and what may be installed."""
