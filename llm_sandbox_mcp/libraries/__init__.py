"""Libraries, prepared once for all sandboxes, or installed into one session through a gateway to one index."""
