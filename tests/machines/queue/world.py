"""A queue to play with: submits commands, checks the state after each, and remembers what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warren_machines.queue.codec import encode_submission
from warren_machines.queue.commands import (
    AnyCommand,
    Delivery,
    Enqueue,
    StatReply,
    Submission,
    SubmissionReply,
    Timer,
)
from warren_machines.queue.effects import Deliver, SetTimer
from warren_machines.queue.filters.filters import FilterSearch
from warren_machines.queue.machine import QueueMachine
from warren_machines.queue.ready.service_order import may_be_served
from warren_machines.queue.state import QueueState
from warren_raft.machine import Applied, Meta
from warren_raft.versions import NEWEST
from warren_wire.amqp091 import properties
from warren_wire.block.block import encode
from warren_wire.queue_values.config import QueueConfig


def config(**settings: Any) -> QueueConfig:
    """A queue's settings, defaults but for what is given."""
    return QueueConfig(vhost="/", name="q", **settings)


def block(
    count: int = 1,
    size: int | Sequence[int] = 10,
    priorities: int | Sequence[int] = 4,
    ttls_ms: Sequence[int | None] | None = None,
) -> bytes:
    """A block of that many messages; bodies of `size` bytes, properties of none."""
    sizes = [size] * count if isinstance(size, int) else list(size)
    return encode([bytes(n) for n in sizes], [b""] * count, (b"", b"q"), priorities, ttls_ms)


Name = str | tuple[str, int] | None
"""x-deduplication-id; (x-producer, x-sequence); None: neither."""


def said(name: Name) -> bytes:
    """The properties of a message with that id."""
    if name is None:
        return b""
    if isinstance(name, str):
        return properties.encode(properties.Properties(headers={"x-deduplication-id": name}))
    producer, number = name
    headers = {"x-producer": producer, "x-sequence": number}
    return properties.encode(properties.Properties(headers=headers))


def named_block(
    names: Sequence[Name],
    priorities: int | Sequence[int] = 4,
    size: int | Sequence[int] = 5,
    ttls_ms: Sequence[int | None] | None = None,
) -> bytes:
    """A block of messages with these ids."""
    sizes = [size] * len(names) if isinstance(size, int) else size
    heads = [said(name) for name in names]
    return encode([bytes(n) for n in sizes], heads, (b"", b"q"), priorities, ttls_ms)


def check(state: QueueState) -> None:
    """Check every invariant, and that no consumer that could be served is forgotten."""
    state.check()
    for consumer in state.all_consumers():
        parked = consumer.filter is not None and consumer.key in consumer.filter.parked
        assert (consumer.queued or parked) == may_be_served(state, consumer), consumer
    # 1. A match is behind a message that is not judged yet.  2. A length limit drops that message,
    # or it expires, after the consumers were served.  3. The filter is behind, so the leader's next
    # answer serves them.
    behind = state.filters.behind()
    for one in state.filters if state.order.count else ():
        waits = one in behind or state.order.find(one, FilterSearch(0)) is None
        assert not one.parked or waits, (one.id, "parked with a match")
    if state.order.count:
        assert not state.service.lanes, "ready messages and waiting consumers"


