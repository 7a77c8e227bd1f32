"""How long a world may take, after its misfortunes, to keep everything that was promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.whole.profile import Profile
    from sim.whole.world import World

CALM_MS = 120_000
"""In so much time without misfortunes everything that was promised is kept.

Nodes with a window of one submission need 80 s (seed 1170).
"""
STALLED_MS = 30_000
"""A world that needs longer settles, confirms or gives up something at least so often."""
NARROW_CALMS = 9
NARROW = ("UNANSWERED_MAX", "NODE_WINDOW_BYTES")
"""With these windows made small, one message at a time is on its way to or from a node."""


def is_narrow(profile: Profile) -> bool:
    """Return whether the world has such a window."""
    return any(name in NARROW for _, name, _ in profile.windows)


class Calm:
    """The time that one condition may take.

    1. A window holds one message, and a trip takes up to 120 ms each way.  2. A message is
    published, perhaps refused and published again, and settled, and consumers come and go beside
    it, a trip after the other: two seconds for each message (seeds 71000212, 80033255, and
    80035775: 513 s).  So a world with such a window has NARROW_CALMS times CALM_MS more, for as
    long as messages are settled, confirmed or given up: one that stands still has no more time than
    any other.

    Any world has twice CALM_MS in this way: in seed 80018933, with trips as long, 500 messages were
    sent again for 80 s, and their queue was drained at 15 a second until 131 s.
    Replayed by tests/sim/test_blameless.py
    """

    def __init__(self, world: World) -> None:
        self.world = world
        now_ms = world.agenda.now_ms
        self.limit_ms = now_ms + CALM_MS
        self.moved_ms = now_ms
        self.done = self.count()

    def count(self) -> int:
        """Return how much came to its end; it only increases, and has a bound."""
        ledger = self.world.ledger
        ended = len(ledger.came) + len(ledger.dropped) + len(ledger.forwarded)
        return ended + sum(
            len(book.confirmed) + len(book.settled) + len(book.given_up) + len(book.settled_claims)
            for book in ledger.books.values()
        )

    def is_over(self) -> bool:
        """Return whether there is no time left."""
        now_ms = self.world.agenda.now_ms
        done = self.count()
        if done > self.done:
            self.done, self.moved_ms = done, now_ms
        if now_ms < self.limit_ms:
            return False
        more = NARROW_CALMS if is_narrow(self.world.profile) else 1
        return now_ms >= self.limit_ms + more * CALM_MS or now_ms - self.moved_ms >= STALLED_MS
