"""Decisions of Raft, without input or output."""
