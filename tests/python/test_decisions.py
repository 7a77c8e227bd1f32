"""A batch and the claims that it settles: one decision on real brokers, whatever is killed."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.python.test_sinks import ready, stage
from warren import Admin, ClaimReader, Connection
from warren.calls import AdminCalls
from warren.errors import (
    BatchConflict,
    BatchPast,
    ClaimLost,
    Conflict,
    Fenced,
    PeerError,
    StageLost,
    Unavailable,
    UsageError,
)
from warren.local import LocalCluster
from warren.stages import SettledClaim, SinkDriver, StagedPart, draw_epoch, publish_batch
from warren_wire.admin.claims import PublishBatchRequest
from warren_wire.block.block import Block

pytestmark = pytest.mark.live

ROWS = [b"in %d" % i for i in range(20)]
MADE = [b"out %d" % i for i in range(20)]


@pytest.fixture
def connection(cluster: LocalCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        yield made


class Pipeline:
    """A queue with ROWS, which a reader has claimed, and a queue for MADE.

    claim  the claim, as a batch names it
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.source, self.target = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("in", "out"))
        for name in (self.source, self.target):
            Admin(connection).queues.declare(name)
        fill = SinkDriver("fill", "run", draw_epoch(connection))
        publish_batch(connection, fill, 0, [stage(connection, fill, self.source, rows=ROWS)])
        self.driver = SinkDriver("s", uuid.uuid4().hex, draw_epoch(connection))
        self.restart()

    def restart(self) -> None:
        """A driver of the reader begins, and finds the same claim."""
        self.reader = ClaimReader(self.connection, self.source, "r")
        self.number = self.reader.register().settled + 1
        found = self.reader.open(self.number, max_messages=100, max_bytes=1 << 20)
        assert found.messages == len(ROWS)
        self.claim = SettledClaim.of(self.reader, self.number)

    def stage(self, batch: int = 0, rows: list[bytes] = MADE) -> StagedPart:
        return stage(self.connection, self.driver, self.target, batch, rows)

    def publish(self, part: StagedPart, batch: int = 0) -> int:
        return publish_batch(self.connection, self.driver, batch, [part], settles=[self.claim])

    def release(self, **how: bool) -> int:
        """An operator gives up the reader."""
        return Admin(self.connection).claims.release(self.source, "r", **how)

    def bind(self, part: StagedPart | None = None, batch: int = 0) -> None:
        """As when a driver dies just before its batch is published."""
        part = part or self.stage()
        with pytest.raises(StageLost):
            self.publish(replace(part, queues=((self.target, 99),)), batch)

    def holds(self) -> tuple[int, int, int]:
        """(ready, claimed) of the source, ready of the target."""
        source, target = (Admin(self.connection).queues.get(q) for q in (self.source, self.target))
        return source.messages_ready, source.messages_claimed, target.messages_ready


def test_publishing_settles_and_a_repeat_does_nothing_more(connection: Connection) -> None:
    line = Pipeline(connection)
    part = line.stage()
    assert [line.publish(part), line.publish(part)] == [20, 20]
    assert ready(connection, line.target) == MADE
    assert line.holds() == (0, 0, 20)
    assert line.publish(line.stage(rows=MADE[::-1])) == 20
    with pytest.raises(BatchConflict):
        line.publish(line.stage(rows=MADE[:9]))
    assert line.holds() == (0, 0, 20)
    assert line.reader.register().settled == line.number
    assert line.release() == 0


def test_a_program_that_keeps_no_state_goes_on_where_it_stands(connection: Connection) -> None:
    # It numbers batches by their claims. Each step is a new start of it; every other one dies when
    # its claim is bound, and the batch not published.
    line = Pipeline(connection)
    line.release()
    run = line.driver.run
    for step in range(8):
        line.driver = SinkDriver("s", run, draw_epoch(connection))
        reader = ClaimReader(connection, line.source, "r")
        number = reader.register().settled + 1
        held = reader.open(number, max_messages=7, max_bytes=1 << 20)
        if not held.open:
            break
        line.claim = SettledClaim.of(reader, number)
        blocks = [Block.decode(piece.data) for piece in reader.fetch(number, 0, held.messages)]
        rows = [bytes(block.body(i)) for block in blocks for i in range(block.count)]
        part = line.stage(number, rows)
        if step % 2:
            assert line.publish(part, number) == held.messages
        else:
            line.bind(part, number)
    assert ready(connection, line.target) == ROWS
    assert line.holds() == (0, 0, 20)


def test_what_was_not_published_is_given_back_and_never_published(connection: Connection) -> None:
    line = Pipeline(connection)
    line.bind()
    assert line.holds() == (0, 20, 0)
    assert line.release() == 20
    assert line.holds() == (20, 0, 0)
    with pytest.raises(BatchPast):
        line.stage()
    line.driver = SinkDriver("s", "another", draw_epoch(connection))
    with pytest.raises(ClaimLost):
        line.publish(line.stage())
    assert line.holds() == (20, 0, 0)


