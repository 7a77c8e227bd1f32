"""Measurements against peers, on the machine at hand."""
