"""Replicated machines and routing: pure functions of their input."""
