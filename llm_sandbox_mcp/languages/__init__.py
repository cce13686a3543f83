"""Languages: their handler folders, and their paths in a sandbox."""
