"""Keeps sandboxes ready before any request needs one."""
