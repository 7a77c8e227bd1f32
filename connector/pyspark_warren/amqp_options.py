"""Options of a source on another AMQP 0.9.1 broker: spool and streams; see option_table."""

from __future__ import annotations

from typing import Final

from pyspark_warren.option_spec import AMQP, DAY_MS, INT_MAX, Spec
from pyspark_warren.option_values import (
    END,
    parse_bool,
    parse_count,
    parse_duration_ms,
    parse_stream_end,
    parse_stream_start,
    word_of,
)

AMQP_SOURCE: Final[tuple[Spec, ...]] = (
    Spec(
        "spoolLocation",
        "spool_location",
        str,
        "",
        "broker=amqp: directory of received messages that driver and executors reach, a path or a "
        "URI that pyarrow.fs knows; default: warren-spool in checkpointLocation, where that is "
        "given as an option of the source",
        "read",
        how="stream",
        broker=AMQP,
    ),
    Spec(
        "ackMode",
        "ack_mode",
        word_of("commit", "spool"),
        "commit",
        "broker=amqp: when messages are acknowledged: commit: when Spark has committed their "
        "batch; spool: when they are in spoolLocation",
        "read",
        how="stream",
        broker=AMQP,
    ),
    Spec(
        "prefetch",
        "prefetch",
        parse_count,
        50_000,
        "broker=amqp: most unacknowledged messages of one receiver",
        "read",
        1,
        65_535,
        "stream",
        AMQP,
    ),
    Spec(
        "receivers",
        "receivers",
        parse_count,
        1,
        "broker=amqp: consumers of the queue, each on a connection of its own",
        "read",
        1,
        64,
        "stream",
        AMQP,
    ),
    Spec(
        "consumerTimeout",
        "consumer_timeout_ms",
        parse_duration_ms,
        1_800_000,
        "broker=amqp: the broker's limit on the age of an unacknowledged delivery, for a warning "
        "before it; 0: none",
        "read",
        0,
        365 * DAY_MS,
        "stream",
        AMQP,
    ),
    Spec(
        "deliveryLimit",
        "delivery_limit",
        parse_count,
        20,
        "broker=amqp: the queue's delivery limit, for a warning before it; 0: none",
        "read",
        0,
        INT_MAX,
        "stream",
        AMQP,
    ),
    Spec(
        "startingOffset",
        "starting_offset",
        parse_stream_start,
        None,
        "broker=amqp: the queue is a stream, read from there by a query without a checkpoint: "
        "first; last: the latest chunk; next: what comes; an offset; a time such as "
        "2026-01-31T12:00:00Z",
        "read",
        broker=AMQP,
    ),
    Spec(
        "endingOffset",
        "ending_offset",
        parse_stream_end,
        END,
        "spark.read of a stream: the offset before which it ends; end: what is there",
        "read",
        how="batch",
        broker=AMQP,
    ),
    Spec(
        "failOnDataLoss",
        "fail_on_data_loss",
        parse_bool,
        True,
        "stream: whether a query fails when offsets that it has not read are gone; false: it logs "
        "that and continues with what is there",
        "read",
        broker=AMQP,
    ),
)
