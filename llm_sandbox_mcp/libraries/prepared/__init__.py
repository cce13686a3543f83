"""Libraries that are prepared once for all sandboxes."""
