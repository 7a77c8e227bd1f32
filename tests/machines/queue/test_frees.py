"""What commands say that they free: the log's policy goes by it."""

from __future__ import annotations

from tests.machines.queue.test_claim import claim, reading
from warren_machines.queue.commands import Purge, ReleaseClaim, SettleClaims


def test_a_settlement_and_a_purge_say_what_they_free() -> None:
    """The log's policy looks at the queue at once when that is a file of the log."""
    queue = reading()
    claim(queue)
    assert queue.frees == 0
    queue.do(SettleClaims("r", 1, 1))
    assert queue.frees == 40
    claim(queue, 2)
    queue.do(ReleaseClaim("r", 2, 1))
    assert queue.frees == 0
    queue.do(Purge())
    assert queue.frees == 60
