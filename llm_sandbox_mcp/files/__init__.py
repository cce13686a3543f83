"""Files that leave sandboxes or enter them: kept artifacts, pictures, and those of this machine."""
