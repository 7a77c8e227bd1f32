"""The options of `format("warren")` in one table: name, type, default, bounds, meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark_warren.columns import CORRUPT_DEFAULT
from pyspark_warren.option_values import (
    END,
    TIME_UNITS_MS,
    parse_bool,
    parse_count,
    parse_duration_ms,
    parse_hosts,
    parse_mechanism,
    parse_names,
    parse_pattern,
    parse_size,
    parse_states,
    parse_stream_end,
    parse_stream_start,
    parse_variable,
    word_of,
)
from pyspark_warren.share import BACKLOG, FAIR
from warren.uri import PORT, SASL_PLAIN

AUTO: Final = "auto"
WARREN: Final = "warren"
AMQP: Final = "amqp"
"""The values of option broker."""
EITHER: Final = "either"


@dataclass(frozen=True, slots=True)
class Spec:
    """One option.

    minimum, maximum  bounds of the parsed number, None: none
    where             "read", "write" or "both"
    how               "batch" or "stream": it is refused in the other one; "both"
    broker            WARREN or AMQP: it is refused with a broker of the other kind; EITHER
    """

    name: str
    field: str
    parse: Callable[[str], Any]
    default: Any
    meaning: str
    where: str = "both"
    minimum: int | None = None
    maximum: int | None = None
    how: str = "both"
    broker: str = EITHER


_INT_MAX: Final = 2**31 - 1
_DAY_MS: Final = TIME_UNITS_MS["d"]

SPECS: Final[tuple[Spec, ...]] = (
    Spec(
        "uri",
        "uri",
        str,
        None,
        "amqp://user:password@host:port/vhost, or amqps:// for TLS; instead of hosts",
    ),
    Spec(
        "hosts",
        "hosts",
        parse_hosts,
        (("localhost", PORT),),
        "nodes to try, host or host:port, with commas between",
    ),
    Spec("vhost", "vhost", str, "/", "virtual host"),
    Spec("user", "user", str, "guest", "user name"),
    Spec("password", "password", str, "guest", "password; never printed"),
    Spec(
        "passwordFile",
        "password_file",
        str,
        None,
        "file with the password as its one line; the driver and every task read it",
    ),
    Spec(
        "passwordEnv",
        "password_env",
        parse_variable,
        None,
        "environment variable that holds the password, on the driver and on executors",
    ),
    Spec("tls", "tls", parse_bool, False, "true: connect with TLS; the port is then 5671"),
    Spec(
        "caFile",
        "ca_file",
        str,
        None,
        "PEM file of the accepted certificate authorities; default: the system's",
    ),
    Spec(
        "certFile",
        "cert_file",
        str,
        None,
        "PEM file of this client's certificate, for brokers that ask for one",
    ),
    Spec("keyFile", "key_file", str, None, "PEM file of its key; default: in certFile"),
    Spec(
        "verify",
        "verify",
        parse_bool,
        True,
        "false: accept any certificate, also that of an attacker between the two",
    ),
    Spec(
        "saslMechanism",
        "sasl_mechanism",
        parse_mechanism,
        SASL_PLAIN,
        "EXTERNAL: log in as the user named in certFile, without a password",
    ),
    Spec(
        "requestTimeout",
        "request_timeout_ms",
        parse_duration_ms,
        60_000,
        "how long a request is tried, over all nodes, before the query fails",
        minimum=100,
        maximum=_DAY_MS,
    ),
    Spec(
        "broker",
        "broker",
        word_of(AUTO, WARREN, AMQP),
        AUTO,
        "warren; amqp: any AMQP 0.9.1 broker, such as RabbitMQ; auto: ask the broker what it is",
    ),
    # -------- source
    Spec("queue", "queue", str, None, "the queue to read", "read"),
    Spec(
        "queues",
        "queues",
        parse_names,
        (),
        "the queues to read as one stream, with commas between, or as a JSON list; instead of "
        "queue",
        "read",
        how="stream",
        broker=WARREN,
    ),
    Spec(
        "queuePattern",
        "queue_pattern",
        parse_pattern,
        "",
        "a regular expression: read every queue with a name that it is found in, also new ones; "
        "instead of queue",
        "read",
        how="stream",
        broker=WARREN,
    ),
    Spec(
        "queueSharing",
        "queue_sharing",
        word_of(FAIR, BACKLOG),
        FAIR,
        "how several queues share a micro-batch's limits: fair: in equal parts; backlog: in "
        "proportion to what is ready",
        "read",
        how="stream",
        broker=WARREN,
    ),
    Spec(
        "maxMessagesPerTrigger",
        "max_messages",
        parse_count,
        200_000,
        "most messages in one micro-batch",
        "read",
        1,
        _INT_MAX,
        "stream",
    ),
    Spec(
        "maxBytesPerTrigger",
        "max_bytes",
        parse_size,
        256 << 20,
        "most bytes of bodies and properties in one micro-batch",
        "read",
        1,
        1 << 50,
        "stream",
    ),
    Spec(
        "minMessagesPerTrigger",
        "min_messages",
        parse_count,
        0,
        "a micro-batch begins when so many messages are ready, or minBytesPerTrigger, or after "
        "maxTriggerDelay; 0: no such minimum",
        "read",
        0,
        _INT_MAX,
        "stream",
        WARREN,
    ),
    Spec(
        "minBytesPerTrigger",
        "min_bytes",
        parse_size,
        0,
        "a micro-batch begins when so many bytes are ready, or minMessagesPerTrigger, or after "
        "maxTriggerDelay; 0: no such minimum",
        "read",
        0,
        1 << 50,
        "stream",
        WARREN,
    ),
    Spec(
        "maxTriggerDelay",
        "max_trigger_delay_ms",
        parse_duration_ms,
        900_000,
        "how long messages wait for a minimum",
        "read",
        0,
        _DAY_MS,
        "stream",
        WARREN,
    ),
    Spec(
        "targetBatchDuration",
        "target_batch_ms",
        parse_duration_ms,
        0,
        "how long a micro-batch should take: its number of messages follows, up to "
        "maxMessagesPerTrigger; 0: that is the limit",
        "read",
        0,
        _DAY_MS,
        "stream",
        WARREN,
    ),
    Spec(
        "claimTtl",
        "claim_ttl_ms",
        parse_duration_ms,
        0,
        "a claim not renewed for that long goes back to the queue; 0: never",
        "read",
        0,
        365 * _DAY_MS,
        "stream",
        broker=WARREN,
    ),
    Spec(
        "partitions",
        "partitions",
        parse_count,
        0,
        "slices (Spark tasks) per claim, or of spark.read; 0: one per 25,000 messages or 32 MiB, "
        "at most 128, for spark.read 32",
        "read",
        0,
        10_000,
    ),
    Spec(
        "onClaimLost",
        "on_claim_lost",
        word_of("fail", "continue"),
        "fail",
        "what to do when the claim a checkpoint counts on is gone",
        "read",
        how="stream",
        broker=WARREN,
    ),
    Spec(
        "readerId",
        "reader_id",
        str,
        "",
        "a fixed reader name instead of one minted into the checkpoint",
        "read",
        how="stream",
        broker=WARREN,
    ),
    Spec(
        "pollInterval",
        "poll_interval_ms",
        parse_duration_ms,
        100,
        "how soon an idle query asks again; then less and less often, up to each second",
        "read",
        10,
        60_000,
        "stream",
    ),
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
        365 * _DAY_MS,
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
        _INT_MAX,
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
    Spec(
        "maxMessages",
        "browse_max",
        parse_count,
        0,
        "spark.read: browse at most that many; 0: all that were ready; of a stream: offsets",
        "read",
        0,
        _INT_MAX,
        "batch",
    ),
    Spec(
        "state",
        "states",
        parse_states,
        None,
        "spark.read: which messages: ready, held, delayed, claimed, dead, some of them with commas "
        "between, or all; with the columns that say so. Left out: ready, without those columns",
        "read",
        how="batch",
        broker=WARREN,
    ),
    Spec(
        "firstIndex",
        "first_index",
        parse_count,
        0,
        "spark.read: only messages with position.index from that on",
        "read",
        0,
        2**62,
        "batch",
        WARREN,
    ),
    Spec(
        "lastIndex",
        "last_index",
        parse_count,
        None,
        "spark.read: only messages with position.index up to that",
        "read",
        0,
        2**62,
        "batch",
        WARREN,
    ),
    Spec(
        "mode",
        "mode",
        word_of("failfast", "permissive", "dropmalformed"),
        "failfast",
        "a message that cannot be decoded: failfast fails the query; permissive has its bytes in "
        "columnNameOfCorruptRecord, dropmalformed leaves it out (spark.read, startingOffset)",
        "read",
    ),
    Spec(
        "columnNameOfCorruptRecord",
        "corrupt_column",
        str,
        CORRUPT_DEFAULT,
        "name of the column that mode=PERMISSIVE adds",
        "read",
    ),
    Spec(
        "headerValues",
        "header_values",
        word_of("typed", "string"),
        "typed",
        "column headers: typed keeps each value's type, string makes it map<string, string>",
        "read",
    ),
    # -------- sink
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
        _DAY_MS,
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
        str,
        "",
        "name of this output, under which the broker remembers published batches; default: the "
        "query's id",
        "write",
    ),
    Spec(
        "runId",
        "run_id",
        str,
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
