"""The bytes of a snapshot: what is written stays as it is, and is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.machines.queue import snapshot_bytes, world
from tests.machines.queue.world import Queue, block, check, named_block
from warren_machines.queue import commands as c
from warren_machines.queue.claims.decision_commands import (
    BindClaim,
    ClaimBinding,
    ClaimName,
    ResolveClaim,
)
from warren_machines.queue.commands import Modify
from warren_machines.queue.delayed import delayed_retry
from warren_machines.queue.filters.filter_commands import Judge, Judged, NotYet
from warren_machines.queue.jobs.job_commands import BeginJob, RecallJob, SteerJob, StepJob
from warren_machines.queue.relays.relay_commands import EnqueueRelayed
from warren_machines.queue.whole_queue import counts
from warren_wire.queue_values.describe_command import DescribeClaim, ReadBy
from warren_wire.queue_values.give_up_command import GiveUpClaim


def a_queue() -> Queue:
    """One with something in every place."""
    queue = Queue(dead_letter_exchange="dlx", delivery_limit=7)
    queue.put(3)
    queue.put(
        4, size=[5, 10, 10, 90], priorities=[9, 4, 4, 0], ttls_ms=[None, 20_000, 30_000, 4_000_000]
    )
    for number in range(5):
        queue.put(1, size=20 + number)
    queue.do(c.Checkout(1, 1, "t", 2))
    queue.do(c.Return(1, ((0, 0),), True))
    queue.do(c.RegisterReader("r"))
    queue.do(c.OpenClaim("r", 1, 1, 2, 10**6, 5000))
    queue.do(c.SinkStage("t", "r", 1, 3, 0, 1, 99), block(2, [7, 300]))
    return queue


def a_queue_with_sinks() -> Queue:
    """The same with readers, runs of sinks, and a suspected node."""
    queue = a_queue()
    queue.do(c.RegisterReader("gone"))
    queue.do(c.ReleaseClaim("gone", 0, 2))
    queue.do(c.RegisterReader("user"))
    queue.do(c.OpenClaim("user", 2, 3, 1, 10**6))
    for batch in (4, 5):
        queue.do(c.SinkStage("s", "run", 9, batch, 0, 7, 1000, 60_000, 1), block(2, [7, 300]))
    queue.do(c.SinkPublish("s", "run", 9, 4, ((0, 7, 1),)))
    queue.do(c.SinkStage("s", "run", 9, 4, 0, 8, 1000, 0, 1), block(2, [7, 300]))
    queue.submit(c.Checkout(1, 1, "far", 2), uplink=70, node="far", number=700)
    queue.submit(c.NodeDown(60, "far", 600), c.NodeSuspected("far", True), uplink=9)
    return queue


def a_queue_with_delayed() -> Queue:
    """The same with delayed messages: some to be ready at their times, some at once."""
    queue = a_queue_with_sinks()
    queue.do(
        c.Configure(
            queue.reconfigured(
                delayed_retry_type="all", delayed_retry_min_ms=1000, delayed_retry_max_ms=2500
            )
        )
    )
    for at in range(4):
        queue.put(3, size=[7, 8 + at, 300])
    queue.do(c.Checkout(2, 2, "t", 100))
    queue.do(c.Return(2, tuple((at, at) for at in range(0, 12, 2)), True))
    queue.now += 7
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delayed_retry, "READY_RUNS_MAX", 1)
        queue.do(c.RetryDelayed())
        queue.do(c.Return(2, ((7, 7), (9, 9)), False))
    assert queue.state.delayed.count > queue.state.delayed.forced > 0
    return queue


def a_queue_with_letters() -> Queue:
    """The same with letters, of which some in the middle are gone."""
    queue = a_queue_with_delayed()
    queue.do(
        c.Configure(
            queue.reconfigured(dead_letter_strategy="at-least-once", overflow="reject-publish")
        )
    )
    queue.got(2)
    queue.put(5, size=11)
    held = [msg_id for msg_id, *_ in queue.got(2)]
    queue.do(c.Discard(2, ((held[0], held[3]),)))
    queue.do(c.Discard(2, ((1, 3),)))
    number, _, first, last, *_ = next(iter(queue.state.letters))
    queue.now += 3
    queue.do(c.SettleLetters(((number, first + 1, last - 1),)))
    assert queue.state.letters.count >= 2, list(queue.state.letters)
    return queue


def a_queue_with_ids() -> Queue:
    """It remembers ids of both forms, from two times, and has dropped duplicates."""
    queue = Queue(deduplication=True, deduplication_window=7, deduplication_ttl_ms=5000)
    queue.do(c.Enqueue(), named_block(["a", "b", ("p", 1), ("p", 2), ("q", 1), "c"]))
    queue.now += 900
    queue.do(c.Enqueue(), named_block([("p", 3), "c", ("p", 1), ("q", 9), "d"]))
    assert (queue.stat().duplicates_dropped, queue.stat().deduplication_ids) == (2, 7)
    return queue


def a_queue_with_what_came_back() -> Queue:
    """A classic one with priorities: some came back to their old places."""
    queue = Queue(kind="classic", priority_max=5, priority_default=0)
    queue.put(3, priorities=5)
    queue.do(c.Checkout(1, 1, "t", 2))
    queue.put(4, priorities=[4, 4, 0, 0])
    queue.do(c.Cancel(1))
    queue.do(c.Checkout(2, 2, "t", 4))
    queue.do(c.Cancel(2))
    queue.do(c.Return(1, ((0, 1),), True))
    queue.do(c.Return(2, ((2, 3),), False))
    queue.do(c.Return(2, ((0, 1),), True))
    assert queue.stat().returned == 6
    return queue


def a_queue_with_annotations() -> Queue:
    """Two messages of a block, of which one is delayed, with annotations of their own."""
    queue = Queue()
    queue.put(3)
    queue.do(c.Checkout(1, 1, "t", 9))
    queue.do(Modify(1, ((0, 1),), annotations=(("x-opt-a", b"\x54\x01"),)))
    queue.do(Modify(1, ((3, 3),), True, False, (("x-opt-b", b"\x41"),), queue.now + 9))
    assert queue.stat().messages_delayed == 1
    return queue


def a_queue_with_decisions() -> Queue:
    """A claim that a batch has settled, one that is bound, and a batch that settles a claim."""
    queue = Queue()
    queue.put(5)
    queue.do(c.RegisterReader("r"))
    for number in (1, 2):
        batch = ClaimBinding("out", 7, "s", "run", number, 3)
        queue.do(c.OpenClaim("r", number, 1, 2, 10**6, 5000))
        queue.do(BindClaim("r", number, 1, batch))
        queue.do(ResolveClaim("r", 1, batch, True))
    queue.do(c.SinkStage("s", "run", 9, 4, 0, 7, 1000, 0, 1), block(2, [7, 300]))
    queue.do(c.SinkPublish("s", "run", 9, 4, ((0, 7, 1),), (ClaimName(5, "r", 1),)))
    queue.state.forgotten_epoch = 8
    return queue


def a_queue_with_expiries() -> Queue:
    """A reader that expires and one that does not, and a run of a sink that expires."""
    queue = a_queue_with_decisions()
    queue.do(c.RegisterReader("s", expires_ms=60_000))
    queue.do(c.SinkStage("s", "run", 9, 5, 0, 7, 1000, 0, 1), block(1, [7]))
    queue.now += 5
    queue.do(c.SinkPublish("s", "run", 9, 5, ((0, 7, 1),), expires_ms=3_600_000))
    return queue


def a_queue_with_a_described_claim() -> Queue:
    """A claim of a reader, read by a batch of a query with a name."""
    queue = a_queue_with_expiries()
    queue.do(c.OpenClaim("s", 1, 2, 1, 10**6))
    queue.do(DescribeClaim("s", 1, ReadBy("0d3c", "orders", 41)))
    return queue


def a_queue_with_a_divided_claim() -> Queue:
    """A claim in two parts, one of which is claimed, and a message that failed alone."""
    queue = a_queue_with_a_described_claim()
    queue.do(c.RegisterReader("p"))
    epoch = queue.state.readers["p"].epoch
    for number, most in ((1, 1), (2, 2)):
        queue.put(most)
        queue.do(c.OpenClaim("p", number, epoch, most, 10**6, 9000))
        queue.do(GiveUpClaim("p", number, epoch, "divide", 3))
        queue.do(c.SettleClaims("p", number, epoch))
    queue.do(c.OpenClaim("p", 3, epoch, 1, 10**6, 9000))
    return queue


def a_queue_with_relays() -> Queue:
    """A relay with a session and one without, of both something is kept, and two origins."""
    queue = a_queue_with_a_divided_claim()
    queue.put(6)
    queue.do(c.Checkout(31, 31, "t", 2, relay="away", origin=71))
    queue.do(c.SessionDown(31, True))
    queue.do(c.Checkout(32, 32, "t", 3, relay="here", origin=72))
    queue.do(c.SessionDown(32, False))
    queue.do(c.Checkout(33, 33, "t", 1, relay="here", origin=73))
    queue.do(c.Settle(33, ((0, 0),)))
    for numbers in (((2, 4), (1, 9)), ((1, 4), (1, 11))):
        count = sum(run[0] for run in numbers)
        queue.do(EnqueueRelayed(5, 3, numbers), block(count))
    queue.do(EnqueueRelayed(6, 8, ((1, 8),)), block(1))
    assert queue.state.relays["away"].kept_count and queue.state.origins.dropped == 1
    return queue


def a_queue_with_filters() -> Queue:
    """Two consumers of one filter, one of another that is behind; a drain waits, one is parked."""
    queue = a_queue_with_relays()
    for _ in range(3):
        queue.put(3)
    queue.do(c.Checkout(11, 5, "t", explicit_credit=True, filter=b"even"))
    queue.do(c.Checkout(12, 5, "t", explicit_credit=True, filter=b"even"))
    queue.do(c.Checkout(13, 6, "t", 5, filter=b"all"))
    indexes = list(queue.machine.live_indexes(queue.state))
    parts = tuple((index, b"\x05") for index in indexes[-2:])
    queue.do(Judge((Judged(1, 0, queue.index, (indexes[-3],), parts),)))
    queue.do(c.Credit(11, 0, 2))
    assert queue.do(c.Credit(12, 0, 90)) == c.Done()
    queue.put(2)
    assert queue.do(c.Credit(11, 2, 1, True)) == NotYet()
    return queue


def a_queue_with_a_counted_reader() -> Queue:
    """One that has registered twice."""
    queue = a_queue_with_filters()
    for _ in range(2):
        queue.do(c.RegisterReader("counted"))
    return queue


def a_queue_with_a_claim_ahead() -> Queue:
    """A reader with two open claims, the second of which its second driver has opened ahead."""
    queue = a_queue_with_a_counted_reader()
    queue.do(c.RegisterReader("ahead"))
    queue.do(c.RegisterReader("ahead"))
    epoch = queue.state.readers["ahead"].epoch
    first = queue.state.readers["ahead"].settled + 1
    queue.put(4)
    queue.do(c.OpenClaim("ahead", first, epoch, 1, 10**6))
    queue.do(c.OpenClaim("ahead", first + 1, epoch, 1, 10**6, ahead=True))
    assert queue.state.readers["ahead"].ahead == (first + 1, epoch)
    return queue


def a_queue_with_jobs() -> Queue:
    """Of one that moves, one that keeps what it has dropped, one undone, and one being undone."""
    queue = a_queue()
    index, moved = queue.put(9), queue.put(5)
    numbers = [queue.do(BeginJob(w, w, 71, 9000, b"x")).job.number for w in ("move", "drop")]
    queue.do(StepJob(numbers[0], 0, take=((index, 1, 3),), at=(index, 3), looked=4, why="full"))
    queue.do(StepJob(numbers[0], 1, settled=((index, 2, 2),), targets=((5, "t"),)))
    queue.now += 3
    queue.do(StepJob(numbers[1], 0, take=((index, 5, 6),), at=(index, 8), finished=True))
    undone = queue.do(BeginJob("", "drop", 72, 9000, b"y")).job.number
    queue.do(StepJob(undone, 0, take=((index, 7, 8),), finished=True))
    queue.do(SteerJob(undone, "undo"))
    queue.do(StepJob(undone, 1, finished=True))
    queue.do(SteerJob(numbers[0], "pause"))
    being = queue.do(BeginJob("", "move", 73, 9000, b"z")).job.number
    all_of = ((moved, 0, 4),)
    queue.do(StepJob(being, 0, take=all_of, looked=5))
    to = ((5, "t"), (6, "u"))
    queue.do(StepJob(being, 1, settled=all_of, finished=True, targets=to))
    queue.do(SteerJob(being, "undo"))
    queue.do(RecallJob(being, 5, ((moved, 1, 2),), 2))
    queue.do(StepJob(being, 2, over=((6, True),), finished=True))
    return queue


def a_queue_that_was_read_ahead() -> Queue:
    """A consumer that is given messages ahead, and what goes back unsent to its lane."""
    queue = a_queue_with_jobs()
    queue.do(c.Checkout(8, 8, "ahead", 2), uplink=7)
    queue.put(5)
    queue.do(c.Credit(8, 0, 2), uplink=7)
    queue.do(c.Return(8, ((2, 9),), failed=False, unseen=True), uplink=7)
    queue.do(c.Credit(8, 0, 1), uplink=7)
    return queue


MADE: dict[str, Callable[[], Queue]] = {
    "LETTERS": a_queue_with_letters,
    "IDS": a_queue_with_ids,
    "CAME_BACK": a_queue_with_what_came_back,
    "ANNOTATIONS": a_queue_with_annotations,
    "CLAIMS": a_queue_with_a_claim_ahead,
}
"""By the name of its frozen bytes; each holds what those have that it begins with."""


def test_what_format_2_wrote_is_written_and_read() -> None:
    _is_written_and_read(a_queue_with_jobs(), snapshot_bytes.JOBS)


@pytest.mark.parametrize("name", MADE)
def test_what_format_1_wrote_is_written_and_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "NEWEST", 1)
    _is_written_and_read(MADE[name](), getattr(snapshot_bytes, name))


def _is_written_and_read(queue: Queue, written: str) -> None:
    # Another layout needs another format, and code that still reads this one.
    assert queue.digest().hex() == written
    state = queue.machine.restore(bytes.fromhex(written))
    check(state)
    assert list(state.order) == list(queue.state.order)
    assert counts(state) == queue.stat()
    assert queue.machine.live_indexes(state) == queue.machine.live_indexes(queue.state)
    assert queue.machine.snapshot(state) == queue.digest()


def test_so_is_what_was_read_ahead() -> None:
    _is_written_and_read(a_queue_that_was_read_ahead(), snapshot_bytes.READ_AHEAD)
