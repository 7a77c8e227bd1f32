"""Counters of messages and of events."""
