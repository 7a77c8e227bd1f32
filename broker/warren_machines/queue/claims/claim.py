"""Claims: named, numbered holds of micro-batches on messages."""

from __future__ import annotations

from typing import Final

from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.claims import parts
from warren_machines.queue.claims.decision_commands import BindClaim, BoundClaim, ResolveClaim
from warren_machines.queue.claims.reader_state import HeldClaim, ReaderState
from warren_machines.queue.commands import (
    AnyReply,
    ClaimReply,
    Count,
    Done,
    EmptyClaim,
    OpenClaim,
    ReaderReply,
    Refused,
    RegisterReader,
    ReleaseClaim,
    RenewClaims,
    SettleClaims,
)
from warren_machines.queue.letters.dead_letter import dead_letter_or_drop, give_back
from warren_machines.queue.ready import limits, service_order
from warren_machines.queue.ready.ranges import Run, cut_runs, length, unmarked
from warren_machines.queue.state import QueueState
from warren_wire.queue_values.describe_command import DescribeClaim
from warren_wire.queue_values.give_up_command import ALONE, GiveUpClaim
from warren_wire.queue_values.part_rules import counts_in_row

DONE: Final = Done()
OPERATOR: Final = -1
"""The epoch of an operator, which is never fenced."""
CALLS_KEPT_MAX: Final = 16
"""Register calls remembered per reader; older ones have long been answered."""
READERS_MAX: Final = 1_024
"""Readers remembered per queue; see `_make_room`."""


def claim_slice(
    state: QueueState,
    reader: str,
    number: int,
    first: int,
    last: int,
    runs_max: int | None = None,
) -> tuple[Run, ...] | None:
    """Return the messages first ≤ i < last of an open claim, numbered in claim order.

    returns  runs in claim order, at most `runs_max`, fewer messages where the claim ends; None: the
             claim is not open (settled, released, expired or never opened)
    """
    owner = state.readers.get(reader)
    claim = owner.claims.get(number) if owner is not None else None
    if claim is None:
        return None
    return tuple(map(unmarked, cut_runs(claim.runs, first, last, runs_max)))


def register(context: QueueContext, command: RegisterReader) -> AnyReply:
    """Register a new driver and fence the older ones; an epoch is never given twice in a queue.

    1. A driver registers through a node that is cut off.  2. Its call times out; it registers
    through another node and works.  3. The first node is back and submits the old call: that must
    not fence the driver that made it. So a call has a name, and is answered once.
    """
    state = context.state
    known = state.readers.get(command.reader)
    if known is not None and command.call:
        for call, given in known.calls:
            if call == command.call:
                return ReaderReply(given, known.settled, known.starts)
    if known is None and command.idle_ms:
        refused = _make_room(context, command)
        if refused is not None:
            return refused
    epoch = state.next_epoch
    state.next_epoch += 1
    reader = known
    if reader is None:
        floor = state.claim_floor
        reader = state.readers[command.reader] = ReaderState(command.reader, epoch, floor, floor)
    reader.epoch = epoch
    reader.starts += 1
    if command.call:
        reader.calls = (*reader.calls, (command.call, epoch))[-CALLS_KEPT_MAX:]
    _heard(context, reader)
    reader.expires_ms = command.expires_ms
    if reader.expires_ms:
        context.arm(context.now + reader.expires_ms)
    lost = command.go_on_after
    if lost > reader.settled and not any(number <= lost for number in reader.claims):
        reader.settled = lost
        reader.opened = max(reader.opened, lost)
    return ReaderReply(epoch, reader.settled, reader.starts)


def _make_room(context: QueueContext, command: RegisterReader) -> Refused | None:
    """Forget readers silent for idle_ms, and at READERS_MAX the one silent for the longest.

    A reader with a claim that holds messages is kept: the messages would have no owner.
    """
    readers = context.state.readers
    silent = [reader for reader in readers.values() if not reader.holds_messages]
    silent.sort(key=lambda reader: (reader.heard_ms, reader.name))
    for reader in silent:
        if reader.heard_ms + command.idle_ms > context.now and len(readers) < READERS_MAX:
            break
        _forget(context, reader)
    if len(readers) < READERS_MAX:
        return None
    return Refused(
        "invalid",
        f"queue {context.config.name!r} has {len(readers)} readers with open claims, {READERS_MAX} "
        f"is the limit: settle or release some (warren claims) before {command.reader!r} registers",
    )


