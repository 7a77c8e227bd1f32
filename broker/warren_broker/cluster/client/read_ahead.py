"""What a queue gives a consumer beyond its prefetch, and the consumer's node keeps for it.

From a client's acknowledgement to the next delivery a turn passes until it is read, a commit, and a
turn until it is sent. A client that settles its whole prefetch in less time than that waits for the
queue. So its queue gives it more (`Credit`), which its node sends when the client has settled what
it was sent, in the turn in which it reads that; and what was never sent goes back uncounted.

How much is measured: what the client settles in the time from an acknowledgement's submission to
the reply. One that settles less than half of its prefetch in that time is given nothing ahead, so
that work is shared out among consumers as it is without this.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from warren_machines.queue.commands import Delivery, MsgId, part_of, rest_of
from warren_wire.block.block import Block

PREFETCH_MIN: Final = 50
"""Smaller windows are strict: with one, each message is to go to the next free consumer."""
AHEAD_MAX: Final = 8_000
"""Messages given ahead to one consumer, at most."""
AHEAD_BYTES_MAX: Final = 4 << 20
"""Their bytes, by the size of those that came last."""
COVERED: Final = 2
"""Times what the client settles in one turn-around that it is given in all."""
MSG_ID_MAX: Final = (1 << 63) - 1
"""No delivery has a higher number: a range up to it is all from its beginning on."""
AHEAD_LOOK_MS: Final = 200
"""What waits goes back if the client did not settle as much within this time."""
Run: TypeAlias = tuple[Delivery, Block]


@dataclass(slots=True, eq=False)
class ReadAhead:
    """What waits for one consumer, and how much more the queue gives it.

    limit        messages that the client may have unsettled: its prefetch
    sent         messages that it was sent and has not settled
    settled      messages that it has settled so far
    unsent       runs that wait, which ascend, and are above all that were sent
    waiting      their messages
    granted      what the queue was told last to give beyond the limit
    grants       how often it was told
    strict_from  deliveries from here on are within the limit: the queue gave nothing ahead
    recalled     all that was not sent is on its way back: nothing is sent until that is answered
    message_bytes   mean size of the messages that came last
    measures     an acknowledgement is under way of which the reply is awaited
    began_ms     when the last such one was submitted; from_ms: the one before
    between      messages settled between the two
    counted      `settled` when the last one was submitted
    looks        the timer runs that looks whether what waits moves
    seen         `settled` at the last look

    Invariants: while something waits, `looks`; and `sent` is not below the limit
    """

    limit: int
    sent: int = 0
    settled: int = 0
    unsent: deque[Run] = field(default_factory=deque)
    waiting: int = 0
    granted: int = 0
    grants: int = 0
    strict_from: MsgId = 0
    recalled: bool = False
    message_bytes: int = 1
    measures: bool = False
    began_ms: int = 0
    from_ms: int = 0
    between: int = 0
    counted: int = 0
    looks: bool = False
    seen: int = 0

    @property
    def used(self) -> bool:
        """Whether the consumer was ever given messages ahead."""
        return self.grants > 0

    def take(self, delivery: Delivery, block: Block, size_bytes: int) -> None:
        """Add what the queue has given, behind what waits."""
        count = delivery.last - delivery.first + 1
        self.message_bytes = max(1, size_bytes // count)
        self.unsent.append((delivery, block))
        self.waiting += count

    def next_run(self) -> Run | None:
        """Remove and return messages that the client may be sent now; None: there are none.

        1. The queue takes back what the consumer holds, as its node was unreachable for long, and
        gives it as much again.  2. Its client has not settled what it was sent.  So what the queue
        gives within the limit is sent, whatever is counted here.
        """
        if not self.unsent or self.recalled:
            return None
        delivery, block = self.unsent[0]
        count = delivery.last - delivery.first + 1
        room = self.limit - self.sent
        if delivery.first_msg_id >= self.strict_from:
            room = count
        if room <= 0:
            return None
        if count > room:
            self.unsent[0] = rest_of(delivery, room), block
            delivery, count = part_of(delivery, 0, room), room
        else:
            self.unsent.popleft()
        self.sent += count
        self.waiting -= count
        return delivery, block

    def take_back(self, end: MsgId = MSG_ID_MAX) -> int:
        """Remove what waits of the deliveries before `end`; return how many they are."""
        count = 0
        while self.unsent and self.unsent[0][0].first_msg_id < end:
            delivery, _ = self.unsent.popleft()
            count += delivery.last - delivery.first + 1
        self.waiting -= count
        return count

    def measure(self, now_ms: int) -> None:
        """Note that an acknowledgement is submitted."""
        self.measures = True
        self.from_ms, self.began_ms = self.began_ms, now_ms
        self.between, self.counted = self.settled - self.counted, self.settled

    def measured(self, took_ms: int) -> int:
        """Return how much the queue is to give ahead, as the reply has taken so long."""
        self.measures = False
        return self.wanted(self.between * max(1, took_ms) // max(1, self.began_ms - self.from_ms))

    def wanted(self, drained: int) -> int:
        """Return how much that is when the client settles so many in one turn-around."""
        ahead = min(
            COVERED * drained - self.limit, AHEAD_MAX, AHEAD_BYTES_MAX // self.message_bytes
        )
        return max(ahead, 0)

    def raises(self, ahead: int) -> bool:
        """Return whether the queue is to be told: of twice as much or more.

        It is told of less when what waits goes back. What one turn-around needs changes with each,
        and each time that it is told costs an entry.
        """
        return ahead > 2 * self.granted

    def stands(self) -> bool:
        """Return whether what waits would wait for longer than until the next look."""
        moved, self.seen = self.settled - self.seen, self.settled
        return moved < self.waiting
