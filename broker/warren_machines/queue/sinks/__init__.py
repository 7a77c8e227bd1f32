"""Sinks: blocks that are staged, and published as batches."""
