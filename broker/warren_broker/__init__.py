"""The broker: queues, exchanges, protocols and management over replicated groups."""

VERSION = "0.1.0"
"""Of the distribution; that of pyproject.toml is the same (tests/tidy/test_constants.py)."""
