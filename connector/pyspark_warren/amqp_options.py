"""Options of a source on another AMQP 0.9.1 broker: spool and streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_warren.claim_options import ClaimOptions
from pyspark_warren.errors import OptionError
from pyspark_warren.option_spec import AMQP, AS_BATCH, AS_STREAM, READ, Rule, options_of
from pyspark_warren.option_values import (
    DAY_MS,
    END,
    INT_MAX,
    count,
    duration,
    parse_bool,
    parse_stream_end,
    parse_stream_start,
    word_of,
)

SPOOLED_QUEUES_MAX: Final = 64
"""Queues of one query with broker=amqp: each has a process beside the driver."""
_spool = options_of(READ, AS_STREAM, AMQP)
_streams = options_of(READ, broker=AMQP)
_stream_table = options_of(READ, AS_BATCH, AMQP)
_OF_QUEUES: Final = (
    Rule(
        lambda o: o.starting_offset is None,
        "is for queues, and startingOffset says that {o.queue!r} is a stream; leave one of them "
        "out",
    ),
)
_OF_STREAMS: Final = (
    Rule(
        lambda o: o.starting_offset is not None,
        "is for streams and needs startingOffset, such as first",
    ),
)


@dataclass(frozen=True, kw_only=True)
class AmqpSourceOptions(ClaimOptions):
    """See the module."""

    spool_location: str = _spool(
        "spoolLocation",
        str,
        "",
        "broker=amqp: directory of received messages that driver and executors reach, a path or a "
        "URI that pyarrow.fs knows; default: warren-spool in checkpointLocation, where that is "
        "given as an option of the source",
        requires=_OF_QUEUES,
    )
    ack_mode: str = _spool(
        "ackMode",
        word_of("commit", "spool"),
        "commit",
        "broker=amqp: when messages are acknowledged: commit: when Spark has committed their "
        "batch; spool: when they are in spoolLocation",
        requires=_OF_QUEUES,
    )
    prefetch: int = _spool(
        "prefetch",
        count(1, 65_535),
        50_000,
        "broker=amqp: most unacknowledged messages of one receiver",
        requires=_OF_QUEUES,
    )
    receivers: int = _spool(
        "receivers",
        count(1, 64),
        1,
        "broker=amqp: consumers of the queue, each on a connection of its own",
        requires=_OF_QUEUES,
    )
    consumer_timeout_ms: int = _spool(
        "consumerTimeout",
        duration(0, 365 * DAY_MS),
        1_800_000,
        "broker=amqp: the broker's limit on the age of an unacknowledged delivery, for a warning "
        "before it; 0: none",
        requires=_OF_QUEUES,
    )
    delivery_limit: int = _spool(
        "deliveryLimit",
        count(0, INT_MAX),
        20,
        "broker=amqp: the queue's delivery limit, for a warning before it; 0: none",
        requires=_OF_QUEUES,
    )
    starting_offset: str | None = _streams(
        "startingOffset",
        parse_stream_start,
        None,
        "broker=amqp: the queue is a stream, read from there by a query without a checkpoint: "
        "first; last: the latest chunk; next: what comes; an offset; a time such as "
        "2026-01-31T12:00:00Z",
    )
    ending_offset: str = _stream_table(
        "endingOffset",
        parse_stream_end,
        END,
        "spark.read of a stream: the offset before which it ends; end: what is there",
        requires=_OF_STREAMS,
    )
    fail_on_data_loss: bool = _streams(
        "failOnDataLoss",
        parse_bool,
        True,
        "stream: whether a query fails when offsets that it has not read are gone; false: it logs "
        "that and continues with what is there",
        requires=_OF_STREAMS,
    )


def check_kind_of_queue(options: AmqpSourceOptions) -> None:
    """Refuse several streams, and more queues than there can be processes."""
    if options.starting_offset is not None and options.queues:
        raise OptionError(
            "option startingOffset says that the queue is a stream, and a query reads one stream: "
            "give queue instead of queues, and a query for each stream"
        )
    if len(options.queues) > SPOOLED_QUEUES_MAX:
        raise OptionError(
            f"option queues has {len(options.queues)} names, {SPOOLED_QUEUES_MAX} is the limit of "
            "one query with broker=amqp, which has a receiver process for each: divide them among "
            "several queries"
        )
