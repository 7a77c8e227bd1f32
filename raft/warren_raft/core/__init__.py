"""The Raft algorithm, without input or output."""
