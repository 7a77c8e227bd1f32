"""Options of a stream that reads queues: which, how much, how often."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_warren.connection_options import ConnectionOptions
from pyspark_warren.errors import OptionError
from pyspark_warren.option_spec import AS_STREAM, READ, WARREN, Rule, options_of
from pyspark_warren.option_values import (
    DAY_MS,
    INT_MAX,
    count,
    duration,
    parse_bool,
    parse_name,
    parse_names,
    parse_pattern,
    parse_reader,
    size,
    word_of,
)
from pyspark_warren.share import BACKLOG, FAIR, SELECTED_MAX

_read = options_of(READ)
_stream = options_of(READ, AS_STREAM)
_claims = options_of(READ, AS_STREAM, WARREN)
_both_ends = options_of(how=AS_STREAM, broker=WARREN)


@dataclass(frozen=True, kw_only=True)
class ClaimOptions(ConnectionOptions):
    """See the module."""

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
