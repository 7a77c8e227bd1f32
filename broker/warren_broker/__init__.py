"""The broker: queues, exchanges, protocols and management over replicated groups."""
