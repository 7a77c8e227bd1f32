"""Values and protocols: what client, connector and node have in common."""

VERSION = "0.2.0"
"""Of the distribution: pyproject.toml reads it here."""
