"""Programs of one member each, of the Raft implementations that are measured alone."""
