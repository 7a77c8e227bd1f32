"""This node's side of one group: submissions to its leader, replies and deliveries from it.

1. Commands and messages gather in the uplink during a pass of the loop.  2. `pump` sends what is
new to the leader, or keeps it while there is none.  3. A new leader is sent everything unanswered
again, then asked to resume each consumer after the last delivery received.  The machine applies
each submission once and numbers deliveries consecutively, so neither step loses or doubles
anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from warren_broker.block.block import BLOCK_MESSAGES_MAX, Block
from warren_broker.queue.commands import Cancel, Delivery, MsgIds, Resume, Resumed
from warren_broker.queue.delivery_parts import rest_of

SEEK_INTERVAL_MS = 100
SEEK_INTERVAL_MS_MAX = 2_000

OnReply: TypeAlias = Callable[[Any, int], None]
"""Called once with the command's reply and the raft index at which it was applied."""
Encode: TypeAlias = Callable[[int, tuple[Any, ...], "bytes | memoryview | None", int], bytes]
"""Encodes (seq, commands, block, highest seq answered) as an entry's data."""
Assemble: TypeAlias = Callable[[Sequence[Any]], "bytes | memoryview"]
"""Assembles the parts of one pass into one block."""

SUBMISSION_BLOCK_BYTES = 1024 * 1024
"""A block that has reached this size is closed; one message may be larger."""
COMMANDS_MAX = 4096
"""Commands in one submission to a queue."""
UNANSWERED_MAX = 256
"""Unanswered submissions to a queue; it remembers the replies of at least that many."""


@dataclass(slots=True)
class _Open:
    """The submission that is being filled."""

    parts: list[Any] = field(default_factory=list)
    part_replies: list[OnReply | None] = field(default_factory=list)
    part_bytes: int = 0
    part_messages: int = 0
    commands: list[Any] = field(default_factory=list)
    replies: list[OnReply | None] = field(default_factory=list)
    ordered: bool = False  # holds a command that a later publish must not overtake


@dataclass(slots=True)
class Sent:
    """A submission without an answer.

    times   how often it was sent since the leader was found
    behind  how many answers since then said that the leader lacks an earlier one; at most `times`
            as long as each is from this leadership
    """

    seq: int
    data: bytes
    enqueue_replies: tuple[OnReply | None, ...]
    replies: tuple[OnReply | None, ...]
    times: int = 0
    behind: int = 0


@dataclass(slots=True)
class InFlight:
    """Bytes of unanswered submissions, over all uplinks of a node."""

    size_bytes: int = 0


