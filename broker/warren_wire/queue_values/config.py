"""The effective settings of a queue, as its machine needs them."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

DelayedRetryType: TypeAlias = Literal["disabled", "all", "failed", "returned"]
DEDUPLICATION_WINDOW_DEFAULT: Final = 100_000
DEDUPLICATION_WINDOW_MAX: Final = 1_000_000
"""An id takes about 100 bytes of memory, and 16 bytes of every snapshot."""
DEDUPLICATION_TTL_MS_DEFAULT: Final = 600_000

Overflow: TypeAlias = Literal["drop-head", "reject-publish", "reject-publish-dlx"]
DeadLetterStrategy: TypeAlias = Literal["at-most-once", "at-least-once"]


class QueueConfig(msgspec.Struct, frozen=True):
    """The effective settings of one queue; equal on every member.

    They are in definitions, in the queue's log and in its snapshots: their names are replicated
    state, and a new one has a default that keeps the meaning of what was written without it.

    All times in milliseconds. None: no limit, or not set.
    replicated                   a classic queue with the members of a quorum queue: no type was
                                 asked for
    delivery_limit               -1: none
    consumer_timeout_ms          the queue's own or the node's default
    delayed_retry_type           which messages wait when they come back: all, those that failed
                                 (with a higher delivery count), the others; only with a minimum
    delayed_retry_max_ms         None: every delay is the minimum
    dead_letter_strategy         as asked for; `keeps_letters` says whether it is at least once
    deduplication                drop messages with an id that is among those of the last
                                 `deduplication_window` messages accepted with one, for
                                 `deduplication_ttl_ms` each
    """

    vhost: str
    name: str
    kind: Literal["quorum", "classic"] = "quorum"
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    single_active_consumer: bool = False
    delivery_limit: int = 20
    consumer_timeout_ms: int | None = None
    consumer_disconnected_timeout_ms: int = 60_000
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow = "drop-head"
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    priority_max: int = 31
    priority_default: int = 4
    delayed_retry_type: DelayedRetryType = "disabled"
    delayed_retry_min_ms: int | None = None
    delayed_retry_max_ms: int | None = None
    dead_letter_strategy: DeadLetterStrategy = "at-most-once"
    deduplication: bool = False
    deduplication_window: int = DEDUPLICATION_WINDOW_DEFAULT
    deduplication_ttl_ms: int = DEDUPLICATION_TTL_MS_DEFAULT
    replicated: bool = False

    @property
    def followed_as(self) -> str:
        """What policies take it for: its kind, or `replicated`."""
        return "replicated" if self.replicated else self.kind

    @property
    def several(self) -> bool:
        """Whether it is declared with several members."""
        return self.replicated or self.kind == "quorum"

    @property
    def refuses(self) -> bool:
        """Whether publishes are refused at a length limit; nothing is dropped for them."""
        return self.overflow != "drop-head"

    @property
    def tells_active(self) -> bool:
        """Whether links hear that their consumers are active, as from RabbitMQ's quorum queues."""
        return self.kind == "quorum"

    @property
    def keeps_letters(self) -> bool:
        """Whether dead letters stay in the queue until they have been forwarded."""
        return (
            self.dead_letter_strategy == "at-least-once"
            and (self.kind == "quorum" or self.replicated)
            and self.dead_letter_exchange is not None
            and self.overflow == "reject-publish"
        )