def _forget(context: QueueContext, reader: ReaderState) -> None:
    """Forget a reader; none of its numbers is used again.

    1. Reader r has settled claim 7, its checkpoint says 7; r is forgotten.  2. Another query
    registers as r.  3. If its claims were numbered from 1, the old checkpoint, started again, could
    settle a claim 7 with messages it has never seen. With the floor above 7 it gets claim_lost.
    """
    del context.state.readers[reader.name]
    context.state.claim_floor = max(context.state.claim_floor, reader.opened + 1)


def _heard(context: QueueContext, reader: ReaderState) -> None:
    reader.heard_ms = context.now
    for claim in reader.all_claims():
        if claim.ttl_ms and claim.binding is None:
            claim.expires_ms = context.now + claim.ttl_ms


def known_reader(context: QueueContext, name: str, epoch: int) -> ReaderState | Refused:
    """Return the reader if its current driver or an operator asks, else the refusal."""
    queue = context.config.name
    reader = context.state.readers.get(name)
    if reader is None:
        return Refused(
            "unknown_reader", f"queue {queue!r} knows no reader {name!r}: register it first"
        )
    if epoch not in (reader.epoch, OPERATOR):
        return Refused(
            "fenced",
            f"reader {name!r} of queue {queue!r} has epoch {reader.epoch}, not {epoch}: "
            "a newer driver registered; stop this one",
        )
    if epoch != OPERATOR:
        _heard(context, reader)
    return reader


def open_claim(context: QueueContext, command: OpenClaim) -> AnyReply:
    """Take messages from the head; the number of an open claim returns that claim.

    While the reader has parts that are due, they are its claims, as they are.
    """
    if command.max_messages < 1 or command.max_bytes < 1 or command.ttl_ms < 0:
        return Refused(
            "invalid",
            f"claim of at most {command.max_messages} messages, {command.max_bytes} bytes, ttl "
            f"{command.ttl_ms} ms: give at least 1 message, 1 byte, 0 ms",
        )
    reader = known_reader(context, command.reader, command.epoch)
    if isinstance(reader, Refused):
        return reader
    context.state.unused_ms = context.now
    claim = reader.claims.get(command.number)
    if claim is None:
        if not _is_next(reader, command):
            return lost_claim(context, reader, command.number)
        if command.ahead and not _is_full(context, reader, command):
            return ClaimReply(command.number, 0, 0, ())
        claim = parts.next_claim(reader, command.number, command.ttl_ms, context.now)
        if claim is not None and claim.expires_ms:
            context.arm(claim.expires_ms)
        claim = claim or _take(context, reader, command)
        if claim is None:
            return ClaimReply(command.number, 0, 0, ())
    if not claim.messages:
        return EmptyClaim(claim.number)
    runs = tuple(map(unmarked, claim.runs))
    return ClaimReply(claim.number, claim.messages, claim.size_bytes, runs, claim.origin)


def _is_next(reader: ReaderState, command: OpenClaim) -> bool:
    """Return whether a claim that is not open is the reader's next one.

    A number is never opened twice, also when its claim was taken back (`give_up`): that one stays
    open, and empty. So a request that arrives late finds the claim that it is about, or a refusal.
    """
    if command.number <= reader.opened:
        return False
    last = reader.settled
    if command.ahead and last + 1 in reader.claims:
        last += 1
    return command.number == last + 1


def _is_full(context: QueueContext, reader: ReaderState, command: OpenClaim) -> bool:
    """Return whether a claim that is opened ahead has all that it may have.

    1. Claim 7 is being read, and 10 messages are ready.  2. Claim 8 takes them ahead of its time.
    3. A thousand come until 7 is settled; they have to wait for claim 9.  So what is not full is
    opened when it is needed, with all that is ready by then. Parts are never opened ahead: whether
    one is due depends on the claim that is being read.
    """
    if reader.parts:
        return False
    service_order.dispatch(context)
    state = context.state
    return state.order.count >= command.max_messages or state.ready_bytes >= command.max_bytes


