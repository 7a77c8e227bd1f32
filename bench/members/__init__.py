"""One-member programs of the Raft implementations that are measured without a broker."""
