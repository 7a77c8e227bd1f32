"""Files in a node's data directory by which other programs see how far it has started."""

from __future__ import annotations

LISTENING_FILE = "listening.json"
"""Its ports are open."""
READY_FILE = "ready.json"
"""It serves clients."""
