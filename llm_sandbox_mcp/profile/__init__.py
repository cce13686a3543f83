"""The profile: what an operator decides, in one TOML file."""
