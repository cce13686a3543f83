"""Sessions: each is a lease of a sandbox with live interpreters, until it is closed or unused for too long."""
