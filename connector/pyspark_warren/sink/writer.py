"""The executor's side of a sink's partition: encodes, sends and waits for confirms."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from pyspark_warren.claims.client import DirectWriter, WarrenBroker
from pyspark_warren.options.options import Options
from pyspark_warren.options.specs import AMQP, WARREN
from pyspark_warren.rows import compute as pc
from pyspark_warren.rows.blocks import blocks_of
from pyspark_warren.rows.encode import EncodedRows, encode_rows
from pyspark_warren.sink.checkpoint import refuse_read_queues
from warren.outgoing import SEND_WINDOW_BYTES
from warren.stages import SinkDriver, StagedPart, StageKey, StageWriter
from warren_wire.arguments import DURATION_MS_MAX
from warren_wire.kernel.properties import EXPIRATION_MS_MAX
from warren_wire.links.uris import AMQP10

SPARK_ATTEMPT_BITS = 53
_ID_HEADERS = {AMQP: "x-deduplication-id", AMQP10: "_AMQ_DUPL_ID"}
"""By these headers a Warren queue with x-deduplication (queues.md), and ActiveMQ Artemis, recognise
a message."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of one partition of one batch.

    driver  the batch's sink, run and epoch
    number  random, not Spark's attempt number: that starts at 0 again when a query is
            restarted, and a stage of the same name could hold rows of an earlier attempt
    """

    driver: SinkDriver
    batch: int
    partition: int
    number: int

    @classmethod
    def drawn(cls, driver: SinkDriver, batch: int, partition: int) -> Attempt:
        """Return an attempt with a new random number."""
        return cls(driver, batch, partition, secrets.randbits(SPARK_ATTEMPT_BITS))

    def id_prefix(self) -> str:
        """Return what begins the message_id of rows without one: the same in each attempt."""
        # Includes the run: under a new checkpoint batch 0 has other rows, which are no duplicates.
        sink, run = self.driver.sink, self.driver.run
        name = sink if sink == run else f"{sink}-{run}"
        return f"{name}-{self.batch}-{self.partition}-"


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """The output of an attempt, for the driver.

    stages  one per exchange with rows; none when the partition was empty, or published directly
    """

    driver: SinkDriver
    batch: int
    partition: int
    rows: int
    stages: tuple[StagedPart, ...]


def keep_freed_memory() -> None:
    """Have this process use the memory of freed blocks again; once is enough.

    1. Two blocks of 2 MiB are sent and freed.  2. glibc gives 4 MiB of free memory at the end of
    its heap back to the system.  3. The next block is new memory again, 512 page faults, which
    take longer than making it. Once a larger piece was freed, glibc keeps twice as much
    (mallopt(3), M_MMAP_THRESHOLD). Other allocators take no notice.
    """
    bytearray(SEND_WINDOW_BYTES)


def write_staged(
    broker: WarrenBroker, options: Options, attempt: Attempt, rows: Iterator[pa.RecordBatch]
) -> WrittenPart:
    """Stage the rows: on return they are on a majority's disks, and invisible."""
    timeout_s = options.confirm_timeout_ms / 1000

    def open_stage(exchange: str, ordinal: int) -> StageWriter | DirectWriter:
        # One stage per exchange: its blocks are numbered, so two exchanges cannot share one.
        return broker.stage(
            exchange,
            attempt.driver,
            StageKey(attempt.batch, attempt.partition, attempt.number + ordinal),
            timeout_s,
        )

    count, stages = _write(options, rows, open_stage, None)
    return WrittenPart(attempt.driver, attempt.batch, attempt.partition, count, stages)


def write_direct(
    broker: WarrenBroker, options: Options, attempt: Attempt, rows: Iterator[pa.RecordBatch]
) -> WrittenPart:
    """Publish the rows, confirmed on return; a re-run publishes them again.

    Rows without a message_id get one that is the same in a re-run of the same rows in the same
    order, so that consumers can detect duplicates.
    """
    timeout_s = options.confirm_timeout_ms / 1000

    def open_publisher(exchange: str, ordinal: int) -> StageWriter | DirectWriter:
        return broker.publisher(exchange, timeout_s)

    count, _ = _write(options, rows, open_publisher, attempt.id_prefix())
    return WrittenPart(attempt.driver, attempt.batch, attempt.partition, count, ())


def _write(
    options: Options,
    rows: Iterator[pa.RecordBatch],
    open_writer: Callable[[str, int], StageWriter | DirectWriter],
    id_prefix: str | None,
) -> tuple[int, tuple[StagedPart, ...]]:
    keep_freed_memory()
    writers: dict[str, StageWriter | DirectWriter] = {}
    read: set[str] = set()
    count = 0
    try:
        for encoded in encoded_batches(options, rows, id_prefix, read):
            count += len(encoded)
            for exchange, part in _by_exchange(encoded):
                if exchange not in writers:
                    writers[exchange] = open_writer(exchange, len(writers))
                for block in blocks_of(part, options.block_bytes):
                    writers[exchange].write(block)
        parts = tuple(writer.finish() for writer in writers.values())
        refuse_read_queues(options, read, (queue for part in parts for queue, _ in part.queues))
        return count, parts
    except BaseException:
        for writer in writers.values():
            writer.close()
        raise


def encoded_batches(
    options: Options, rows: Iterator[pa.RecordBatch], id_prefix: str | None, read: set[str]
) -> Iterator[EncodedRows]:
    """Encode the batches of a partition that have rows.

    id_prefix  begins the message_id of rows without one, before the row's number; None: none
    read       takes the queues that the rows say they come from
    raises     SchemaError; SameQueueError for a queue that the default exchange names (those of
               other exchanges are known once rows are staged)
    """
    count = 0
    for batch in rows:
        if not batch.num_rows:
            continue
        ids = None if id_prefix is None else _message_ids(id_prefix, count, batch.num_rows)
        encoded = encode_rows(
            batch,
            options.exchange,
            options.routing_key,
            options.persistent,
            ids,
            _ID_HEADERS[options.broker] if options.deduplication_header else None,
            EXPIRATION_MS_MAX if options.broker == WARREN else DURATION_MS_MAX,
        )
        count += batch.num_rows
        if "queue" in batch.schema.names:
            read.update(filter(None, pc.unique(batch.column("queue")).to_pylist()))
            refuse_read_queues(options, read, (key for name, key in encoded.routes if not name))
        yield encoded


def _message_ids(prefix: str, first: int, count: int) -> pa.StringArray:
    numbers = pa.array(range(first, first + count), pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(pa.scalar(prefix), numbers, "")


def _by_exchange(rows: EncodedRows) -> Iterator[tuple[str, EncodedRows]]:
    """Yield the rows of each exchange, in their order; usually there is one exchange."""
    exchanges = list(dict.fromkeys(exchange for exchange, _ in rows.routes))
    if len(exchanges) == 1:
        yield exchanges[0], rows
        return
    assert rows.route_ids is not None
    for exchange in exchanges:
        ids = pa.array(
            [i for i, route in enumerate(rows.routes) if route[0] == exchange], pa.int32()
        )
        yield exchange, rows.take(pc.indices_nonzero(pc.is_in(rows.route_ids, ids)))
