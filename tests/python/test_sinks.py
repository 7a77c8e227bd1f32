"""Sinks and claims of real brokers: zombie drivers, late requests, expired claims."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from tests.patience import PATIENCE_S
from warren import Admin, ClaimReader, Connection, StageWriter, stages
from warren.claims import browse
from warren.errors import BatchConflict, BatchPast, ClaimLost, Fenced, NotFound, StageLost
from warren.local import LocalCluster
from warren.stages import SinkDriver, StagedPart, draw_epoch, drop_batch, publish_batch
from warren_wire.block.block import Block, encode

pytestmark = pytest.mark.live

ROWS = [b"row %d" % i for i in range(100)]


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


@pytest.fixture
def connection(cluster: LocalCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        yield made


@pytest.fixture
def queue(connection: Connection) -> str:
    name = f"q-{uuid.uuid4().hex[:8]}"
    Admin(connection).queues.declare(name)
    return name


def stage(
    connection: Connection,
    driver: SinkDriver,
    queue: str,
    batch: int = 0,
    rows: list[bytes] = ROWS,
    blocks: int = 3,
    partition: int = 0,
) -> StagedPart:
    with StageWriter(connection, driver, batch=batch, partition=partition) as writer:
        size = -(-len(rows) // blocks)
        for at in range(0, len(rows), size):
            some = rows[at : at + size]
            writer.write(encode(some, [b"\0\0"] * len(some), (b"", queue.encode())))
        return writer.finish()


def ready(connection: Connection, queue: str) -> list[bytes]:
    found = []
    for piece in browse(connection, queue, 10_000):
        block = Block.decode(piece.data)
        found += [bytes(block.body(i)) for i in range(block.count)]
    return found


def test_a_zombie_driver_does_not_lose_the_batch_of_its_successor(
    connection: Connection, queue: str
) -> None:
    # The old one published attempts that were not there any more: 0 rows, and the batch was done.
    old = SinkDriver("s", "run", draw_epoch(connection))
    stale = stage(connection, old, queue)
    new = SinkDriver("s", "run", draw_epoch(connection))
    assert new.epoch > old.epoch
    part = stage(connection, new, queue)
    for zombie in (
        lambda: publish_batch(connection, old, 0, [stale]),
        lambda: drop_batch(connection, old, 0, [stale]),
        lambda: stage(connection, old, queue),
    ):
        with pytest.raises(Fenced):
            zombie()
    assert publish_batch(connection, new, 0, [part]) == 100
    assert ready(connection, queue) == ROWS


def test_a_delayed_delete_does_not_lose_the_batch(connection: Connection, queue: str) -> None:
    driver = SinkDriver("s", "run", draw_epoch(connection))
    failed = stage(connection, driver, queue)
    part = stage(connection, driver, queue)
    drop_batch(connection, driver, 0, [failed])
    assert publish_batch(connection, driver, 0, [part]) == 100
    drop_batch(connection, driver, 0, [failed, part])
    assert ready(connection, queue) == ROWS


def test_a_publish_that_is_repeated_says_what_was_published(
    connection: Connection, queue: str
) -> None:
    driver = SinkDriver("s", "run", draw_epoch(connection))
    part = stage(connection, driver, queue)
    assert [publish_batch(connection, driver, 0, [part]) for _ in range(3)] == [100] * 3
    assert ready(connection, queue) == ROWS


def test_what_is_not_staged_is_not_published(connection: Connection, queue: str) -> None:
    driver = SinkDriver("s", "run", draw_epoch(connection))
    part = stage(connection, driver, queue)
    other = StagedPart(1, 12345, ((queue, 1),), 1, 10)
    with pytest.raises(StageLost, match="partition 1, attempt 12345 has nothing staged"):
        publish_batch(connection, driver, 0, [part, other])
    assert ready(connection, queue) == []
    assert publish_batch(connection, driver, 0, [part]) == 100


def test_a_batch_repeated_in_another_order_is_there_once(
    connection: Connection, queue: str
) -> None:
    publish_rows(connection, "run", queue, ROWS)
    again = publish_rows(connection, "run", queue, ROWS[::-1], blocks=7)
    assert again == 100 and ready(connection, queue) == ROWS
    with pytest.raises(BatchConflict, match="batch 0 was published with 100 messages"):
        publish_rows(connection, "run", queue, [*ROWS[:-1], b"another"])
    assert ready(connection, queue) == ROWS


def publish_rows(
    connection: Connection, run: str, queue: str, rows: list[bytes], batch: int = 0, blocks: int = 3
) -> int:
    driver = SinkDriver("s", run, draw_epoch(connection))
    part = stage(connection, driver, queue, batch, rows, blocks)
    return publish_batch(connection, driver, batch, [part])


def test_batch_numbers_rise_in_a_run_and_restart_later(connection: Connection, queue: str) -> None:
    assert publish_rows(connection, "first", queue, ROWS, batch=4) == 100
    assert publish_rows(connection, "second", queue, ROWS) == 100
    with pytest.raises(BatchPast, match="batch 0 is not after the last one, 4"):
        publish_rows(connection, "first", queue, ROWS)
    assert ready(connection, queue) == ROWS + ROWS


def test_a_queue_that_was_deleted_with_its_stages_is_no_published_batch(
    connection: Connection, queue: str
) -> None:
    driver = SinkDriver("s", "run", draw_epoch(connection))
    part = stage(connection, driver, queue)
    Admin(connection).queues.delete(queue)
    with pytest.raises(StageLost, match="was deleted"):
        publish_batch(connection, driver, 0, [part])
    drop_batch(connection, driver, 0, [part])


def test_a_batch_over_several_queues_is_published_by_each(connection: Connection) -> None:
    names = [f"many-{i}-{uuid.uuid4().hex[:6]}" for i in range(20)]
    for name in names:
        Admin(connection).queues.declare(name, durable=False)
    driver = SinkDriver("s", "run", draw_epoch(connection))
    parts = []
    for partition in range(2):
        with StageWriter(connection, driver, batch=0, partition=partition) as writer:
            for name in names[partition:]:
                writer.write(encode([b"%d" % partition], [b"\0\0"], (b"", name.encode())))
            parts.append(writer.finish())
    assert publish_batch(connection, driver, 0, parts) == 39
    assert ready(connection, names[0]) == [b"0"] and ready(connection, names[5]) == [b"0", b"1"]


def test_a_batch_half_published_by_a_zombie_is_there_once(
    connection: Connection, queue: str
) -> None:
    other = f"{queue}-other"
    Admin(connection).queues.declare(other)
    zombie = SinkDriver("s", "run", draw_epoch(connection))
    staged = [stage(connection, zombie, name, partition=i) for i, name in enumerate((queue, other))]
    driver = SinkDriver("s", "run", draw_epoch(connection))
    again = [stage(connection, driver, other, blocks=5, partition=4)]  # it has met one of them
    with pytest.raises(Fenced):
        publish_batch(connection, zombie, 0, staged)
    assert ready(connection, queue) == ROWS and ready(connection, other) == []
    again.append(stage(connection, driver, queue, rows=ROWS[::-1], blocks=2, partition=7))
    for _ in range(2):
        assert publish_batch(connection, driver, 0, again) == 200
    assert ready(connection, queue) == ready(connection, other) == ROWS
    with pytest.raises(Fenced):
        publish_batch(connection, zombie, 0, staged)


def test_a_conflict_in_one_queue_does_not_keep_the_batch_from_the_others(
    connection: Connection, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keeping what was published first (onBatchConflict) takes the other queues for published."""
    monkeypatch.setattr(stages, "REQUEST_BYTES", 1)  # as with thousands of attempts and queues
    others = [f"{queue}-after", f"a-{queue}"]
    for name in others:
        Admin(connection).queues.declare(name)
    publish_rows(connection, "run", queue, ROWS)
    driver = SinkDriver("s", "run", draw_epoch(connection))
    parts = [
        stage(connection, driver, name, 0, ROWS[:7], 1, partition)
        for partition, name in enumerate((queue, *others))
    ]
    with pytest.raises(BatchConflict, match="batch 0 was published with 100 messages"):
        publish_batch(connection, driver, 0, parts)
    assert ready(connection, queue) == ROWS
    assert [ready(connection, name) for name in others] == [ROWS[:7], ROWS[:7]]


