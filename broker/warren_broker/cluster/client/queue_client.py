"""This node's side of one group: to its leader, and back from it.

1. Commands and messages gather in the uplink during a turn.  2. `pump` sends what is new to the
leader,
or keeps it while there is none.  3. A new leader is told everything unanswered again, then asked to
resume each consumer after the last delivery that came.  The machine applies each submission once
and names deliveries by consecutive ids, so neither step can lose or double anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from warren_broker.block.block import Block
from warren_broker.cluster.client.uplink import Sent, Uplink
from warren_broker.queue.commands import Delivery, Resume, Resumed

SEEK_INTERVAL_MS = 100
SEEK_INTERVAL_MS_MAX = 2_000


class Carrier(Protocol):
    """What a group client needs from the node."""

    def leader_of(self, group: int) -> str | None:
        """The node to send to, when one is known."""
        ...

    def submit(self, leader: str, group: int, sent: Sent) -> bool:
        """Hand a submission to the leader; False: it could not even be sent."""
        ...

    def touch(self, client: GroupClient) -> None:
        """Call `client.pump()` at this turn's end."""
        ...

    def seek(self, client: GroupClient) -> None:
        """Nobody is known to lead: find out, then touch."""
        ...

    def answered(self, client: GroupClient) -> None:
        """Bytes in flight went down."""
        ...


class Receiver(Protocol):
    """Where a consumer's messages go."""

    def deliver(self, consumer: int, delivery: Delivery, block: Block) -> None:
        """Messages delivery.first … delivery.last of this block."""
        ...

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        """It is a consumer no longer; timeout_ms: how long it might hold a message."""
        ...


@dataclass(slots=True)
class LocalConsumer:
    """A consumer of one of this node's clients.

    next_msg_id  everything below it has been handed to the receiver
    timeout_ms   how long it may hold a message; None: as long as it likes
    """

    consumer: int
    receiver: Receiver
    no_ack: bool
    next_msg_id: int = 0
    timeout_ms: int | None = None


class GroupClient:
    """The uplink of one group and this node's consumers of it."""

    __slots__ = (
        "carrier",
        "consumers",
        "group",
        "members",
        "seek_delay_ms",
        "seeking",
        "told",
        "touched",
        "uplink",
    )

    def __init__(
        self, carrier: Carrier, group: int, members: tuple[str, ...], uplink: Uplink
    ) -> None:
        self.carrier = carrier
        self.group = group
        self.members = members
        self.uplink = uplink
        self.consumers: dict[int, LocalConsumer] = {}
        self.touched = False
        self.seeking = False
        self.told: tuple[str, int] = ("", 0)
        self.seek_delay_ms = SEEK_INTERVAL_MS

    # ------------------------------------------------------------ towards the leader

    def publish(
        self, part: Any, size_bytes: int, on_reply: Callable[[Any, int], None] | None
    ) -> None:
        """Messages for this turn's block."""
        self.uplink.publish(part, size_bytes, on_reply)
        self._touch()

    def command(
        self,
        command: Any,
        on_reply: Callable[[Any, int], None] | None = None,
        ordered: bool = False,
    ) -> None:
        """A command for this turn's submission."""
        self.uplink.command(command, on_reply, ordered)
        self._touch()

    def with_block(
        self, command: Any, block: bytes | memoryview, on_reply: Callable[[Any, int], None] | None
    ) -> None:
        """A command with a block of its own."""
        self.uplink.with_block(command, block, on_reply)
        self._touch()

    @property
    def busy(self) -> bool:
        """Something waits for the leader, or is to come from it."""
        return bool(self.consumers or self.uplink.unanswered or self.uplink.waiting)

    def _touch(self) -> None:
        if not self.touched:
            self.touched = True
            self.carrier.touch(self)

    def pump(self) -> None:
        """Send what has not been sent."""
        self.touched = False
        leader = self.carrier.leader_of(self.group)
        if leader is None:
            self.carrier.seek(self)
            return
        for sent in self.uplink.take():
            if not self.carrier.submit(leader, self.group, sent):
                self.uplink.rewind(sent.seq)
                self.carrier.seek(self)
                return

    def leader_found(self, leader: str, term: int, reconnected: bool = False) -> None:
        """There is a leader, new or again within reach: tell it everything it may have missed.

        The news comes by several ways (Raft, an announcement); only the first counts.
        """
        if (leader, term) == self.told and not self.seeking and not reconnected:
            return
        self.told = (leader, term)
        self.seeking = False
        self.seek_delay_ms = SEEK_INTERVAL_MS
        self.uplink.rewind()
        for local in self.consumers.values():
            self.resume(local)
        self._touch()

    def resume(self, local: LocalConsumer) -> None:
        """Ask for what was delivered to this consumer and has not come.

        The answer comes before the deliveries: those that were taken back meanwhile never come.
        """

        def resumed(reply: Any, index: int) -> None:
            if isinstance(reply, Resumed):
                local.next_msg_id = max(local.next_msg_id, reply.first_msg_id)

        self.command(Resume(local.consumer, local.next_msg_id), resumed)

    # ------------------------------------------------------------ back from it

    def replied(
        self,
        seq: int,
        replies: Sequence[Any],
        index: int,
        expected_seq: int,
        retired: bool = False,
    ) -> None:
        """The answer to a submission; with expected_seq the leader misses what came before it.

        Raises RuntimeError when the queue says that this process's life is over.
        """
        if retired:
            # Only what a later process of this node has begun, or the node's removal, ends a life.
            raise RuntimeError(
                f"group {self.group} says that this process has been replaced by a later one of "
                "the same node, or that the node was removed; this process ends"
            )
        if expected_seq:
            self.uplink.rewind(expected_seq)
            self._touch()
        elif self.uplink.answered(seq, replies, index):
            self.carrier.answered(self)
            if self.uplink.waiting:
                self._touch()

    def delivered(self, consumer: int, delivery: Delivery, block: Block) -> None:
        """Messages for a consumer, possibly again, possibly with some missing before them.

        block  what delivery.first and delivery.last speak of
        """
        local = self.consumers.get(consumer)
        if local is None:
            return  # cancelled here before it left there; the session's end returns it
        first_id = delivery.first_msg_id
        end_id = first_id + delivery.last - delivery.first + 1
        if end_id <= local.next_msg_id:
            return
        # 1. The leader sends 0-9 and dies.  2. The next one applies a settle and sends 20-29.
        # 3. 10-19 come with the answer to our Resume, and then 20-29 again: wait for those.
        # Without acknowledgements nothing is held for a Resume: what is missing is gone.
        if first_id > local.next_msg_id and not local.no_ack:
            return
        seen = max(0, local.next_msg_id - first_id)
        if seen:
            delivery = Delivery(
                first_id + seen,
                delivery.index,
                delivery.first + seen,
                delivery.last,
                delivery.delivery_count,
                delivery.acquired_count,
            )
        local.next_msg_id = end_id
        local.receiver.deliver(consumer, delivery, block)

    def cancelled(self, consumer: int, reason: str) -> None:
        """The queue has given a consumer up."""
        local = self.consumers.get(consumer)
        if local is not None:
            local.receiver.cancelled(consumer, reason, local.timeout_ms)
