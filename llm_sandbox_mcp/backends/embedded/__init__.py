"""The embedded backend: bubblewrap on this machine, no daemon, no image."""
