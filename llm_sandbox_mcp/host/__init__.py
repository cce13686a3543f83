"""This machine: folders, our own programs, and the audit file."""
