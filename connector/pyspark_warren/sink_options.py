"""Options of the sink; see option_table."""

from __future__ import annotations

from typing import Final

from pyspark_warren.option_spec import AMQP, DAY_MS, WARREN, Spec
from pyspark_warren.option_values import (
    parse_bool,
    parse_count,
    parse_duration_ms,
    parse_name,
    parse_size,
    word_of,
)

SINK: Final[tuple[Spec, ...]] = (
    Spec(
        "exchange",
        "exchange",
        str,
        None,
        "the exchange of every row; left out: column exchange, or the default exchange where "
        "there is none or routingKey is given",
        "write",
    ),
    Spec(
        "routingKey",
        "routing_key",
        str,
        None,
        "the routing key of every row; left out: column routing_key",
        "write",
    ),
    Spec(
        "allowLoop",
        "allow_loop",
        parse_bool,
        False,
        "true: a query may publish into the queue that it reads",
        "write",
    ),
    Spec(
        "atomicBatch",
        "atomic_batch",
        parse_bool,
        True,
        "true: a micro-batch appears whole and once; false: at once, at least once",
        "write",
    ),
    Spec(
        "confirmTimeout",
        "confirm_timeout_ms",
        parse_duration_ms,
        60_000,
        "how long to wait for the broker's confirms",
        "write",
        100,
        DAY_MS,
    ),
    Spec(
        "persistent",
        "persistent",
        parse_bool,
        True,
        "delivery mode 2 for rows without a column delivery_mode",
        "write",
    ),
    Spec(
        "blockBytes",
        "block_bytes",
        parse_size,
        4 << 20,
        "bytes of bodies sent to the broker in one block",
        "write",
        4096,
        12 << 20,
        broker=WARREN,
    ),
    Spec(
        "sinkId",
        "sink_id",
        parse_name,
        "",
        "name of this output, under which the broker remembers published batches; default: the "
        "query's id",
        "write",
    ),
    Spec(
        "runId",
        "run_id",
        parse_name,
        "",
        "each run of sinkId has batch numbers of its own; default: the streaming query's id, "
        "which its checkpoint holds",
        "write",
    ),
    Spec(
        "batchId",
        "batch_id",
        parse_count,
        None,
        "df.write with sinkId: the number of this batch in its run; default: in foreachBatch the "
        "micro-batch's; a repeat is published once",
        "write",
        0,
        2**62,
        "batch",
    ),
    Spec(
        "onBatchConflict",
        "on_batch_conflict",
        word_of("fail", "keep"),
        "fail",
        "a batch that was published is run again and has other rows: fail, or keep what was "
        "published and drop these",
        "write",
        broker=WARREN,
    ),
    Spec(
        "onSinkChange",
        "on_sink_change",
        word_of("fail", "continue"),
        "fail",
        "another exchange, routingKey, sinkId, runId or atomicBatch for a batch that may have been "
        "published before: fail, or publish it, perhaps a second time",
        "write",
        how="stream",
    ),
    Spec(
        "sinkExpires",
        "sink_expires_ms",
        parse_duration_ms,
        0,
        "a run that writes nothing for that long is forgotten by the queues it wrote to; longer "
        "than any query is down in the middle of a batch; 0: never",
        "write",
        0,
        365 * DAY_MS,
        broker=WARREN,
    ),
    Spec(
        "publishWindow",
        "publish_window",
        parse_count,
        1_000,
        "broker=amqp: most rows of a task that wait for the broker's confirms",
        "write",
        1,
        65_535,
        broker=AMQP,
    ),
    Spec(
        "deduplicationHeader",
        "deduplication_header",
        parse_bool,
        False,
        "broker=amqp: true: a row's message_id is also its header x-deduplication-id, by which a "
        "Warren queue with x-deduplication drops repeats",
        "write",
        broker=AMQP,
    ),
)
