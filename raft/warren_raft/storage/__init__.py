"""Storage of the logs: WAL, segments, snapshots, recovery."""
