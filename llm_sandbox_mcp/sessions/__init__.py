"""What callers name: a lease of a sandbox with live interpreters, until nobody uses it any more."""
