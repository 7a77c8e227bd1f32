"""The answers that clients received about each queue, and what must follow from them.

A message's body is its name; every queue (a Raft group: one declared again is another one) has its
own book.
"""

from __future__ import annotations

from sim.checkers import require
from sim.whole.profile import DEAD, DUE, STORE, QueuePlan
from warren_machines.queue.ready.ranges import Run

Taker = tuple[str | int, int] | str
"""What took a message: a process and its consumer, a reader and its claim, or the relay."""


class Book:
    """The books of one queue.

    sent       every body that was passed to a broker; in TARGET, of dead letters that it has taken
    confirmed  those that were confirmed
    refused    those that were refused
    seen       body -> index of the entry it was delivered, or claimed, from
    delivered  body -> the highest acquired count it was delivered with
    takers     (body, index of its entry, acquired count) -> the one that took it then
    settled    body -> the acquired count of the delivery whose settle was answered
    carried    body -> the acquired count with which a relay got it, for which it is kept
    annotated  body -> the acquired count with which a consumer has annotated it, as was answered
    buried     (index, ordinal) -> why the queue dead-lettered or dropped it, and when
    given_up   body -> how often it was taken before that
    rejected   bodies that a consumer has rejected
    claims     (reader, number) -> runs, as first answered
    claimed    body -> the newest claim it was in, its acquired count there
    released   claims that were released, or may have been; expired: not by their reader
    registers  reader -> the name of each request of its drivers to register, once per request
    started    driver -> how often its reader had registered when it did last
    forgotten  readers that may be forgotten, and start again
    swept      a purge or deletion has begun: what was sent until it was done may be lost
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
        self.takers: dict[tuple[bytes, int, int], Taker] = {}
        self.settled: dict[bytes, int] = {}
        self.registers: dict[str, list[str]] = {}
        self.started: dict[int, int] = {}
        self.forgotten: set[str] = set()
        self.carried: dict[bytes, int] = {}
        self.annotated: dict[bytes, int] = {}
        self.rejected: dict[bytes, bool] = {}
        self.buried: dict[tuple[int, int], tuple[str, int]] = {}
        self.given_up: dict[bytes, int] = {}
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
        """Record messages that are being published."""
        for body in bodies:
            require(body not in self.sent, "the simulation sends a message twice", body)
            self.sent[body] = ttl_ms
            if self.sweeping:
                self.swept[body] = True

    def take_letter(self, body: bytes) -> None:
        """Record that TARGET has taken a dead letter; it may come again."""
        self.sent[body] = None
        if self.sweeping:
            self.swept[body] = True

    def confirm(self, bodies: list[bytes]) -> None:
        """Record confirms: from now on the cluster must never lose the messages."""
        for body in bodies:
            require(body not in self.confirmed or self.plan.once, "confirmed twice", body)
            require(body not in self.refused, "confirmed after it was refused", body)
            self.confirmed[body] = True

    def refuse(self, bodies: list[bytes]) -> None:
        """Record refusals: the messages must never be in the queue."""
        for body in bodies:
            require(self.plan.refuses or self.doomed, "a publish was refused", self.group, body)
            require(body not in self.confirmed, "refused after it was confirmed", body)
            require(body not in self.seen, "refused after it was delivered", body)
            self.refused[body] = True

    def sweep(self) -> None:
        """Record the beginning of a purge."""
        self.sweeping += 1
        for body in self.sent:
            self.swept[body] = True

    def swept_now(self) -> None:
        """Record the end of a purge."""
        self.sweeping -= 1

    # ------------------------------------------------------------ out

    def see(self, body: bytes, index: int) -> None:
        """Check a message that leaves the queue, from that entry."""
        if self.plan.name in DUE:
            require(body in self.ledger.delays, "a message that was never delayed", body)
            self.ledger.came[self.plan.name, body] = True
            return
        if self.plan.fed:
            self.ledger.dead_letter(body, index, self.plan)
            return
        require(body in self.sent, "a message that was never sent", body)
        require(body not in self.refused, "a refused message comes out", body, index)
        known = self.seen.setdefault(body, index)
        require(known == index, "enqueued twice", self.group, body, known, index)

    def take(self, body: bytes, index: int, acquired: int, taker: Taker) -> None:
        """Check that nothing else took the message when it had been acquired so often."""
        known = self.takers.setdefault((body, index, acquired), taker)
        require(known == taker, "taken by two at once", self.group, body, acquired, known, taker)

    def deliver(self, body: bytes, index: int, acquired: int, taker: Taker) -> None:
        """Check a delivery, with its count of earlier acquisitions; perhaps a late one.

        1. A message is delivered to a consumer on another node, and is slow on the wire.  2. Its
        time is up; another consumer gets it, and settles it; or it is dead-lettered.  3. The first
        delivery arrives. So the counts decide, not the order of arrival, as in `claim`; and that
        the log gave it to this consumer with this count, see `Order.received`.
        Replayed by tests/sim/test_books.py
        """
        self.deliveries += 1
        before = self.seen.get(body)
        self.see(body, index)
        owner = self.claimed.get(body)
        newest = max(self.delivered.get(body, -1), -1 if owner is None else owner[1])
        require(
            acquired > 0 or before is None or newest > 0 or self.plan.fed,
            "delivered again as if for the first time",
            self.group,
            body,
        )
        require(
            acquired < self.settled.get(body, acquired + 1)
            or self.plan.takes_back
            or self.plan.fed,
            "delivered after its settle was answered",
            self.group,
            body,
        )
        require(
            owner is None or acquired < owner[1] or self.elsewhere(owner[0]),
            "delivered while claimed",
            body,
            owner,
        )
        require(
            acquired < self.given_up.get(body, acquired + 1),
            "delivered after it was given up",
            body,
        )
        self.take(body, index, acquired, taker)
        with_relay = self.carried.get(body, acquired)
        require(acquired <= with_relay, "given to another while a relay has it", body, acquired)
        self.delivered[body] = max(acquired, self.delivered.get(body, 0))

    def carry(self, body: bytes, index: int, acquired: int) -> None:
        """Check a delivery to a relay: from now on nothing else may have the message.

        It may reach a session late, when another one has taken over and got the message.
        """
        if acquired < self.carried.get(body, -1):
            self.see(body, index)
            return
        self.carried[body] = acquired
        self.deliver(body, index, acquired, "relay")

    def settle(self, body: bytes, acquired: int) -> None:
        """The settle of a consumer that still is one was answered.

        acquired  as its delivery said
        """
        self.settled[body] = acquired

    def annotate(self, body: bytes, acquired: int) -> None:
        """Record that the queue has annotated a message with its acquired count."""
        self.annotated[body] = max(acquired, self.annotated.get(body, 0))

    def check_annotation(self, body: bytes, noted: int | None, acquired: int) -> None:
        """Check that a delivery has the newest annotation that was answered, or a newer one.

        noted     the acquired count that is its annotation; None: it has none
        acquired  its own: one that was on its way before the annotation was made has it not
        """
        known = self.annotated.get(body, acquired)
        if known < acquired and not self.plan.fed and not self.plan.takes_back:
            require(
                noted is not None and noted >= known,
                "an annotation is lost",
                self.group,
                body,
                known,
                noted,
            )

    def bury(
        self, index: int, ordinal: int, body: bytes, reason: str, time_ms: int, takes: int
    ) -> None:
        """Record that a member dead-letters or drops a message; all members must agree.

        takes  how often the message was taken before
        """
        if self.plan.keeps:
            self.ledger.kept[body] = True
        elif (
            index,
            ordinal,
        ) not in self.buried and "x-dead-letter-exchange" in self.plan.arguments:
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
        self.given_up[body] = takes

    def elsewhere(self, claim: tuple[str, int]) -> bool:
        """Return whether a claim's messages may be elsewhere: it was released or has expired."""
        if claim in self.settled_claims:
            return False
        if self.claims_expire:
            self.released[claim] = True
            self.expired[claim] = True
        return claim in self.released

    def settle_claim(self, claim: tuple[str, int]) -> None:
        """Check a settled claim: no other client has, or gets, its messages."""
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
            with_relay = self.carried.get(body, acquired)
            require(acquired <= with_relay, "claimed while a relay has it", body, acquired)
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
            self.take(body, index, acquired, name)
            if acquired >= before:
                self.claimed[body] = (name, acquired)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Check the empty queue: every confirmed message was delivered, or dropped for a reason."""
        if self.plan.volatile or self.doomed or self.plan.name == STORE:
            return
        lost = [
            body
            for body in self.confirmed
            if body not in self.seen and body not in self.given_up and body not in self.swept
        ]
        require(not lost or self.plan.no_ack, "confirmed and lost", self.group, lost[:5], len(lost))


class Ledger:
    """The books of all queues that ever existed.

    letters  body -> the number of queues that have dead-lettered it
    dead     body -> the entries it came out of, in the queue for dead letters
    kept     bodies that died where letters are kept; forwarded: those that came out of their target
    delays   body -> the delay it was published with
    came     (queue, body) of what came out of a queue that gets what is due
    dropped  bodies that an operator has dropped while they were delayed
    """

    def __init__(self, claims_expire: bool) -> None:
        self.claims_expire = claims_expire
        self.books: dict[int, Book] = {}
        self.letters: dict[bytes, int] = {}
        self.dead: dict[bytes, dict[int, bool]] = {}
        self.kept: dict[bytes, bool] = {}
        self.forwarded: dict[bytes, bool] = {}
        self.delays: dict[bytes, int] = {}
        self.came: dict[tuple[str, bytes], bool] = {}
        self.dropped: dict[bytes, bool] = {}

    def dead_letter(self, body: bytes, index: int, plan: QueuePlan) -> None:
        """Check a dead letter: at most one for each queue that dead-lettered it.

        One that was kept may come again.
        """
        if plan.name != DEAD:
            require(body in self.kept, "a letter of what did not die", body, index)
            self.forwarded[body] = True
            return
        entries = self.dead.setdefault(body, {})
        entries[index] = True
        count = self.letters.get(body, 0)
        require(len(entries) <= count, "more dead letters than deaths", body, entries, count)

    def of(self, group: int, plan: QueuePlan | None = None) -> Book:
        """Return the book of a group, created at its first use."""
        book = self.books.get(group)
        if book is None:
            assert plan is not None, group
            book = self.books[group] = Book(self, group, plan)
        return book

    @property
    def confirmed(self) -> int:
        """Return the number of confirmed messages."""
        return sum(len(book.confirmed) for book in self.books.values())

    def vanished(self, body: bytes) -> bool:
        """Return whether a dead letter may have left with its queue, or with its target."""
        return any(
            body in book.swept or (book.doomed and body in book.sent)
            for book in self.books.values()
            if book.plan.letters
        )

    def close(self) -> None:
        """Close all books."""
        for book in self.books.values():
            book.close()
        lost = [one for one in self.kept if one not in self.forwarded and not self.vanished(one)]
        require(not lost, "a dead letter is lost", lost[:5], len(lost))
        waited = [book for book in self.books.values() if book.plan.name == STORE]
        missing = [
            (name, body)
            for book in waited
            for body in book.confirmed
            for name in DUE
            if (name, body) not in self.came and body not in self.dropped
        ]
        require(not missing, "a delayed message is lost", missing[:5], len(missing))
