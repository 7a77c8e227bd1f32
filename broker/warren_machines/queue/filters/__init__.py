"""Filters of consumers: what matches, and is given to them."""