class Queue:
    """One queue and a log of all that was submitted to it.

    now        the time of the next entry
    log        (Meta, data) of every entry, for replay
    effects    of the last entry
    frees      the bytes that the last entry said to have freed
    delivered  (uplink, consumer) to messages, as `messages` has them
    stride     how far one entry's index is from the next one's, as if others stood between them
    version    of the machine that submits
    checked    after each entry; a test that fills a queue may leave it to the next entry
    """

    def __init__(
        self, machine_config: QueueConfig | None = None, stride: int = 1, **settings: Any
    ) -> None:
        self.machine = QueueMachine(machine_config or config(**settings))
        self.state = self.machine.init()
        self.now = 1_000_000
        self.index = 0
        self.stride = stride
        self.checked = True
        self.version = NEWEST
        self.seqs: dict[int, int] = {}
        self.log: list[tuple[Meta, bytes]] = []
        self.effects: tuple[Any, ...] = ()
        self.frees = 0
        self.delivered: dict[tuple[int, int], list[tuple[int, int, int, int, int]]] = {}

    def apply(self, data: bytes) -> Applied:
        """One entry."""
        self.index += self.stride
        meta = Meta(self.index, 1, self.now)
        self.log.append((meta, data))
        applied = self.machine.apply(meta, data, self.state)
        if self.checked:
            check(self.state)
        self.effects, self.frees = applied.effects, applied.frees
        for effect in applied.effects:
            if isinstance(effect, Deliver):
                into = self.delivered.setdefault((effect.uplink, effect.consumer), [])
                for delivery in effect.deliveries:
                    into.extend(messages(delivery))
        return applied

    def submit(
        self,
        *commands: AnyCommand,
        data: bytes | None = None,
        uplink: int = 1,
        node: str = "n1",
        number: int = 0,
    ) -> SubmissionReply:
        """One submission of an uplink, the next in its sequence; number: of the node's life."""
        seq = self.seqs.get(uplink, 0) + 1
        self.seqs[uplink] = seq
        submission = Submission(uplink, node, seq, commands, self.version, incarnation=number)
        reply = self.apply(encode_submission(submission, data)).reply
        assert reply.uplink == uplink and reply.seq == seq and not reply.expected_seq, reply
        return reply

    def do(self, command: AnyCommand, data: bytes | None = None, uplink: int = 1) -> Any:
        """One command, its reply."""
        (reply,) = self.submit(command, data=data, uplink=uplink).replies
        return reply

    def put(self, count: int = 1, uplink: int = 9, **shape: Any) -> int:
        """Enqueue a block; its index."""
        self.do(Enqueue(), block(count, **shape), uplink)
        return self.index

    def tick(self, passed_ms: int) -> None:
        """Time passes; the timer fires if it is due."""
        self.now += passed_ms
        self.apply(encode_submission(Submission(0, "", 0, (Timer(),), NEWEST)))

    def got(self, consumer: int = 1, uplink: int = 1) -> list[tuple[int, int, int, int, int]]:
        """What was delivered to a consumer since this was asked last."""
        return self.delivered.pop((uplink, consumer), [])

    def names(self, consumer: int = 1, uplink: int = 1) -> list[tuple[int, int]]:
        """The same, but only (index, ordinal)."""
        return [(index, ordinal) for _, index, ordinal, _, _ in self.got(consumer, uplink)]

    def stat(self) -> StatReply:
        """Counts, without an entry."""
        from warren_machines.queue.whole_queue import counts

        return counts(self.state)

    def ready(self) -> list[tuple[int, int]]:
        """All ready messages in the order they would leave."""
        return [
            (index, ordinal)
            for index, first, last, _, _ in self.state.order
            for ordinal in range(first, last + 1)
        ]

    def timers(self) -> list[int]:
        """When timers were asked for by the last entry."""
        return [effect.at_ms for effect in self.effects if isinstance(effect, SetTimer)]

    def of(self, kind: type) -> list[Any]:
        """The last entry's effects of a kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def digest(self) -> bytes:
        """The state's canonical bytes."""
        return self.machine.snapshot(self.state)

    def reconfigured(self, **settings: Any) -> QueueConfig:
        """The settings with some changed."""
        import msgspec

        return msgspec.structs.replace(self.state.config, **settings)


def messages(delivery: Delivery) -> list[tuple[int, int, int, int, int]]:
    """(msg_id, index, ordinal, delivery count, acquired count) of each message of a delivery."""
    return [
        (
            delivery.first_msg_id + ordinal - delivery.first,
            delivery.index,
            ordinal,
            delivery.delivery_count,
            delivery.acquired_count,
        )
        for ordinal in range(delivery.first, delivery.last + 1)
    ]


__all__ = ["Name", "Queue", "block", "check", "config", "messages", "named_block", "said"]