def lost_claim(context: QueueContext, reader: ReaderState, number: int) -> Refused:
    """Return the refusal for a claim that is not open."""
    return Refused(
        "claim_lost",
        f"claim {number} of reader {reader.name!r} is not open in queue {context.config.name!r}: "
        f"the last settled one is {reader.settled}, the last opened one {reader.opened}. It was "
        "released or expired, or belongs to another queue; its messages may be elsewhere by now",
    )


def _take(context: QueueContext, reader: ReaderState, command: OpenClaim) -> HeldClaim | None:
    """Take the claim's messages; waiting consumers come first, as if it had its own entry."""
    service_order.dispatch(context)
    contents = context.state.contents
    runs: list[Run] = []
    messages = size_bytes = 0
    while messages < command.max_messages:
        budget = command.max_bytes - size_bytes
        if budget < 0:
            break
        whole, whole_bytes = limits.take_whole(context, command.max_messages - messages, budget)
        if whole:
            runs += whole
            messages += length(whole)
            size_bytes += whole_bytes
            continue
        run = limits.take(context, command.max_messages - messages, budget)
        if run is None and not runs:  # one message is taken even if it is larger
            run = limits.take(context, 1)
        if run is None:
            break
        runs.append(run)
        messages += run[2] - run[1] + 1
        size_bytes += contents.size(run[0], run[1], run[2])
    if not runs and not command.keep_empty:
        return None
    if runs:
        context.taken_by((0, 0))
    # An empty claim has nothing to give back, and nothing that its queue could lose.
    ttl_ms = command.ttl_ms if runs else 0
    expires_ms = context.now + ttl_ms if ttl_ms else 0
    claim = HeldClaim(
        command.number,
        tuple(runs),
        messages,
        size_bytes,
        ttl_ms,
        expires_ms,
    )
    reader.claims[command.number] = claim
    reader.opened = command.number
    if command.ahead:
        reader.ahead = (command.number, command.epoch)
    context.state.claimed += messages
    if expires_ms:
        context.arm(expires_ms)
    return claim


def renew(context: QueueContext, command: RenewClaims) -> AnyReply:
    """Renew the expiry of the reader's claims."""
    reader = known_reader(context, command.reader, command.epoch)
    return reader if isinstance(reader, Refused) else DONE


def settle(context: QueueContext, command: SettleClaims) -> AnyReply:
    """Settle the reader's claims up to a number."""
    reader = known_reader(context, command.reader, command.epoch)
    if isinstance(reader, Refused):
        return reader
    if command.number > max(reader.opened, reader.settled):
        return lost_claim(context, reader, command.number)
    # 1. A claim expires while its batch is being processed.  2. The batch is committed.  3. Its
    # driver settles. If the missing number were skipped, the next claim would take the same
    # messages, and a second committed batch would silently contain them. So the settle is refused
    # and changes nothing; the driver stops, or registers with `RegisterReader.go_on_after` to
    # continue.
    for number in range(reader.settled + 1, command.number + 1):
        if number not in reader.claims:
            return lost_claim(context, reader, number)
    return Count(_settle_up_to(context, reader, command.number))


def describe(context: QueueContext, command: DescribeClaim) -> AnyReply:
    """Note the batch that reads a claim, unless the claim is not open or a later one is described.

    1. A task of batch 7 says so, for claim 3, and is delayed.  2. Batch 8 says so, for claim 4.
    3. Claim 3 is still open: its driver settles late. The delayed note must not replace the later.
    """
    reader = context.state.readers.get(command.reader)
    if reader is None or command.number not in reader.claims:
        return DONE
    if reader.described is None or reader.described[0] <= command.number:
        reader.described = (command.number, command.read_by)
    return DONE


