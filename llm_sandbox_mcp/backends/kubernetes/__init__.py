"""Sandboxes that are pods of a cluster."""
