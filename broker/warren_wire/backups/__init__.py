"""A backup on disk: what is in it, and where it is kept."""
