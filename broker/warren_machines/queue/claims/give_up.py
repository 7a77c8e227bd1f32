"""Giving up a batch that fails: its claim's messages are divided, rejected or released."""

from __future__ import annotations

from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.claims import parts
from warren_machines.queue.claims.claim import end_use, known_reader, lost_claim
from warren_machines.queue.claims.decision_commands import BoundClaim
from warren_machines.queue.claims.reader_state import HeldClaim, ReaderState
from warren_machines.queue.commands import AnyReply, Count, Refused
from warren_machines.queue.letters.dead_letter import dead_letter_or_drop, give_back
from warren_wire.queue_values.give_up_command import ALONE, GiveUpClaim
from warren_wire.queue_values.part_rules import counts_in_row


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
