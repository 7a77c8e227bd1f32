"""Queues, exchanges, protocols and management over replicated groups."""
