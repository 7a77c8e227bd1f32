"""Queues, exchanges and nodes as `/management` shows them, and the client the queues."""

from __future__ import annotations

from typing import Any, Final

import msgspec


class BoundInfo(msgspec.Struct, frozen=True):
    """An open claim that is settled when, and only when, a batch is published in that queue."""

    number: int
    queue: str
    sink: str
    run: str
    batch: int


class ReadByInfo(msgspec.Struct, frozen=True):
    """The batch of a streaming query that reads claim `number`. name: of the query; "": none."""

    number: int
    query: str
    name: str
    batch: int


def left_ms(at_ms: int, now_ms: int) -> int | None:
    """Return in how long a time is, by the clock that it is of; None: one of the two is 0."""
    return max(0, at_ms - now_ms) if at_ms and now_ms else None


class ReaderInfo(msgspec.Struct, frozen=True):
    """A claim reader as the queue knows it.

    settled        the last settled claim
    open_claims    number of open claims: settled + 1 … settled + open_claims
    last_heard_ms  milliseconds since the epoch
    bound          the open claims that a batch decides about
    expires_at     when it is forgotten unless it is heard before (readerExpires), in milliseconds
                   since the epoch; 0: not by itself
    read_by        the latest claim that a query's task has begun to read, with query and batch
    in_parts       messages of claims that were divided, which are the next claims
    part_due       the next claim is one of these, and not of ready messages
    failed_in_row  messages that failed alone, and claims rejected, since a claim was settled
    starts         how often it has registered, since that is counted
    heard_ago_ms, expires_in_ms  the same by the clock of the queue's leader, which has set them;
                                 None: that node's version does not say its time
    """

    name: str
    epoch: int
    settled: int
    open_claims: int
    last_heard_ms: int
    bound: tuple[BoundInfo, ...] = ()
    expires_at: int = 0
    read_by: ReadByInfo | None = None
    in_parts: int = 0
    part_due: bool = False
    failed_in_row: int = 0
    starts: int = 0
    heard_ago_ms: int | None = None
    expires_in_ms: int | None = None


class RelayInfo(msgspec.Struct, frozen=True):
    """A shovel or federation link that takes messages of the queue to another Warren cluster.

    messages      that it has taken and not acknowledged; of a queue those with most are shown
    away_since    when its connection has ended, in milliseconds since the epoch; 0: it is there
    ready_again   when they are ready for any consumer unless it comes back; 0: it is there
    ready_in_ms   the same by the leader's clock; None: it is there, or see `ReaderInfo`
    """

    name: str
    messages: int
    away_since: int = 0
    ready_again: int = 0
    ready_in_ms: int | None = None


VOLATILE_TYPE: Final = "rabbit_volatile_queue"
"""The type of a name for replies, as RabbitMQ shows it."""


NO_DELIVERY_LIMIT: Final = -1
"""A delivery limit that there is not, as in RabbitMQ's argument."""


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue's settings and counts; the counts are of messages except consumer_count.

    leader  the leading node's name; "" when none is known
    messages  ready, unacknowledged, claimed and delayed ones, and dead letters kept (dlx), but no
              staged ones, which are not published yet
    next_delayed_at, last_delayed_at  when the first and the last delayed message are ready, in
                                      milliseconds since the epoch; 0: none is delayed
    delayed_retry  "disabled", or the type with its delays
    delivery_limit  NO_DELIVERY_LIMIT, or the number
    message_bytes  bodies and properties of `messages`; bytes_unacknowledged: of those that
                   consumers hold
    messages_dlx, message_bytes_dlx  dead letters that wait for the confirms of their targets
    by_priority  ready messages by priority; absent: none
    messages_set_aside  messages that could not be handled since the leading node's start
    duplicates_dropped  messages dropped since the declaration, because the queue had taken one with
                   their id (x-deduplication); deduplication_ids: ids that it remembers
    policy, operator_policy  names of the policies that it follows; "": none
    effective_policy_definition  of both, merged
    """

    name: str
    vhost: str
    type: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    leader: str
    replicas: tuple[str, ...]
    arguments: dict[str, Any] = {}
    messages: int = 0
    messages_ready: int = 0
    messages_unacknowledged: int = 0
    messages_claimed: int = 0
    messages_staged: int = 0
    messages_delayed: int = 0
    next_delayed_at: int = 0
    last_delayed_at: int = 0
    delayed_retry: str = "disabled"
    delivery_limit: int = NO_DELIVERY_LIMIT
    messages_dlx: int = 0
    message_bytes_dlx: int = 0
    bytes_ready: int = 0
    bytes_unacknowledged: int = 0
    message_bytes: int = 0
    consumer_count: int = 0
    by_priority: dict[int, int] = {}
    readers: tuple[ReaderInfo, ...] = ()
    relays: tuple[RelayInfo, ...] = ()
    messages_set_aside: int = 0
    duplicates_dropped: int = 0
    deduplication_ids: int = 0
    policy: str = ""
    operator_policy: str = ""
    effective_policy_definition: dict[str, Any] = {}


class DelayedInfo(msgspec.Struct, frozen=True):
    """A message that waits. ready_at: in milliseconds since the epoch; id: while it waits."""

    id: str
    ready_at: int
    exchange: str
    routing_key: str
    message_id: str
    size_bytes: int


class SinkInfo(msgspec.Struct, frozen=True):
    """One run of a sink as a queue remembers it.

    sink, run        a streaming query's id, each, unless its options sinkId and runId say otherwise
    epoch            the highest of a driver that this queue has met
    last_batch       -1: none was published into this queue
    batches          (batch, messages) of the latest ones published, of which a repeat is recognised
    stages           attempts at partitions that are staged
    messages_staged  of these attempts, with those of repeats, which are counted and not kept
    expires_at       when it is forgotten unless it writes before (sinkExpires), in milliseconds
                     since the epoch; 0: not by itself
    expires_in_ms    the same by the leader's clock; None: not by itself, or see `ReaderInfo`
    """

    sink: str
    run: str
    epoch: int
    last_batch: int
    batches: tuple[tuple[int, int], ...]
    stages: int
    messages_staged: int
    expires_at: int
    expires_in_ms: int | None = None


class SinksInfo(msgspec.Struct, frozen=True):
    """Runs of sinks of a queue, the ones that published last first; total: how many there are."""

    total: int
    runs: tuple[SinkInfo, ...]


class ForgottenSink(msgspec.Struct, frozen=True):
    """How many runs of a sink a queue has forgotten, and staged messages dropped with them."""

    runs: int
    messages_staged: int


class ExchangeInfo(msgspec.Struct, frozen=True):
    """An exchange's settings."""

    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, Any] = {}
    policy: str = ""


class OverviewNode(msgspec.Struct, frozen=True):
    """A node as the answering node sees it."""

    name: str
    address: str
    alive: bool
