"""Upgrades of real nodes: from this release to the next one, and back."""
