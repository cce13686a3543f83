"""TOML files checked against models, and what to write instead of a mistake."""
