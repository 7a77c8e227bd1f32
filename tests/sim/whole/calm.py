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
NARROW = ("UNANSWERED_MAX", "NODE_WINDOW_BYTES")
"""With these windows made small, one message at a time is on its way to or from a node."""


def is_narrow(profile: Profile) -> bool:
    """Return whether the world has such a window."""
    return any(name in NARROW for _, name, _ in profile.windows)


class Calm:
    """The time that one condition may take.

    1. A window holds one message, and a trip takes up to 120 ms each way.  2. 500 messages, a trip
    after the other, take two minutes by that alone (seed 71000212: 163 s).  So a world with such a
    window has two trips there and back for each message beside CALM_MS, one to be confirmed and one
    to be settled (seed 80033255), for as long as messages are settled, confirmed or given up: one
    that stands still has no more time than any other.

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

    def trips_ms(self) -> int:
        """Return what the trips of all messages take, one after the other; 0: no narrow window."""
        profile = self.world.profile
        if not is_narrow(profile):
            return 0
        trip_ms = 2 * (profile.latency_ms[1] + profile.sync_ms[1])
        ledger = self.world.ledger
        return 2 * trip_ms * sum(len(book.sent) for book in ledger.books.values())

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
        last_ms = self.limit_ms + max(CALM_MS, self.trips_ms())
        return now_ms >= last_ms or now_ms - self.moved_ms >= STALLED_MS