class Uplink:
    """Numbers submissions, keeps them until answered, and returns those to be sent.

    parked  the queue is unreachable: unanswered submissions are not counted as bytes in flight

    Invariants: unanswered seqs are consecutive; sent_seq <= the last of them; bytes_unanswered is
    their sum, and part of the node's bytes in flight unless it is parked.
    """

    __slots__ = (
        "_assemble",
        "_commands_max",
        "_encode",
        "_enqueue",
        "_in_flight",
        "_open",
        "_unanswered_max",
        "bytes_unanswered",
        "next_seq",
        "parked",
        "sent_seq",
        "unanswered",
    )

    def __init__(
        self,
        encode: Encode,
        assemble: Assemble,
        enqueue: Any,
        in_flight: InFlight,
        *,
        commands_max: int | None = None,
        unanswered_max: int | None = None,
    ) -> None:
        """Start without submissions; None: COMMANDS_MAX, UNANSWERED_MAX.

        Their product must not exceed the number of replies that the machine remembers: beyond
        that a repeat only tells that it was applied.
        """
        self._commands_max = COMMANDS_MAX if commands_max is None else commands_max
        self._unanswered_max = UNANSWERED_MAX if unanswered_max is None else unanswered_max
        self._in_flight = in_flight
        self._encode = encode
        self._assemble = assemble
        self._enqueue = enqueue
        self._open = _Open()
        self.unanswered: deque[Sent] = deque()
        self.bytes_unanswered = 0
        self.next_seq = 1
        self.sent_seq = 0
        self.parked = False

    def publish(self, part: Any, size_bytes: int, on_reply: OnReply | None) -> None:
        """Add messages to this pass's block; `part` is an argument of `assemble`, with a length."""
        pending = self._open
        full = (
            pending.part_bytes >= SUBMISSION_BLOCK_BYTES
            or pending.part_messages >= BLOCK_MESSAGES_MAX
            or (size_bytes >= SUBMISSION_BLOCK_BYTES and pending.part_messages)
        )
        if pending.ordered or full:
            self._close()
            pending = self._open
        pending.parts.append(part)
        pending.part_bytes += size_bytes
        pending.part_messages += len(part)
        pending.part_replies.append(on_reply)

    def command(self, command: Any, on_reply: OnReply | None = None, ordered: bool = False) -> None:
        """Add a command; `ordered`: nothing published later may be applied before it."""
        pending = self._open
        pending.commands.append(command)
        pending.replies.append(on_reply)
        pending.ordered |= ordered
        if len(pending.commands) >= self._commands_max:
            self._close()

    def with_block(self, command: Any, block: bytes | memoryview, on_reply: OnReply | None) -> None:
        """Add a command with a ready-made block, in a submission of its own."""
        self._close()
        self._append((command,), block, (on_reply,), ())

    def _close(self) -> None:
        pending = self._open
        if not pending.parts and not pending.commands:
            return
        self._open = _Open()
        block = None
        commands = tuple(pending.commands)
        if pending.parts:
            block = self._assemble(pending.parts)
            commands = (self._enqueue, *commands)
        self._append(commands, block, tuple(pending.part_replies), tuple(pending.replies))

    def _append(
        self,
        commands: tuple[Any, ...],
        block: bytes | memoryview | None,
        enqueue_replies: tuple[OnReply | None, ...],
        replies: tuple[OnReply | None, ...],
    ) -> None:
        seq = self.next_seq
        self.next_seq += 1
        data = self._encode(seq, commands, block, seq - 1 - len(self.unanswered))
        self.unanswered.append(Sent(seq, data, enqueue_replies, replies))
        self._count(len(data))

    def _count(self, size_bytes: int) -> None:
        self.bytes_unanswered += size_bytes
        if not self.parked:
            self._in_flight.size_bytes += size_bytes

    @property
    def waited_for_bytes(self) -> int:
        """Bytes that publishers wait for: none while parked."""
        return 0 if self.parked else self.size_bytes

    def park(self, reply: Any) -> None:
        """Stop counting an unreachable queue's submissions; answer its publishers with `reply`.

        Unanswered submissions remain: their numbers are given out, and they may have been applied.
        They are sent again later. Commands keep their callbacks: `cluster.client.queues` answers
        their callers.
        """
        if not self.parked:
            self.parked = True
            self._in_flight.size_bytes -= self.bytes_unanswered
        told: list[OnReply | None] = []
        for sent in self.unanswered:
            if sent.enqueue_replies != (None,):
                told += sent.enqueue_replies
                sent.enqueue_replies = (None,) if sent.enqueue_replies else ()
        told += self._open.part_replies
        self._open.part_replies = [None] * len(self._open.part_replies)
        for on_reply in told:
            if on_reply is not None:
                on_reply(reply, 0)

    def unpark(self) -> None:
        """Count the submissions again: the queue is reachable."""
        if self.parked:
            self.parked = False
            self._in_flight.size_bytes += self.bytes_unanswered

    @property
    def size_bytes(self) -> int:
        """Bytes of unanswered and gathering messages."""
        return self.bytes_unanswered + self._open.part_bytes

    def take(self) -> list[Sent]:
        """Return what may be sent and was not yet, in order; closes the open submission."""
        held = len(self.unanswered)
        if held < self._unanswered_max:
            self._close()
            held = len(self.unanswered)
        if not held:
            return []
        first = self.unanswered[0].seq
        start = self.sent_seq + 1 - first
        end = min(held, self._unanswered_max)
        if start >= end:
            return []
        self.sent_seq = first + end - 1
        taken = [self.unanswered[i] for i in range(start, end)]
        for sent in taken:
            sent.times += 1
        return taken

    @property
    def waiting(self) -> bool:
        """Whether something is to be sent."""
        return bool(self._open.parts or self._open.commands or self.sent_seq < self.next_seq - 1)

    def rewind(self, seq: int = 0) -> None:
        """Send again from `seq` on; 0: everything unanswered, to a leader that was just found."""
        if not seq:
            for sent in self.unanswered:
                sent.times = sent.behind = 0
        first = self.unanswered[0].seq if self.unanswered else self.next_seq
        self.sent_seq = min(self.sent_seq, max(seq, first) - 1)

    def behind(self, seq: int, expected_seq: int) -> bool:
        """Handle the answer that submission `seq` came before `expected_seq`; whether to send.

        1. Submissions 4 to 40 are under way, and 4 is lost.  2. The leader answers 5 to 40 that it
        lacks 4; the first answer has 4 to 40 sent again.  3. If the other answers did so, too,
        each would put 37 entries into the log, and each of these might be answered like that.
        So an answer counts only when `seq` has not been sent again since: then 4 was lost again.
        Replayed by tests/broker/cluster/client/test_resending.py
        """
        at = seq - self.unanswered[0].seq if self.unanswered else -1
        if not 0 <= at < len(self.unanswered):
            return False
        sent = self.unanswered[at]
        sent.behind += 1
        if sent.behind < sent.times:
            return False
        self.rewind(expected_seq)
        return True

    def answered(self, seq: int, replies: Sequence[Any], index: int) -> bool:
        """Call back with the replies of submission `seq`; return False when it was answered before.

        Answers come in order; `rewind` asks again for a missing one.
        """
        if not self.unanswered or self.unanswered[0].seq != seq:
            return False
        sent = self.unanswered.popleft()
        self._count(-len(sent.data))
        # 1. A leader change rewound sent_seq below this submission.  2. The old leader's answer
        # arrives late.  sent_seq must not stay below the first unanswered submission.
        self.sent_seq = max(self.sent_seq, seq)
        rest = list(replies)
        if sent.enqueue_replies:
            reply = rest.pop(0) if rest else None
            for on_reply in sent.enqueue_replies:
                if on_reply is not None:
                    on_reply(reply, index)
        for position, on_reply in enumerate(sent.replies):
            if on_reply is not None:
                on_reply(rest[position] if position < len(rest) else None, index)
        return True

    def abandon(self) -> list[OnReply]:
        """Drop everything, for a deleted group; return the callbacks that wait, oldest first."""
        waiting = [r for sent in self.unanswered for r in (*sent.enqueue_replies, *sent.replies)]
        waiting += [*self._open.part_replies, *self._open.replies]
        self._open = _Open()
        self.unanswered.clear()
        self._count(-self.bytes_unanswered)
        self.sent_seq = self.next_seq - 1
        return [on_reply for on_reply in waiting if on_reply is not None]

    def check(self) -> None:
        """Assert the invariants."""
        seqs = [sent.seq for sent in self.unanswered]
        assert seqs == list(range(self.next_seq - len(seqs), self.next_seq)), seqs
        assert self.next_seq - 1 - len(seqs) <= self.sent_seq < self.next_seq, self.sent_seq
        assert self.bytes_unanswered == sum(len(sent.data) for sent in self.unanswered)


