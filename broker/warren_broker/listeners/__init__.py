"""Listeners and their sockets."""
