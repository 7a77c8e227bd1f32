"""Values and protocols: what client, connector and node have in common."""

VERSION = "0.1.0"
"""Of the distribution; that of pyproject.toml is the same (tests/tidy/test_constants.py)."""