class Carrier(Protocol):
    """The part of the node that a group client needs."""

    def leader_of(self, group: int) -> str | None:
        """Return the node to send to, if one is known."""
        ...

    def submit(self, leader: str, group: int, sent: Sent) -> bool:
        """Send a submission to the leader; return False when it could not be sent."""
        ...

    def touch(self, client: GroupClient) -> None:
        """Call `client.pump()` at the end of this pass."""
        ...

    def seek(self, client: GroupClient) -> None:
        """Find the unknown leader, then touch the client."""
        ...

    def answered(self, client: GroupClient) -> None:
        """Note that bytes in flight decreased."""
        ...


class Receiver(Protocol):
    """The receiver of a consumer's messages."""

    def deliver(self, consumer: int, delivery: Delivery, block: Block) -> None:
        """Take messages delivery.first … delivery.last of this block."""
        ...

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        """Note the consumer's cancellation; timeout_ms: how long it may hold a message."""
        ...


@dataclass(slots=True)
class LocalConsumer:
    """A consumer of one of this node's clients.

    next_msg_id  deliveries below it have been passed to the receiver
    timeout_ms   how long it may hold a message; None: no limit
    ends         it is to be cancelled when another node begins to lead the queue
    led_by       the node that led when it was first known; "": none was. Only with `ends`
    missed       told the next msg_id when deliveries before it will never come; None: not wanted
    timed_out    told what it held for too long, and timeout_ms, instead of `Receiver.cancelled`:
                 ranges of msg_ids, none when they are not known. None: not wanted
    """

    consumer: int
    receiver: Receiver
    no_ack: bool
    next_msg_id: int = 0
    timeout_ms: int | None = None
    ends: bool = False
    led_by: str = ""
    missed: Callable[[int], None] | None = None
    timed_out: Callable[[MsgIds, int | None], None] | None = None


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
        """Add messages to this pass's block."""
        self.uplink.publish(part, size_bytes, on_reply)
        self._touch()

    def command(
        self,
        command: Any,
        on_reply: Callable[[Any, int], None] | None = None,
        ordered: bool = False,
    ) -> None:
        """Add a command to this pass's submission."""
        self.uplink.command(command, on_reply, ordered)
        self._touch()

    def with_block(
        self, command: Any, block: bytes | memoryview, on_reply: Callable[[Any, int], None] | None
    ) -> None:
        """Add a command with a block of its own."""
        self.uplink.with_block(command, block, on_reply)
        self._touch()

    @property
    def busy(self) -> bool:
        """Whether something waits for the leader, or may come from it."""
        return bool(self.consumers or self.uplink.unanswered or self.uplink.waiting)

    @property
    def all_answered(self) -> bool:
        """Whether all that was sent, or is about to be, has been applied and answered."""
        return not (self.uplink.unanswered or self.uplink.waiting)

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
        """Resume with a leader that is new or reachable again: send it all that it may have missed.

        The event arrives in several ways (Raft, an announcement); only the first one counts.
        """
        if (leader, term) == self.told and not self.seeking and not reconnected:
            return
        self.told = (leader, term)
        self.seeking = False
        self.seek_delay_ms = SEEK_INTERVAL_MS
        self.uplink.rewind()
        for local in self.consumers.values():
            self.resume(local)
            if local.ends:
                self._failed_over(local, leader)
        self._touch()

    def _failed_over(self, local: LocalConsumer, leader: str) -> None:
        """Cancel a consumer that asked for it, if another node leads than before.

        It is told when the queue has cancelled it, after the deliveries that it was given before:
        it could not acknowledge what it never saw.
        """
        if local.led_by in ("", leader):
            local.led_by = leader
            return
        local.ends = False

        def cancelled(reply: Any, index: int) -> None:
            self.cancelled(local.consumer, "failover")
            self.consumers.pop(local.consumer, None)

        self.command(Cancel(local.consumer), cancelled)

    def resume(self, local: LocalConsumer) -> None:
        """Ask for deliveries to this consumer that were not received.

        The answer comes before the deliveries: those taken back in the meantime never come.
        """

        def resumed(reply: Any, index: int) -> None:
            if isinstance(reply, Resumed) and reply.first_msg_id > local.next_msg_id:
                local.next_msg_id = reply.first_msg_id
                if local.missed is not None:
                    local.missed(reply.first_msg_id)

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
        """Handle the answer to a submission; with expected_seq the leader lacks earlier ones.

        Raises RuntimeError when the queue reports that this incarnation has ended.
        """
        if retired:
            # Only the start of a later process of this node, or its removal, ends an incarnation.
            raise RuntimeError(
                f"group {self.group} reports that this process was replaced by a later one of "
                "the same node, or that the node was removed; this process ends"
            )
        if expected_seq:
            if self.uplink.behind(seq, expected_seq):
                self._touch()
        elif self.uplink.answered(seq, replies, index):
            self.carrier.answered(self)
            if self.uplink.waiting:
                self._touch()

    def delivered(self, consumer: int, delivery: Delivery, block: Block) -> None:
        """Pass messages on to a consumer; they may be repeated, or earlier ones be missing.

        block  the block to which delivery.first and delivery.last refer
        """
        local = self.consumers.get(consumer)
        if local is None:
            return  # cancelled here while it was on its way; the session's end returns it
        first_id = delivery.first_msg_id
        end_id = first_id + delivery.last - delivery.first + 1
        if end_id <= local.next_msg_id:
            return
        # 1. The leader sends 0-9 and dies.  2. The next one applies a settle and sends 20-29.
        # 3. 10-19 come with the answer to our Resume, and then 20-29 again: wait for those.
        # Without acknowledgements nothing is held for a Resume: what is missing is lost.
        if first_id > local.next_msg_id and not local.no_ack:
            return
        delivery = rest_of(delivery, local.next_msg_id - first_id)
        local.next_msg_id = end_id
        local.receiver.deliver(consumer, delivery, block)

    def cancelled(self, consumer: int, reason: str, msg_ids: MsgIds = ()) -> None:
        """Tell a consumer that the queue cancelled it; msg_ids: what it held for too long."""
        local = self.consumers.get(consumer)
        if local is None:
            return
        if reason == "timeout" and local.timed_out is not None:
            local.timed_out(msg_ids, local.timeout_ms)
        else:
            local.receiver.cancelled(consumer, reason, local.timeout_ms)
