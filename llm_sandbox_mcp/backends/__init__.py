"""Adapters to the engines that make sandboxes."""
