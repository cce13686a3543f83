"""Sandboxes that are ready before anybody asks for one."""
