"""Files that leave or enter sandboxes: stored artifacts, images, and files on this machine."""