def _settle_up_to(context: QueueContext, reader: ReaderState, upto: int) -> int:
    settled = 0
    for number in sorted(reader.claims):
        if number <= upto:
            claim = _end(context, reader, number)
            for index, first, last, _, _ in claim.runs:
                context.state.leave(index, first, last)
            settled += claim.messages
            context.frees += claim.size_bytes
            if claim.messages:
                parts.passed(reader)
            if claim.binding is not None:
                reader.decided = (number, claim.binding)
    context.state.claimed -= settled
    reader.settled = max(reader.settled, upto)
    return settled


def bind(context: QueueContext, command: BindClaim) -> AnyReply:
    """Leave a claim to a batch's decision.

    1. A claim is bound to batch 7; the driver asks for 7 to be published, and dies.  2. Whether 7
    is in its queue only that queue's log says. Were the claim given back now, its messages could be
    read again, with batch 7 published. So a request for it back, or for another batch, asks that
    queue, which closes the batch if it was not published, and says so with `resolve`.
    """
    reader = known_reader(context, command.reader, command.epoch)
    if isinstance(reader, Refused):
        return reader
    claim = reader.claims.get(command.number)
    if claim is None:
        if _has_settled(reader, command):
            return DONE
        return lost_claim(context, reader, command.number)
    if claim.binding is None:
        claim.binding = command.binding
        claim.expires_ms = 0
    elif claim.binding.named != command.binding.named:
        return BoundClaim(command.number, claim.binding)
    return DONE


def _has_settled(reader: ReaderState, command: BindClaim) -> bool:
    """Return whether that batch has settled that claim; it asks again, having got no answer."""
    if reader.decided is None:
        return False
    number, binding = reader.decided
    return number == command.number and binding.named == command.binding.named


def resolve(context: QueueContext, command: ResolveClaim) -> AnyReply:
    """Settle a bound claim, or free it of its batch, as that batch's queue has decided.

    Claims before it are settled with it: they were opened before, and a batch reads all of them.
    """
    reader = context.state.readers.get(command.reader)
    claim = reader.claims.get(command.number) if reader is not None else None
    if reader is None or claim is None or claim.binding is None:
        return Count(0)
    if claim.binding.named != command.binding.named:
        return Count(0)
    if command.published:
        return Count(_settle_up_to(context, reader, command.number))
    claim.binding = None
    if claim.ttl_ms:
        claim.expires_ms = context.now + claim.ttl_ms
        context.arm(claim.expires_ms)
    return Count(0)


def release(context: QueueContext, command: ReleaseClaim) -> AnyReply:
    """Return the messages of one claim, or of all and forget the reader."""
    reader = known_reader(context, command.reader, command.epoch)
    if isinstance(reader, Refused):
        return reader
    for number in sorted(reader.claims):
        binding = reader.claims[number].binding
        if command.number in (0, number) and binding is not None:
            return BoundClaim(number, binding)
    released = 0
    for number in sorted(reader.claims):
        if command.number in (0, number):
            released += _give_back(context, _end(context, reader, number), command.failed)
    if command.number == 0:
        parts, reader.parts = reader.parts, []
        released += _give_parts_back(context, parts, command.failed)
        _forget(context, reader)
    return Count(released)


def _end(context: QueueContext, reader: ReaderState, number: int) -> HeldClaim:
    """Close a claim; its use of the queue ends, as when a consumer leaves."""
    claim = reader.claims.pop(number)
    end_use(context, claim)
    return claim


def end_use(context: QueueContext, claim: HeldClaim) -> None:
    """End a claim's use of the queue, after the claim."""
    if claim.messages:
        context.use_ended()


def _give_back(context: QueueContext, claim: HeldClaim, failed: bool) -> int:
    context.state.claimed -= claim.messages
    for run in claim.runs:
        give_back(context, run, failed)
    return claim.messages


def _give_parts_back(context: QueueContext, those: list[HeldClaim], failed: bool) -> int:
    """Return parts of divided claims, in their order; return the number of messages."""
    for part in those:
        end_use(context, part)
    return sum(_give_back(context, part, failed) for part in those)


