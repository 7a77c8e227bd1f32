"""Shovels: processes that move messages from a queue to another queue or broker."""
