"""Options of a source on another AMQP broker, and of micro-batches that fail again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_warren.errors import OptionError
from pyspark_warren.options.reading import ClaimOptions
from pyspark_warren.options.specs import (
    AMQP,
    AS_BATCH,
    AS_STREAM,
    BOTH,
    DAY_MS,
    END,
    INT_MAX,
    OTHERS,
    READ,
    Rule,
    count,
    duration,
    options_of,
    parse_bool,
    parse_stream_end,
    parse_stream_start,
    specs_of,
    word_of,
)

SPOOLED_QUEUES_MAX: Final = 64
"""Queues of one query on another broker: each has a process beside the driver."""
_spool = options_of(READ, AS_STREAM, *OTHERS)
_streams = options_of(READ, BOTH, AMQP)
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
    """Options of a source on another AMQP broker: spool and streams."""

    spool_location: str = _spool(
        "spoolLocation",
        str,
        "",
        "other brokers: directory of received messages that driver and executors reach, a path or "
        "a URI that pyarrow.fs knows; default: warren-spool in checkpointLocation, where that is "
        "given as an option of the source",
        requires=_OF_QUEUES,
    )
    ack_mode: str = _spool(
        "ackMode",
        word_of("commit", "spool"),
        "commit",
        "other brokers: when messages are acknowledged: commit: when Spark has committed their "
        "batch; spool: when they are in spoolLocation",
        requires=_OF_QUEUES,
    )
    prefetch: int = _spool(
        "prefetch",
        count(1, 65_535),
        50_000,
        "other brokers: most unacknowledged messages of one receiver",
        requires=_OF_QUEUES,
    )
    receivers: int = _spool(
        "receivers",
        count(1, 64),
        1,
        "other brokers: consumers of the queue, each on a connection of its own",
        requires=_OF_QUEUES,
    )
    consumer_timeout_ms: int = _spool(
        "consumerTimeout",
        duration(0, 365 * DAY_MS),
        1_800_000,
        "other brokers: the broker's limit on the age of an unacknowledged delivery, for a warning "
        "before it; 0: none",
        requires=_OF_QUEUES,
    )
    delivery_limit: int = _spool(
        "deliveryLimit",
        count(0, INT_MAX),
        20,
        "other brokers: the queue's delivery limit, for a warning before it; 0: none",
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
            "one query of another broker, which has a receiver process for each: divide them among "
            "several queries"
        )


FAIL: Final = "fail"
RELEASE: Final = "release"
REJECT: Final = "reject"
_stream = options_of(READ, AS_STREAM)
_GIVES_UP: Final = (
    Rule(
        lambda o: o.on_batch_failure != FAIL,
        "needs onBatchFailure=release or onBatchFailure=reject: with onBatchFailure=fail a batch "
        "is tried at each start of the query",
    ),
)


@dataclass(frozen=True, kw_only=True)
class FailingOptions(AmqpSourceOptions):
    """Options of a stream about micro-batches that fail again and again."""

    on_batch_failure: str = _stream(
        "onBatchFailure",
        word_of(FAIL, RELEASE, REJECT),
        FAIL,
        "what to do with a micro-batch that fails at each start of the query: fail: try it again; "
        "release: after batchTriesMax tries give its messages back, as failed deliveries; reject: "
        "dead-letter them then",
        requires=(
            Rule(
                lambda o: o.queue or o.on_batch_failure == FAIL,
                "={o.on_batch_failure} needs the option queue: which of several queues made a "
                "batch fail is not known",
            ),
        ),
        excludes=(
            Rule(
                lambda o: o.settle_with_batch and o.releases_whole,
                "=release cannot be given with settleWithBatch=true: a claim that a published "
                "batch may settle is not given back. Add isolatePoison=true, or use "
                "onBatchFailure=reject: they ask whether the batch was published",
            ),
        ),
    )
    batch_tries_max: int = _stream(
        "batchTriesMax",
        count(1, 1_000),
        3,
        "onBatchFailure=release or reject: how often a micro-batch is tried",
        requires=_GIVES_UP,
    )
    isolate_poison: bool = _stream(
        "isolatePoison",
        parse_bool,
        False,
        "true: a micro-batch that fails is read again in halves, until the messages at fault are "
        "alone; onBatchFailure concerns only these, the others pass",
        requires=_GIVES_UP,
    )
    failures_in_row_max: int = _stream(
        "failuresInRowMax",
        count(1, 1_000_000),
        10,
        "so many messages alone (isolatePoison), or rejected micro-batches, may fail one after "
        "another while none passes; then nothing more is given up: the fault is elsewhere",
        requires=_GIVES_UP,
        excludes=(
            Rule(
                lambda o: o.releases_whole,
                "needs onBatchFailure=reject or isolatePoison=true: a batch that is released "
                "whole stays in the queue",
            ),
        ),
    )
    drop_rejected: bool = _stream(
        "dropRejected",
        parse_bool,
        False,
        "true: onBatchFailure=reject also on a queue without a dead letter exchange, which drops "
        "what is rejected; with broker=amqp the connector cannot see whether there is one",
        requires=(
            *_GIVES_UP,
            Rule(lambda o: o.on_batch_failure == REJECT, "needs onBatchFailure=reject"),
        ),
    )

    @property
    def releases_whole(self) -> bool:
        """Return whether a batch that failed is given back as a whole."""
        return self.on_batch_failure == RELEASE and not self.isolate_poison


def refuse_failing(options: FailingOptions, told: str) -> None:
    """Raise OptionError, with the reason, for what an AMQP broker does not offer."""
    way = options.on_batch_failure
    if options.starting_offset is not None:
        for spec in specs_of(FailingOptions):
            if spec.name.lower() in options.given:
                raise OptionError(
                    f"option {spec.name} is for queues: a stream (startingOffset) keeps its "
                    "messages, and takes none back; leave it out"
                )
    if way == FAIL:
        return
    if options.ack_mode != "commit":
        raise OptionError(
            f"option onBatchFailure={way} needs ackMode=commit, {told}: with ackMode="
            f"{options.ack_mode} a message is acknowledged before its batch has failed, and the "
            "broker can neither dead-letter it nor take it back"
        )
    if way == REJECT and not options.drop_rejected:
        raise OptionError(
            f"option onBatchFailure=reject needs dropRejected=true, {told}: AMQP does not "
            f"tell whether queue {options.queue!r} has a dead letter exchange, and without one the "
            "broker drops what is rejected. See that it has one (x-dead-letter-exchange, "
            "dead-letter-exchange of a policy, or what the broker has for it), then set "
            "dropRejected=true"
        )


def check_room(options: FailingOptions, waiting: int) -> None:
    """Raise OptionError when messages that wait, unacknowledged, keep all others from coming.

    1. A message fails alone, and waits until a batch passes behind it.  2. The broker delivers no
    more than the prefetch. When as many wait, nothing comes that could pass: the query would stand
    still, and no error would say why.
    """
    room = options.prefetch * options.receivers
    if waiting >= room:
        raise OptionError(
            f"option prefetch={options.prefetch} (receivers={options.receivers}): {waiting} "
            "messages that failed alone wait until another one passes (isolatePoison), and the "
            f"broker delivers no other beside them; give a prefetch above {waiting}"
        )
