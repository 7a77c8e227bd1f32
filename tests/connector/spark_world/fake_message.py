"""A message of the fake broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Message:
    """A message: its place, and how often it was handed out."""

    index: int
    ordinal: int
    priority: int
    delivery_count: int = 0
    acquired_count: int = 0