def expire_claims(context: QueueContext) -> None:
    """Return the claims of readers silent for too long, not as failed; arm the next timer."""
    # By name, the order of a snapshot: restored members know no other order, and the order in which
    # messages come back is the order in which they leave again.
    for _, reader in sorted(context.state.readers.items()):
        for number in sorted(reader.claims):
            claim = reader.claims[number]
            if not claim.expires_ms:
                continue
            if claim.expires_ms <= context.now:
                _give_back(context, _end(context, reader, number), False)
            else:
                context.arm(claim.expires_ms)
        over = [part for part in reader.parts if 0 < part.expires_ms <= context.now]
        reader.parts = [part for part in reader.parts if not 0 < part.expires_ms <= context.now]
        _give_parts_back(context, over, False)
        for part in reader.parts:
            if part.expires_ms:
                context.arm(part.expires_ms)


def expire_readers(context: QueueContext) -> None:
    """Forget readers that are silent for as long as they have said; arm the next timer.

    One with messages in claims is kept, and looked at again after the same time.
    """
    for _, reader in sorted(context.state.readers.items()):
        if not reader.expires_ms:
            continue
        due = reader.heard_ms + reader.expires_ms
        if due > context.now:
            context.arm(due)
        elif reader.holds_messages:
            context.arm(context.now + reader.expires_ms)
        else:
            _forget(context, reader)


def give_up(context: QueueContext, command: GiveUpClaim) -> AnyReply:
    """Empty a claim, which stays open, and do with its messages what the command says.

    1. A run of a query gives up batch 7.  2. Its driver ends before batch 7, which has no rows now,
    is committed.  3. The next run gives batch 7 up again: the claim is empty, and stays so.
    """
    reader = known_reader(context, command.reader, command.epoch)
    if isinstance(reader, Refused):
        return reader
    claim = reader.claims.get(command.number)
    if claim is None:
        if command.number <= reader.settled:
            return Count(0)
        return lost_claim(context, reader, command.number)
    if claim.binding is not None:
        return BoundClaim(command.number, claim.binding)
    if not claim.messages:
        return Count(0)
    # 1. A driver opens claim 8 ahead, and another one takes over.  2. That one finds 8 open, and
    # takes it back.  3. The first one does not know yet, and gives 8 to Spark, which notes it in
    # its offset log.  So only the driver that opened a claim ahead takes it back: whether it has
    # given it to Spark, no other one knows.
    if command.way == "withdraw" and reader.ahead != (command.number, command.epoch):
        return Count(0)
    refused = _refused(context, reader, claim, command)
    if refused is not None:
        return refused
    reader.claims[command.number] = HeldClaim(command.number, (), 0, 0, 0, 0)
    if counts_in_row(command.way, claim.origin, claim.messages):
        reader.in_row += 1
    if command.way == "divide":
        parts.divide(reader, claim)
        return Count(claim.messages)
    context.state.claimed -= claim.messages
    for run in claim.runs:
        if command.way in ("release", "withdraw"):
            give_back(context, run, command.way == "release")
        else:
            index, first, last, failures, acquired = run
            dead_letter_or_drop(
                context, "rejected", (index, first, last, failures + 1, acquired + 1)
            )
    end_use(context, claim)
    return Count(claim.messages)


def _refused(
    context: QueueContext, reader: ReaderState, claim: HeldClaim, command: GiveUpClaim
) -> Refused | None:
    queue = context.config.name
    if command.way == "divide" and claim.origin == ALONE:
        return Refused("invalid", f"claim {claim.number} is a message that failed alone before")
    if command.way == "reject" and not command.drop:
        if context.config.dead_letter_exchange is None:
            return Refused(
                "invalid",
                f"queue {queue!r} has no dead letter exchange: give it one "
                "(x-dead-letter-exchange, or dead-letter-exchange of a policy), or have rejected "
                "messages dropped",
            )
    if not counts_in_row(command.way, claim.origin, claim.messages):
        return None
    if reader.in_row < command.in_row_max:
        return None
    return Refused(
        "failed_in_row",
        f"{reader.in_row} messages or claims of reader {reader.name!r} of queue {queue!r} have "
        f"failed one after another, {command.in_row_max} is the limit: nothing passes",
    )