def test_the_next_driver_of_the_reader_publishes_the_claim_as_another_batch(
    connection: Connection,
) -> None:
    # Its checkpoint was lost: another run, another number, and only one of the two is published.
    line = Pipeline(connection)
    part = line.stage()
    line.bind()
    old, line.driver = line.driver, SinkDriver("s", "new checkpoint", draw_epoch(connection))
    old_claim = line.claim
    line.restart()
    assert line.publish(line.stage(7), 7) == 20
    with pytest.raises(Fenced):
        publish_batch(connection, old, 0, [part], settles=[old_claim])
    with pytest.raises(ClaimLost, match="not open"):
        publish_batch(connection, old, 0, [part], settles=[line.claim])
    with pytest.raises(BatchPast):
        publish_batch(connection, old, 0, [part])
    assert line.holds() == (0, 0, 20)


def test_a_batch_number_used_twice_settles_nothing(connection: Connection) -> None:
    line = Pipeline(connection)
    part = line.stage()
    line.publish(part)
    fill = SinkDriver("fill", "again", draw_epoch(connection))
    publish_batch(connection, fill, 0, [stage(connection, fill, line.source, rows=ROWS)])
    line.restart()
    with pytest.raises(BatchConflict, match="other claims"):
        line.publish(part)
    assert line.holds() == (0, 20, 20)
    assert line.release() == 20
    assert line.holds() == (20, 0, 20)


def test_when_the_batchs_queue_is_gone_an_operator_decides(connection: Connection) -> None:
    line = Pipeline(connection)
    line.bind()
    Admin(connection).queues.delete(line.target)
    Admin(connection).queues.declare(line.target)
    with pytest.raises(Conflict, match="nobody|was deleted"):
        line.release()
    assert line.holds() == (0, 20, 0)
    assert line.release(undecided=True) == 20


def test_bad_claims_are_refused_and_nothing_is_published(connection: Connection) -> None:
    line = Pipeline(connection)
    part = line.stage()
    other = stage(connection, line.driver, line.source)
    with pytest.raises(UsageError, match="must be in one queue"):
        publish_batch(connection, line.driver, 0, [part, other], settles=[line.claim])
    for wrong, error, said in (
        (replace(line.claim, number=line.number + 1), ClaimLost, "not open"),
        (replace(line.claim, reader="nobody"), ClaimLost, "no reader 'nobody'"),
        (replace(line.claim, epoch=line.claim.epoch + 1), Fenced, "a newer driver"),
        (replace(line.claim, queue="nowhere"), PeerError, "nowhere"),
        (replace(line.claim, number=0), PeerError, "number=0: a number from 1"),
    ):
        with pytest.raises(error, match=said):
            publish_batch(connection, line.driver, 0, [part], settles=[wrong])
    with pytest.raises(PeerError, match="two claims of one reader"):
        publish_batch(connection, line.driver, 0, [part], settles=[line.claim] * 2)
    assert line.holds() == (0, 20, 0)
    assert line.publish(part) == 20


def test_a_batch_without_rows_settles_its_claims(connection: Connection) -> None:
    line = Pipeline(connection)
    assert publish_batch(connection, line.driver, 0, [], settles=[line.claim]) == 0
    assert line.holds() == (0, 0, 0)


def test_nodes_and_drivers_are_killed_and_the_checkpoint_is_lost(cluster: LocalCluster) -> None:
    """Output published, or input given back: never both, never neither."""
    rng = random.Random(5)
    ends = set()
    for _ in range(6):
        with cluster.connect() as connection:
            line = Pipeline(connection)
            part = line.stage()
            victim = cluster.leader_of(rng.choice((line.source, line.target)))
            killer = threading.Timer(rng.uniform(0, 0.02), cluster.kill, [victim])
            killer.start()
            try:
                run = (line.driver.sink, line.driver.run, line.driver.epoch, 0)
                rows = {line.target: f"{part.partition}:{part.attempt}:{part.blocks}"}
                settles = (
                    {
                        "queue": line.source,
                        "reader": "r",
                        "number": line.number,
                        "epoch": line.claim.epoch,
                    },
                )
                AdminCalls(connection).ask(
                    PublishBatchRequest(*run, rows, settles),
                    timeout_s=rng.choice((0.01, 0.03, 60)),
                )
            except Unavailable:
                pass
            killer.join()
        with cluster.connect() as connection:
            line.connection = connection
            returned = line.release()
            given_back, claimed, published = line.holds()
            assert (claimed, returned) == (0, given_back)
            assert (given_back, published) in ((20, 0), (0, 20))
            ends.add(published)
        cluster.start(victim)
    assert ends
