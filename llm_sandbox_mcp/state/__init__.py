"""Saved sessions: what a session is by value, how that becomes bytes, and where the bytes are kept."""
