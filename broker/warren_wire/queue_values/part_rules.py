"""The rules of a search for messages at fault, which queues and the connector's spools share.

A batch that fails is divided, each half is a batch of its own, and is divided again when it fails.
A message that has failed alone is kept behind all parts: whether it is at fault, or nothing passes
at the time, is seen when another batch has passed.

The count **in a row**: messages that failed alone, and batches that were rejected, since a batch
passed.
"""

from __future__ import annotations

from warren_wire.queue_values.give_up_command import ALONE, HALF, UNDIVIDED, AnyWay


def counts_in_row(way: AnyWay, origin: int, messages: int) -> bool:
    """Return whether giving up such a batch counts in a row: each message once."""
    if way == "withdraw":
        return False
    return origin != ALONE and (way == "reject" or messages == 1)


def is_due(origin: int, in_row: int, passed: bool) -> bool:
    """Return whether the first part is the next batch.

    1. A message fails alone because what the query writes to is down.  2. Were it read again at
    once, it would fail again, and be rejected.  So a batch must pass first, after it. When it is
    the last of the divided batch, nothing follows it: then one that has passed before is enough.

    origin  of that part
    passed  a batch has passed since there are parts
    """
    return origin == HALF or in_row == 0 or (in_row == 1 and passed)


def begins(origin: int, parts: int) -> bool:
    """Return whether a search begins with the division of such a batch: none has passed in it."""
    return origin == UNDIVIDED and not parts


def first_half(messages: int) -> int:
    """Return how many of several messages are the first part; the others are the second."""
    assert messages > 1, messages
    return messages // 2
