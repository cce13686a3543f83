"""Task groups, and waiting for descriptors."""
