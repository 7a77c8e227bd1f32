"""Relays: the names of messages that links and shovels have in hands."""