def test_epochs_ascend_whoever_asks(cluster: LocalCluster) -> None:
    epochs = []
    for number in range(20):
        with cluster.connect() as connection:
            epochs.append(SinkDriver(f"s{number % 2}", "run", draw_epoch(connection)).epoch)
    assert epochs == sorted(set(epochs))


# ------------------------------------------------------------ claims


def expired_claim(connection: Connection, queue: str) -> tuple[ClaimReader, int]:
    """Return the number of a reader's first claim, which was opened, read and has expired."""
    publish_rows(connection, "fill", queue, ROWS)
    reader = ClaimReader(connection, queue, "driver")
    first = reader.register().settled + 1
    assert reader.open(first, max_messages=100, max_bytes=1 << 20, ttl_ms=1).messages == 100
    deadline = time.monotonic() + PATIENCE_S
    while Admin(connection).queues.get(queue).messages_ready != 100:
        assert time.monotonic() < deadline, "the claim does not expire"
    return reader, first


def test_settling_an_expired_claim_is_an_error_and_its_messages_are_not_taken_again(
    connection: Connection, queue: str
) -> None:
    reader, first = expired_claim(connection, queue)
    with pytest.raises(ClaimLost, match=f"claim {first} "):
        reader.settle(first)
    with pytest.raises(ClaimLost):
        reader.open(first + 1, max_messages=100, max_bytes=1 << 20)
    assert Admin(connection).queues.get(queue).messages_ready == 100


def test_a_driver_that_says_so_goes_on_after_a_lost_claim(
    connection: Connection, queue: str
) -> None:
    reader, first = expired_claim(connection, queue)
    assert reader.register(go_on_after=first).settled == first
    assert reader.open(first + 1, max_messages=100, max_bytes=1 << 20).messages == 100
    assert (reader.settle(first + 1), reader.settle(first + 1)) == (100, 0)


def test_the_numbers_of_a_reader_that_was_released_are_not_used_again(
    connection: Connection, queue: str
) -> None:
    reader, first = expired_claim(connection, queue)
    reader.release(0)
    with pytest.raises(ClaimLost):
        reader.renew()
    settled = reader.register().settled
    assert settled > first
    assert reader.open(settled + 1, max_messages=7, max_bytes=1 << 20).messages == 7


def test_the_requests_of_the_first_version_are_not_there(connection: Connection) -> None:
    assert connection.request("GET", "/overview")["api"] == 2
    with pytest.raises(NotFound, match="no resource"):
        connection.request("POST", "/sinks/s/batches/1", {"attempts": [], "queues": ["q"]})
