"""What the people of a world were told of each queue, and what must follow from it.

A message's body is its name; every queue (a Raft group: one declared again is another one) has its
own books.
"""

from __future__ import annotations

from sim.checkers import require
from sim.whole.profile import DEAD, QueuePlan
from warren_broker.queue.ranges import Run


class Book:
    """The books of one queue.

    sent       every body that was handed to a broker
    confirmed  those whose confirm came back
    refused    those that were refused
    seen       body -> index of the entry it was delivered, or claimed, from
    delivered  body -> the highest acquired count it was delivered with
    settled    body -> the acquired count of the delivery whose settle was answered
    buried     (index, ordinal) -> why the queue gave it up, and when
    rejected   bodies that a consumer has rejected
    claims     (reader, number) -> runs, as first answered
    claimed    body -> the newest claim it was in, its acquired count there
    released   claims that were given back, or may have been; expired: not by their reader
    swept      somebody has begun to purge or delete it: what was sent until it was done may be gone
    """

    def __init__(self, ledger: Ledger, group: int, plan: QueuePlan) -> None:
        self.ledger = ledger
        self.group = group
        self.plan = plan
        self.sent: dict[bytes, int | None] = {}
        self.confirmed: dict[bytes, bool] = {}
        self.refused: dict[bytes, bool] = {}
        self.seen: dict[bytes, int] = {}
        self.delivered: dict[bytes, int] = {}
        self.settled: dict[bytes, int] = {}
        self.rejected: dict[bytes, bool] = {}
        self.buried: dict[tuple[int, int], tuple[str, int]] = {}
        self.given_up: dict[bytes, str] = {}
        self.claims: dict[tuple[str, int], tuple[Run, ...]] = {}
        self.claimed: dict[bytes, tuple[tuple[str, int], int]] = {}
        self.released: dict[tuple[str, int], bool] = {}
        self.expired: dict[tuple[str, int], bool] = {}
        self.settled_claims: dict[tuple[str, int], bool] = {}
        self.claims_expire = ledger.claims_expire
        self.swept: dict[bytes, bool] = {}
        self.sweeping = 0
        self.doomed = False
        self.deliveries = 0

    # ------------------------------------------------------------ in

    def publish(self, bodies: list[bytes], ttl_ms: int | None = None) -> None:
        """They are on their way."""
        for body in bodies:
            require(body not in self.sent, "the simulation sends a message twice", body)
            self.sent[body] = ttl_ms
            if self.sweeping:
                self.swept[body] = True

    def confirm(self, bodies: list[bytes]) -> None:
        """From here on the cluster must never forget them."""
        for body in bodies:
            require(body not in self.confirmed, "confirmed twice", body)
            require(body not in self.refused, "confirmed after it was refused", body)
            self.confirmed[body] = True

    def refuse(self, bodies: list[bytes]) -> None:
        """They are not in the queue, and never will be."""
        for body in bodies:
            require(self.plan.refuses or self.doomed, "a publish was refused", self.group, body)
            require(body not in self.confirmed, "refused after it was confirmed", body)
            require(body not in self.seen, "refused after it was delivered", body)
            self.refused[body] = True

    def sweep(self) -> None:
        """Somebody begins to purge the queue."""
        self.sweeping += 1
        for body in self.sent:
            self.swept[body] = True

    def swept_now(self) -> None:
        """It is done."""
        self.sweeping -= 1

    # ------------------------------------------------------------ out

    def see(self, body: bytes, index: int) -> None:
        """It comes out of the queue, from that entry."""
        if self.plan.name == DEAD:
            self.ledger.dead_letter(body, index)
            return
        require(body in self.sent, "a message nobody sent", body)
        require(body not in self.refused, "a refused message comes out", body, index)
        known = self.seen.setdefault(body, index)
        require(known == index, "enqueued twice", self.group, body, known, index)

    def deliver(self, body: bytes, index: int, acquired: int) -> None:
        """A consumer gets it, and hears how often somebody had it before."""
        self.deliveries += 1
        before = self.seen.get(body)
        self.see(body, index)
        require(
            acquired > 0 or before is None or self.plan.name == DEAD,
            "delivered again as if for the first time",
            self.group,
            body,
        )
        require(
            body not in self.settled or self.plan.takes_back or self.plan.name == DEAD,
            "delivered after its settle was answered",
            self.group,
            body,
        )
        owner = self.claimed.get(body)
        require(owner is None or self.elsewhere(owner[0]), "delivered while claimed", body, owner)
        require(body not in self.given_up, "delivered after it was given up", body)
        self.delivered[body] = max(acquired, self.delivered.get(body, 0))

    def settle(self, body: bytes, acquired: int) -> None:
        """The settle of a consumer that still is one was answered.

        acquired  as its delivery said
        """
        self.settled[body] = acquired

    def bury(self, index: int, ordinal: int, body: bytes, reason: str, time_ms: int) -> None:
        """The queue gives it up, as some member applies an entry; others must do so alike."""
        if (index, ordinal) not in self.buried and "x-dead-letter-exchange" in self.plan.arguments:
            self.ledger.letters[body] = self.ledger.letters.get(body, 0) + 1
        known = self.buried.setdefault((index, ordinal), (reason, time_ms))
        require(known == (reason, time_ms), "given up differently", index, ordinal, known, reason)
        allowed = (*self.plan.forgets, "expired" if self.sent.get(body) is not None else "")
        require(
            reason in allowed or (reason == "rejected" and body in self.rejected),
            "given up for no reason",
            self.group,
            body,
            reason,
        )
        self.given_up[body] = reason

    def elsewhere(self, claim: tuple[str, int]) -> bool:
        """Whether what is in a claim may be somewhere else: it was given back, or expired."""
        if claim in self.settled_claims:
            return False
        if self.claims_expire:
            self.released[claim] = True
            self.expired[claim] = True
        return claim in self.released

    def settle_claim(self, claim: tuple[str, int]) -> None:
        """Its batch is committed, and nobody has, or will have, what was in it."""
        require(claim not in self.expired, "an expired claim was settled", self.group, claim)
        self.settled_claims[claim] = True

    def claim(
        self,
        reader: str,
        number: int,
        runs: tuple[Run, ...],
        messages: list[tuple[bytes, int, int]],
    ) -> None:
        """A claim was answered, perhaps late: what it took may have left the queue since.

        1. A claim is opened through a node; then nothing reaches that node for a while, and the
        reply is late.  2. The claim expires; its messages come back, a consumer gets them, its
        settle is answered.  3. The reply arrives, of a claim that is over.  So a message's acquired
        count decides, not the order of the replies: it is one higher each time that the message is
        taken (`Order` compares it with the log). Between two takes it must have been given back.
        Replayed by tests/sim/test_books.py

        messages  (body, index of its entry, acquired count)
        """
        name = (reader, number)
        known = self.claims.setdefault(name, runs)
        require(known == runs, "a claim changed", reader, number, known, runs)
        for body, index, acquired in messages:
            self.see(body, index)
            require(
                acquired < self.settled.get(body, acquired + 1) or self.plan.takes_back,
                "claimed after its settle was answered",
                body,
            )
            delivered = self.delivered.get(body, -1)
            require(acquired != delivered, "delivered and claimed at once", body, name)
            require(
                acquired > delivered or self.elsewhere(name), "delivered while claimed", body, name
            )
            owner, before = self.claimed.get(body, (name, acquired))
            if owner != name:
                older = owner if before < acquired else name
                given_back = before != acquired and self.elsewhere(older)
                require(given_back, "in two claims", body, owner, name)
            if acquired >= before:
                self.claimed[body] = (name, acquired)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """The queue is empty: everything confirmed has come out, or was given up with reason."""
        if self.plan.volatile or self.doomed:
            return
        lost = [
            body
            for body in self.confirmed
            if body not in self.seen and body not in self.given_up and body not in self.swept
        ]
        require(not lost or self.plan.no_ack, "confirmed and lost", self.group, lost[:5], len(lost))


class Ledger:
    """The books of every queue there ever was.

    letters  body -> how many queues have given it up by way of the dead letter exchange
    dead     body -> the entries it came out of, in the queue for dead letters
    """

    def __init__(self, claims_expire: bool) -> None:
        self.claims_expire = claims_expire
        self.books: dict[int, Book] = {}
        self.letters: dict[bytes, int] = {}
        self.dead: dict[bytes, dict[int, bool]] = {}

    def dead_letter(self, body: bytes, index: int) -> None:
        """It comes out of the queue for dead letters: at most once for each that gave it up."""
        entries = self.dead.setdefault(body, {})
        entries[index] = True
        count = self.letters.get(body, 0)
        require(len(entries) <= count, "more dead letters than deaths", body, entries, count)

    def of(self, group: int, plan: QueuePlan | None = None) -> Book:
        """The books of a group; begun when it is first heard of."""
        book = self.books.get(group)
        if book is None:
            assert plan is not None, group
            book = self.books[group] = Book(self, group, plan)
        return book

    @property
    def confirmed(self) -> int:
        """Messages whose confirm came back."""
        return sum(len(book.confirmed) for book in self.books.values())

    def close(self) -> None:
        """All of them."""
        for book in self.books.values():
            book.close()
