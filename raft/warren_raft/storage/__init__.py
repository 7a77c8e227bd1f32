"""An entry on its way to and from the disk."""
