"""The queue as a pure machine over ranges."""
