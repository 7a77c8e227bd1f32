"""The command that ends the tries of a batch that fails: its claim is emptied, and stays open."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from warren_wire.queue_values.command_base import QueueCommand

Way: TypeAlias = Literal["divide", "reject", "release"]
"""What becomes of a batch that fails."""
AnyWay: TypeAlias = Literal["divide", "reject", "release", "withdraw"]
UNDIVIDED: Final = 0
HALF: Final = 1
ALONE: Final = 2
ORIGINS: Final = ("ready", "part", "alone")
"""Where a claim's messages are from: they were ready; half of a claim that was divided; the one
message of a claim that was divided."""


class GiveUpClaim(QueueCommand, frozen=True, array_like=True, tag="give_up"):
    """Take all messages out of an open claim. Reply: Count of them; 0 for a repeat.

    The claim stays open and holds nothing, so its batch can be run without rows, and settled. A
    claim that is settled holds nothing, too.

    way  divide   keep the messages as two parts, which are the reader's next claims, in order; a
                  single message is kept behind all parts, and is a claim again when it is due
                  (`parts.is_due`)
         reject   dead-letter them, as rejected
         release   return them to the queue, as failed deliveries
         withdraw  return them, not as failed: no batch has read the claim. Only that driver may
                   which opened it ahead; for another one it holds nothing that it could return
    in_row_max  of messages that failed alone, and claims that were rejected, one after another with
                no claim settled in between: one more is Refused(failed_in_row). Messages that
                failed alone before are not counted again
    drop        reject them although there is no dead letter exchange; False: Refused(invalid)
    """

    reader: str
    number: int
    epoch: int
    way: AnyWay
    in_row_max: int
    drop: bool = False
