"""The states that a message of a queue can be in, as clients name them."""

from __future__ import annotations

from typing import Final

READY: Final = "ready"
HELD: Final = "held"
DELAYED: Final = "delayed"
CLAIMED: Final = "claimed"
DEAD: Final = "dead"
IN_JOB: Final = "kept"
STATES: Final = (READY, HELD, DELAYED, CLAIMED, DEAD, IN_JOB)
"""Ready; delivered to a consumer; waiting for its next delivery; in a claim; a dead letter that is
not yet where it goes; taken by a job, or kept for its undo. Their places in this tuple are their
numbers (`queue.places.ViewRow`)."""
