"""What the kernel does for many deliveries at once is what Proton's binding does one by one."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.broker.clients10.link_twins import Script, World, compare, played_by
from warren_wire.amqp10 import deliveries
from warren_wire.kernel import EngineCalls, Gathered

STREAMS = 40


@pytest.mark.parametrize("seed", range(STREAMS))
def test_both_kernels_and_proton_alone_do_the_same(seed: int) -> None:
    assert len(compare(seed)) > 10


class Counted:
    """Calls of which the deliveries are counted."""

    def __init__(self, calls: EngineCalls, counts: Counter[str]) -> None:
        self.calls = calls
        self.counts = counts

    def skim(self, collector: int, sending: dict[int, object], *more: object) -> int:
        """Count the events."""
        count = self.calls.skim(collector, sending, *more)
        self.counts["skim"] += count
        return int(count)

    def read(self, link: int, head: bytes, bytes_max: int, room: int, into: Gathered) -> object:
        """Count the messages that have a head in common."""
        before = len(into)
        other = self.calls.read(link, head, bytes_max, room, into)
        self.counts["read"] += len(into) - before
        return other

    def write(self, *given: object) -> tuple[int, int]:
        """Count the messages."""
        count, size = self.calls.write(*given)
        self.counts["write"] += count
        return count, size


def test_the_streams_have_runs_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    for seed in range(STREAMS // 2):
        with played_by("compiled"), monkeypatch.context() as patched:
            patched.setattr(deliveries, "CALLS", Counted(deliveries.CALLS, counts))
            world = World()
            for step in Script(seed).steps:
                step(world)
            world.connection.free()
    assert all(counts[name] > 100 for name in ("skim", "read", "write")), counts
