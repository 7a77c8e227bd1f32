"""Option onBatchFailure=release: when a failing micro-batch is given back, and what is read next.

The queue keeps all that this is decided by. Each run of the query registers with a higher epoch
than the run before, so the epochs since a batch was begun limit how often it was tried. A claim
that is given back as failed raises the delivery count of its messages, so the count of the message
at the head says how much of the queue to read with it.
"""

from __future__ import annotations

import logging
from typing import Final

from pyspark_warren.offset import Offset
from pyspark_warren.port import BrokerPort, ReaderPort
from warren import errors as client_errors

log = logging.getLogger("pyspark_warren")

_PART: Final = 16
"""How much less is claimed for each failure of the message at the head."""


def tries_before(epoch: int, begun: int) -> int:
    """Return how many runs have tried a batch before the run with this epoch, at most.

    begun  the epoch of the run that opened its claim, which is the first try

    The epochs of a queue are shared by its readers: one that registers counts as a try, too.
    """
    assert begun > 0, begun
    return max(0, epoch - begun)


def narrowed(most: int, failures: int) -> int:
    """Return how many messages to claim when the first of them has failed that often.

    200,000 messages are 12,500 after one failure, then 782, 49, 4 and 1: whatever is claimed with
    the message at fault has failed as often, and is claimed without it afterwards.
    """
    assert most >= 1 and failures >= 0, (most, failures)
    for _ in range(failures):
        if most == 1:
            break
        most = -(-most // _PART)
    return most


def narrowed_claim(broker: BrokerPort, queue: str, most: int) -> int:
    """Return how many of at most that many messages to claim now; see `narrowed`."""
    for block in broker.browse(queue, 1, 0):
        for _, _, _, failures, _ in block.runs:
            return narrowed(most, failures)
    return most


def give_back(broker: BrokerPort, reader: ReaderPort, end: Offset, tried: int) -> int:
    """Release the claims of the batch that ends there, as failed; return how many messages.

    tried  how often the batch was tried, for the log
    """
    place = _place_of_first(broker, end)
    messages = sum(reader.release(claim.number, failed=True) for claim in end.claims)
    log.warning(
        "queue %r: batch of claim %d of reader %r given back as failed after %d tries: %d "
        "messages, the first at position %s (onBatchFailure=release)",
        end.queue,
        end.number,
        end.reader,
        tried,
        messages,
        place,
    )
    return messages


def _place_of_first(broker: BrokerPort, end: Offset) -> str:
    number = end.claims[0].number
    try:
        for block in broker.fetch(end.queue, end.reader, number, 0, 1, 0):
            for index, first, _, failures, _ in block.runs:
                return f"(index {index}, ordinal {first}), failed {failures} times before"
    except client_errors.WarrenError as wrong:  # given back before, or empty
        log.info("queue %r: claim %d cannot be read: %s", end.queue, number, wrong)
    return "unknown"
