"""Worlds in which the product did right, and the simulation once said otherwise."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from sim.run import Kind, run_seed
from sim.whole.calm import CALM_MS, NARROW_CALMS, STALLED_MS, Calm
from sim.whole.disconnects import Disconnects
from sim.whole.ledger import Ledger
from sim.whole.letters import AppliedEntry
from sim.whole.process import DISCONNECTED_MS
from sim.whole.profile import QueuePlan
from sim.whole.world import World
from warren_broker.cluster.client.consumers import Consumers
from warren_machines.queue import commands
from warren_machines.queue.commands import Submission

BLAMELESS = {
    "a clock jumps past the time of a disconnected consumer": 504,
    "a policy is set after the answer was that it is unavailable": 5550059,
    "a late delivery after its message was given to another": 71000370,
    "acknowledgements of several clients outlast a timeout": 80001291,
    "a consumer without acknowledgements gives back what never left": 80001136,
    "a leader of an earlier term that dozes has an empty queue": 100000153,
    "what a claim gave back expires before it comes again": 80022271,
    "one entry publishes, takes and gives back with a delay": 80036356,
    "an older driver publishes two batches before the newest comes": 80042184,
}
SLOW = {
    "a trip for each message through a window of one": 71000212,
    "a queue is drained at 15 messages a second": 80018933,
    "messages that are refused and consumers that come and go share a window of one": 80035775,
}
EACH_MS = 1_000


def world(*narrow: str, messages: int = 400) -> Any:
    """Return what `Calm` sees of a world with those windows and unsettled messages."""
    ledger = Ledger(False)
    book = ledger.of(1, QueuePlan("plain"))
    book.publish([b"%d" % at for at in range(messages)])
    profile = SimpleNamespace(windows=tuple(("module", name, 1) for name in narrow))
    return SimpleNamespace(agenda=SimpleNamespace(now_ms=0), profile=profile, ledger=ledger)


def time_of(world: Any, each_ms: int) -> int:
    """Return when the time of a world is over that settles a message in so many milliseconds."""
    calm, book = Calm(world), world.ledger.books[1]
    bodies = list(book.sent)
    while not calm.is_over():
        world.agenda.now_ms += each_ms
        if bodies:
            book.settle(bodies.pop(), 0)
    return int(world.agenda.now_ms)


@pytest.mark.parametrize("what", sorted(BLAMELESS))
def test_a_world_that_is_clean(what: str) -> None:
    assert run_seed(BLAMELESS[what], Kind(whole=True)).failure is None


@pytest.mark.long
@pytest.mark.parametrize("what", sorted(SLOW))
def test_a_slow_world_that_is_clean(what: str) -> None:
    assert run_seed(SLOW[what], Kind(whole=True)).failure is None


def test_a_narrow_world_that_moves_has_ten_times_the_time() -> None:
    narrow = world("UNANSWERED_MAX", messages=2_000)
    assert time_of(narrow, EACH_MS) == (1 + NARROW_CALMS) * CALM_MS


def test_any_world_that_moves_has_twice_the_time() -> None:
    assert time_of(world("PIECE_BYTES"), EACH_MS) == 2 * CALM_MS


def test_a_world_that_stands_still_has_no_more_time() -> None:
    still = world("UNANSWERED_MAX", messages=400)
    still.ledger.books[1].sent.clear()
    assert time_of(still, EACH_MS) == CALM_MS
    ended = world("NODE_WINDOW_BYTES", messages=150)
    assert time_of(ended, EACH_MS) == 150 * EACH_MS + STALLED_MS


def test_in_calm_few_acknowledgements_compete_with_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(BLAMELESS["acknowledgements of several clients outlast a timeout"])
    began: Counter[tuple[bool, bool, bool]] = Counter()
    checkout = Consumers.checkout

    def watched(self: Any, queue: Any, command: Any, to: Any, *rest: Any, **named: Any) -> None:
        if queue.name == "impatient":
            began[world.calm, to.owner.steady, command.prefetch > 1] += 1
        checkout(self, queue, command, to, *rest, **named)

    monkeypatch.setattr(Consumers, "checkout", watched)
    world.run()
    assert any(not key[0] for key in began), "before that others consume, too"
    assert {key for key in began if key[0]} == {(True, True, False)}


@pytest.mark.parametrize(
    ("later_ms", "lapsed"), [(DISCONNECTED_MS - 1, []), (DISCONNECTED_MS, [7])]
)
def test_the_time_of_the_log_says_what_was_taken_back(later_ms: int, lapsed: list[int]) -> None:
    disconnects = Disconnects()
    lives = {1: SimpleNamespace(id=1, node="n1", consumers={7: None})}
    lives[2] = SimpleNamespace(id=2, node="n2", consumers={8: None})
    state = SimpleNamespace(uplinks=lives)

    def apply(now: int, *asked: commands.AnyCommand) -> None:
        disconnects.applied(AppliedEntry(3, now, now, Submission(2, "n2", now, asked, 1)), state)

    apply(1_000, commands.NodeSuspected("n1"))
    apply(1_000 + later_ms, commands.NodeBack("n1"))
    apply(2_000 + later_ms)
    assert sorted(disconnects.taken) == [(3, 1, consumer) for consumer in lapsed]
