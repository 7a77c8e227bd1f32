"""What the people of a world were told, and what must follow from it.

A message's body is its name: `publisher/life of its node/number`. Nothing here is returned after a
timeout and no claim is released, so a message that was settled, or claimed, is gone for good.
"""

from __future__ import annotations

from sim.checkers import require


class Ledger:
    """Books over every message.

    sent       every body that was handed to a broker
    confirmed  those whose confirm came back
    seen       body -> index of the entry it was delivered, or claimed, from
    settled    bodies whose settle was answered
    claims     (reader, number) -> runs, as first answered
    claimed    body -> the claim it is in
    """

    def __init__(self) -> None:
        self.sent: dict[bytes, bool] = {}
        self.confirmed: dict[bytes, bool] = {}
        self.seen: dict[bytes, int] = {}
        self.settled: dict[bytes, bool] = {}
        self.claims: dict[tuple[str, int], tuple[tuple[int, int, int], ...]] = {}
        self.claimed: dict[bytes, tuple[str, int]] = {}
        self.deliveries = 0

    def publish(self, bodies: list[bytes]) -> None:
        """They are on their way."""
        for body in bodies:
            require(body not in self.sent, "the simulation sends a message twice", body)
            self.sent[body] = True

    def confirm(self, bodies: list[bytes]) -> None:
        """From here on the cluster must never forget them."""
        for body in bodies:
            require(body not in self.confirmed, "confirmed twice", body)
            self.confirmed[body] = True

    def see(self, body: bytes, index: int) -> None:
        """It comes out of the queue, from that entry."""
        require(body in self.sent, "a message nobody sent", body)
        known = self.seen.setdefault(body, index)
        require(known == index, "enqueued twice", body, known, index)

    def deliver(self, body: bytes, index: int) -> None:
        """A consumer gets it."""
        self.deliveries += 1
        self.see(body, index)
        require(body not in self.settled, "delivered after its settle was answered", body)
        require(body not in self.claimed, "delivered while claimed", body, self.claimed.get(body))

    def settle(self, bodies: list[bytes]) -> None:
        """The settle of a consumer that still is one was answered."""
        for body in bodies:
            self.settled[body] = True

    def claim(
        self,
        reader: str,
        number: int,
        runs: tuple[tuple[int, int, int], ...],
        bodies: list[tuple[bytes, int]],
    ) -> None:
        """A claim was answered."""
        known = self.claims.setdefault((reader, number), runs)
        require(known == runs, "a claim changed", reader, number, known, runs)
        for body, index in bodies:
            self.see(body, index)
            require(body not in self.settled, "claimed after its settle was answered", body)
            owner = self.claimed.setdefault(body, (reader, number))
            require(owner == (reader, number), "in two claims", body, owner, (reader, number))

    def close(self) -> None:
        """The queue is empty: everything confirmed has come out."""
        lost = [body for body in self.confirmed if body not in self.seen]
        require(not lost, "confirmed and lost", lost[:5], len(lost))
