"""Interfaces under other products' names; nothing else in the package imports them."""
