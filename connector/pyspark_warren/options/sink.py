"""Options of the sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_warren.options.reading import ClaimOptions
from pyspark_warren.options.specs import (
    AS_BATCH,
    AS_STREAM,
    BOTH,
    DAY_MS,
    OTHERS,
    WARREN,
    WRITE,
    Rule,
    count,
    duration,
    options_of,
    parse_bool,
    parse_name,
    parse_short,
    size,
    word_of,
)

_write = options_of(WRITE)
_batch = options_of(WRITE, AS_BATCH)
_stream = options_of(WRITE, AS_STREAM)
_warren = options_of(WRITE, BOTH, WARREN)
_amqp = options_of(WRITE, BOTH, *OTHERS)
_NAMED: Final = "needs sinkId: the name of this output"
_REMEMBERED: Final = (
    Rule(
        lambda o: o.atomic_batch,
        "means nothing with atomicBatch=false: the broker remembers no batch of rows that are "
        "published at once; leave one of them out",
    ),
)


@dataclass(frozen=True, kw_only=True)
class SinkOptions(ClaimOptions):
    """Options of a sink."""

    exchange: str | None = _write(
        "exchange",
        parse_short,
        None,
        "the exchange of every row; left out: column exchange, or the default exchange where "
        "there is none or routingKey is given",
    )
    routing_key: str | None = _write(
        "routingKey",
        parse_short,
        None,
        "the routing key of every row; left out: column routing_key",
    )
    allow_loop: bool = _write(
        "allowLoop", parse_bool, False, "true: a query may publish into the queue that it reads"
    )
    atomic_batch: bool = _write(
        "atomicBatch",
        parse_bool,
        True,
        "true: a micro-batch appears whole and once; false: at once, at least once",
    )
    confirm_timeout_ms: int = _write(
        "confirmTimeout",
        duration(100, DAY_MS),
        60_000,
        "how long to wait for the broker's confirms",
    )
    persistent: bool = _write(
        "persistent", parse_bool, True, "delivery mode 2 for rows without a column delivery_mode"
    )
    block_bytes: int = _warren(
        "blockBytes",
        size(4096, 12 << 20),
        4 << 20,
        "bytes of bodies sent to the broker in one block",
    )
    sink_id: str = _write(
        "sinkId",
        parse_name,
        "",
        "name of this output, under which the broker remembers published batches; default: the "
        "query's id",
    )
    run_id: str = _write(
        "runId",
        parse_name,
        "",
        "each run of sinkId has batch numbers of its own; default: the streaming query's id, "
        "which its checkpoint holds",
        requires=(Rule(lambda o: o.sink_id or not o.run_id, _NAMED),),
    )
    batch_id: int | None = _batch(
        "batchId",
        count(0, 2**62),
        None,
        "df.write with sinkId: the number of this batch in its run; default: in foreachBatch the "
        "micro-batch's; a repeat is published once",
        requires=(Rule(lambda o: o.sink_id, _NAMED),),
    )
    on_batch_conflict: str = _warren(
        "onBatchConflict",
        word_of("fail", "keep"),
        "fail",
        "a batch that was published is run again and has other rows: fail, or keep what was "
        "published and drop these",
        requires=_REMEMBERED,
    )
    on_sink_change: str = _stream(
        "onSinkChange",
        word_of("fail", "continue"),
        "fail",
        "another exchange, routingKey, sinkId, runId or atomicBatch for a batch that may have been "
        "published before: fail, or publish it, perhaps a second time",
    )
    sink_expires_ms: int = _warren(
        "sinkExpires",
        duration(3_600_000, 365 * DAY_MS, "sinks that never expire"),
        0,
        "a run that writes nothing for that long is forgotten by the queues it wrote to; longer "
        "than any query is down in the middle of a batch; 0: never",
        requires=_REMEMBERED,
    )
    publish_window: int = _amqp(
        "publishWindow",
        count(1, 65_535),
        1_000,
        "other brokers: most rows of a task that wait for the broker's confirms",
    )
    deduplication_header: bool = _amqp(
        "deduplicationHeader",
        parse_bool,
        False,
        "other brokers: true: a row's message_id is also its header x-deduplication-id "
        "(broker=amqp), by which a Warren queue with x-deduplication drops repeats, or its "
        "application property _AMQ_DUPL_ID (amqp10), by which ActiveMQ Artemis does",
    )
