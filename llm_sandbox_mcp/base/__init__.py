"""Values and errors that every part of the package uses."""
