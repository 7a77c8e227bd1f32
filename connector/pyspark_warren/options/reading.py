"""Options of a source: what is read, how much and how often, how a row is made, SQL filter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_warren.errors import OptionError
from pyspark_warren.options.connection import ConnectionOptions
from pyspark_warren.options.specs import (
    AS_BATCH,
    AS_STREAM,
    BOTH,
    DAY_MS,
    INT_MAX,
    READ,
    WARREN,
    Rule,
    count,
    duration,
    options_of,
    parse_bool,
    parse_column,
    parse_name,
    parse_names,
    parse_pattern,
    parse_reader,
    parse_states,
    size,
    word_of,
)
from pyspark_warren.rows.columns import CORRUPT_DEFAULT

FAIR: Final = "fair"
BACKLOG: Final = "backlog"
"""The values of option queueSharing."""
SELECTED_MAX: Final = 1_024
"""Queues of one query: each has an entry in every offset, and a request in every batch."""
_read = options_of(READ)
_stream = options_of(READ, AS_STREAM)
_claims = options_of(READ, AS_STREAM, WARREN)
_both_ends = options_of(BOTH, AS_STREAM, WARREN)


@dataclass(frozen=True, kw_only=True)
class ClaimOptions(ConnectionOptions):
    """Options of a stream that reads queues: which, how much, how often."""

    queue: str = _read("queue", parse_name, "", "the queue to read")
    queues: tuple[str, ...] = _stream(
        "queues",
        parse_names,
        (),
        "the queues to read as one stream, with commas between, or as a JSON list; instead of "
        "queue",
    )
    queue_pattern: str = _claims(
        "queuePattern",
        parse_pattern,
        "",
        "a regular expression: read every queue with a name that it is found in, also new ones; "
        "instead of queue",
    )
    queue_sharing: str = _stream(
        "queueSharing",
        word_of(FAIR, BACKLOG),
        FAIR,
        "how several queues share a micro-batch's limits: fair: in equal parts; backlog: in "
        "proportion to what is ready",
        requires=(Rule(lambda o: o.several, "needs queues or queuePattern"),),
    )
    max_messages: int = _stream(
        "maxMessagesPerTrigger", count(1, INT_MAX), 200_000, "most messages in one micro-batch"
    )
    max_bytes: int = _stream(
        "maxBytesPerTrigger",
        size(1, 1 << 50),
        256 << 20,
        "most bytes of bodies and properties in one micro-batch",
    )
    min_messages: int = _claims(
        "minMessagesPerTrigger",
        count(0, INT_MAX),
        0,
        "a micro-batch begins when so many messages are ready, or minBytesPerTrigger, or after "
        "maxTriggerDelay; 0: no such minimum",
        excludes=(
            Rule(
                lambda o: o.min_messages > o.max_messages,
                "={o.min_messages} is above maxMessagesPerTrigger={o.max_messages}; give that or "
                "less",
            ),
        ),
    )
    min_bytes: int = _claims(
        "minBytesPerTrigger",
        size(0, 1 << 50),
        0,
        "a micro-batch begins when so many bytes are ready, or minMessagesPerTrigger, or after "
        "maxTriggerDelay; 0: no such minimum",
        excludes=(
            Rule(
                lambda o: o.min_bytes > o.max_bytes,
                "={o.min_bytes} is above maxBytesPerTrigger={o.max_bytes}; give that or less",
            ),
        ),
    )
    max_trigger_delay_ms: int = _claims(
        "maxTriggerDelay",
        duration(0, DAY_MS),
        900_000,
        "how long messages wait for a minimum",
        requires=(
            Rule(
                lambda o: o.min_messages or o.min_bytes,
                "needs minMessagesPerTrigger or minBytesPerTrigger: without them no batch waits",
            ),
        ),
    )
    target_batch_ms: int = _claims(
        "targetBatchDuration",
        duration(0, DAY_MS),
        0,
        "how long a micro-batch should take: its number of messages follows, up to "
        "maxMessagesPerTrigger; 0: that is the limit",
    )
    claim_ttl_ms: int = _claims(
        "claimTtl",
        duration(10_000, 365 * DAY_MS, "claims that never expire"),
        0,
        "a claim not renewed for that long goes back to the queue; 0: never",
    )
    reader_expires_ms: int = _claims(
        "readerExpires",
        duration(60_000, 365 * DAY_MS, "the broker's limit"),
        0,
        "a reader that sends nothing for that long, and has no messages in claims, is forgotten by "
        "its queue; a query that runs always sends something; 0: the broker's reader_idle_ms",
    )
    prefetch_claims: int = _claims(
        "prefetchClaims",
        count(0, 1),
        1,
        "claims that are opened while Spark works on the batch before: 1, when a full one is ready "
        "and batches are short; 0: none",
    )
    partitions: int = _read(
        "partitions",
        count(0, 10_000),
        0,
        "slices (Spark tasks) per claim, or of spark.read; 0: one per 25,000 messages or 32 MiB, "
        "at most 128, for spark.read 32",
    )
    on_claim_lost: str = _claims(
        "onClaimLost",
        word_of("fail", "continue"),
        "fail",
        "what to do when the claim a checkpoint counts on is gone",
    )
    settle_with_batch: bool = _both_ends(
        "settleWithBatch",
        parse_bool,
        False,
        "true, for source and sink: publishing a micro-batch settles its claim, in one decision",
    )
    reader_id: str = _claims(
        "readerId",
        parse_reader,
        "",
        "a fixed reader name instead of one minted into the checkpoint",
    )
    poll_interval_ms: int = _stream(
        "pollInterval",
        duration(10, 60_000),
        100,
        "how soon an idle query asks again; then less and less often, up to each second",
    )

    @property
    def several(self) -> bool:
        """Return whether the options may name several queues."""
        return bool(self.queues or self.queue_pattern)

    def read_text(self) -> str:
        """Return what is read, for messages."""
        if self.queue_pattern:
            return f"queues like {self.queue_pattern!r}"
        if self.queues:
            more = "" if len(self.queues) <= 5 else f" and {len(self.queues) - 5} more"
            return f"queues {', '.join(map(repr, self.queues[:5]))}{more}"
        return f"queue {self.queue!r}"


def check_queues(options: ClaimOptions, hint: str) -> None:
    """Check that one option says what is read."""
    names = {
        "queue": options.queue,
        "queues": options.queues,
        "queuePattern": options.queue_pattern,
    }
    said = [name for name, value in names.items() if value]
    if not said:
        raise OptionError(
            "option queue is missing: give the name of the queue to read (queues or queuePattern "
            f"for several){hint}"
        )
    if len(said) > 1:
        raise OptionError(f"options {' and '.join(said)}: give one of them")
    if len(options.queues) > SELECTED_MAX:
        raise OptionError(
            f"option queues has {len(options.queues)} names, {SELECTED_MAX} is the limit of one "
            "query: divide them among several queries"
        )
    if options.settle_with_batch and not options.queue:
        raise OptionError(
            "option settleWithBatch=true needs the option queue: the claims of several queues "
            "cannot be settled in one decision"
        )


PUSH_NOTHING: Final = "false"
PUSH_ONCE: Final = "once"
PUSH_ALWAYS: Final = "true"
"""The values of pushFilters."""
_table = options_of(READ, AS_BATCH)
_view = options_of(READ, AS_BATCH, WARREN)


@dataclass(frozen=True, kw_only=True)
class BrowseOptions(ClaimOptions):
    """Options of spark.read, and of how a row is made."""

    browse_max: int = _table(
        "maxMessages",
        count(0, INT_MAX),
        0,
        "spark.read: browse at most that many; 0: all that were ready; of a stream: offsets",
    )
    states: tuple[str, ...] | None = _view(
        "state",
        parse_states,
        None,
        "spark.read: which messages: ready, held, delayed, claimed, dead, kept, some of them with "
        "commas between, or all; with the columns that say so. Left out: ready, without these",
    )
    first_index: int = _view(
        "firstIndex",
        count(0, 2**62),
        0,
        "spark.read: only messages with position.index from that on",
    )
    last_index: int | None = _view(
        "lastIndex",
        count(0, 2**62),
        None,
        "spark.read: only messages with position.index up to that",
        excludes=(
            Rule(
                lambda o: o.last_index < o.first_index,
                "={o.last_index} is below firstIndex={o.first_index}: give that or more, or leave "
                "one out",
            ),
        ),
    )
    push_filters: str = _view(
        "pushFilters",
        word_of(PUSH_NOTHING, PUSH_ONCE, PUSH_ALWAYS),
        PUSH_NOTHING,
        "spark.read: Spark's predicates are applied before bodies are fetched; needs "
        "spark.sql.python.filterPushdown.enabled=true. once: each frame is used once, which Spark "
        "up to 4.3 needs; true: Spark mixes up no uses",
    )
    mode: str = _read(
        "mode",
        word_of("failfast", "permissive", "dropmalformed"),
        "failfast",
        "a message that cannot be decoded: failfast fails the query; permissive has its bytes in "
        "columnNameOfCorruptRecord, dropmalformed leaves it out (spark.read, startingOffset)",
    )
    corrupt_column: str = _read(
        "columnNameOfCorruptRecord",
        parse_column,
        CORRUPT_DEFAULT,
        "name of the column that mode=PERMISSIVE adds",
        requires=(
            Rule(
                lambda o: o.mode == "permissive",
                "needs mode=PERMISSIVE: with mode={o.mode} there is no such column",
            ),
        ),
    )
    header_values: str = _read(
        "headerValues",
        word_of("typed", "string"),
        "typed",
        "column headers: typed keeps each value's type, string makes it map<string, string>",
    )

    @property
    def corrupt(self) -> str | None:
        """Return the column for bytes that cannot be decoded; None: see `mode`."""
        return self.corrupt_column if self.mode == "permissive" else None

    @property
    def drops_malformed(self) -> bool:
        """Return whether messages that cannot be decoded are left out."""
        return self.mode == "dropmalformed"


KEEP: Final = "keep"
SETTLE: Final = "settle"


def parse_filter(text: str) -> str:
    """Return a filter that is one; FilterRefused is a ValueError."""
    from pyspark_warren.rows.sql_rows import checked_filter  # with Arrow, for those that have one

    return checked_filter(text).text


@dataclass(frozen=True, kw_only=True)
class FilterOptions(ClaimOptions):
    """Options of a source that leaves messages out by a SQL filter."""

    row_filter: str = _read(
        "filter",
        parse_filter,
        "",
        "only messages that this SQL filter expression of AMQP 1.0 is true of",
    )
    filter_unmatched: str = _read(
        "filterUnmatched",
        word_of(KEEP, SETTLE),
        "",
        "what becomes of the others: keep: they stay (spark.read, startingOffset, and the default "
        "there); settle: they are acknowledged with their batch (spark.readStream of queues, where "
        "it must be given)",
        requires=(Rule(lambda o: o.row_filter, "={o.filter_unmatched} needs the option filter"),),
    )
