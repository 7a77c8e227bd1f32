"""Blocks: immutable runs of messages in columns."""
