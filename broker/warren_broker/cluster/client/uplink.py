"""The uplink of a node to one group: its submissions gather, are numbered, kept until answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeAlias

from warren_wire.block.block import BLOCK_MESSAGES_MAX

OnReply: TypeAlias = Callable[[object, int], None]
"""Called once with the command's reply and the raft index at which it was applied."""
Encode: TypeAlias = Callable[[int, tuple[Any, ...], "bytes | memoryview | None", int], bytes]
"""Encodes (seq, commands, block, highest seq answered) as an entry's data."""
Assemble: TypeAlias = Callable[[Sequence[object], bytes], bytes]
"""Assembles the parts of one pass into one block, behind the bytes of its entry without a block.

So a message is copied once, from where it was received into the data of its entry.
"""
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
    """Bytes of unanswered submissions, over all uplinks of a node, and counts since its start.

    blocks  submissions with messages
    resent  submissions that were sent once more: an answer or its leader was lost
    """

    size_bytes: int = 0
    blocks: int = 0
    resent: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Uplink:
    """Numbers submissions, keeps them until answered, and returns those to be sent.

    parked  the queue is unreachable: unanswered submissions are not counted as bytes in flight
    commands_max, unanswered_max   their product must not exceed the number of replies that the
            machine remembers: beyond that a repeat only tells that it was applied

    Invariants: unanswered seqs are consecutive; sent_seq <= the last of them; bytes_unanswered is
    their sum, and part of the node's bytes in flight unless it is parked.
    """

    _encode: Encode
    _assemble: Assemble
    _enqueue: object
    _in_flight: InFlight
    _: KW_ONLY
    commands_max: int = field(default_factory=lambda: COMMANDS_MAX)
    unanswered_max: int = field(default_factory=lambda: UNANSWERED_MAX)
    _open: _Open = field(default_factory=_Open)
    unanswered: deque[Sent] = field(default_factory=deque)
    bytes_unanswered: int = 0
    next_seq: int = 1
    sent_seq: int = 0
    parked: bool = False

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
        if len(pending.commands) >= self.commands_max:
            self._close()

    def keep_together(self, count: int) -> None:
        """Have so many commands, which follow now, be of one submission."""
        if len(self._open.commands) + count > self.commands_max:
            self._close()

    def with_block(
        self, command: object, block: bytes | memoryview, on_reply: OnReply | None
    ) -> None:
        """Add a command with a ready-made block, in a submission of its own."""
        self._close()
        self._append((command,), block, (on_reply,), ())

    def with_messages(self, command: object, part: object, on_reply: OnReply | None) -> None:
        """Add a command with messages (see `publish`), in a submission of its own."""
        self._close()
        self._append((command,), None, (on_reply,), (), parts=(part,))

    def _close(self) -> None:
        pending = self._open
        if not pending.parts and not pending.commands:
            return
        self._open = _Open()
        commands = tuple(pending.commands)
        if pending.parts:
            commands = (self._enqueue, *commands)
        replies = tuple(pending.part_replies), tuple(pending.replies)
        self._append(commands, None, *replies, parts=pending.parts)

    def _append(
        self,
        commands: tuple[object, ...],
        block: bytes | memoryview | None,
        enqueue_replies: tuple[OnReply | None, ...],
        replies: tuple[OnReply | None, ...],
        parts: Sequence[object] = (),
    ) -> None:
        seq = self.next_seq
        self.next_seq += 1
        data = self._encode(seq, commands, block, seq - 1 - len(self.unanswered))
        if parts:
            data = self._assemble(parts, data)
        if parts or block is not None:
            self._in_flight.blocks += 1
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

    def park(self, reply: object) -> None:
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
    def last_seq(self) -> int:
        """The number of the submission with what was added last; 0: nothing was."""
        gathers = self._open.parts or self._open.commands
        return self.next_seq if gathers else self.next_seq - 1

    @property
    def size_bytes(self) -> int:
        """Bytes of unanswered and gathering messages."""
        return self.bytes_unanswered + self._open.part_bytes

    def take(self) -> list[Sent]:
        """Return what may be sent and was not yet, in order; closes the open submission."""
        held = len(self.unanswered)
        if held < self.unanswered_max:
            self._close()
            held = len(self.unanswered)
        if not held:
            return []
        first = self.unanswered[0].seq
        start = self.sent_seq + 1 - first
        end = min(held, self.unanswered_max)
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
        before, self.sent_seq = self.sent_seq, min(self.sent_seq, max(seq, first) - 1)
        self._in_flight.resent += before - self.sent_seq

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
