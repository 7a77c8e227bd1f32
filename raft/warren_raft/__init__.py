"""Consensus for Warren: a replicated log that knows nothing of messages."""
