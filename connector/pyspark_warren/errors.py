"""Errors for Spark users: named conditions with their remedy."""

from __future__ import annotations


class WarrenSparkError(Exception):
    """The base; `condition` is a stable name that a program may test for."""

    condition = "WARREN"

    @property
    def text(self) -> str:
        """Return the text without the condition's name."""
        return super().__str__()

    def __str__(self) -> str:
        return f"[{self.condition}] {self.text}"


class OptionError(WarrenSparkError):
    """An option is unknown, missing, malformed or out of bounds."""

    condition = "WARREN_OPTION"


class CheckpointError(WarrenSparkError):
    """The checkpoint belongs to another queue, another source or a newer version."""

    condition = "WARREN_CHECKPOINT"


class CheckpointBehindError(CheckpointError):
    """Claims or rows that the checkpoint does not have as read are settled: an older copy."""

    condition = "WARREN_CHECKPOINT_BEHIND"


class ClaimLostError(WarrenSparkError):
    """A claim of the checkpoint is lost: released, expired, or its queue was declared again."""

    condition = "WARREN_CLAIM_LOST"


class FencedError(WarrenSparkError):
    """A newer driver reads under the same reader id, or writes the same run of a sink."""

    condition = "WARREN_FENCED"


class SchemaError(WarrenSparkError):
    """An unknown column, or one of an unsupported type."""

    condition = "WARREN_SCHEMA"


class MalformedMessageError(WarrenSparkError):
    """A message with properties that cannot be decoded, in mode FAILFAST."""

    condition = "WARREN_MALFORMED"


class SameQueueError(WarrenSparkError):
    """A query would publish into the queue that it reads."""

    condition = "WARREN_SAME_QUEUE"


class StageLostError(WarrenSparkError):
    """Staged rows are missing, some or all: nothing was published."""

    condition = "WARREN_STAGE_LOST"


class BatchConflictError(WarrenSparkError):
    """The batch was published before, with other rows."""

    condition = "WARREN_BATCH_CONFLICT"


class BatchPastError(WarrenSparkError):
    """The batch precedes the last one that was published under its run."""

    condition = "WARREN_BATCH_PAST"


class SinkChangedError(WarrenSparkError):
    """A batch that may have been published would be published under other options."""

    condition = "WARREN_SINK_CHANGED"


class NotRoutableError(WarrenSparkError):
    """Rows that no binding routes to a queue."""

    condition = "WARREN_NO_ROUTE"


class PublishError(WarrenSparkError):
    """The broker refused rows: a queue with reject-publish is full, or a row is too large."""

    condition = "WARREN_PUBLISH"


class BrokerUnavailableError(WarrenSparkError):
    """No node answered in time, or the queue has no leader."""

    condition = "WARREN_UNAVAILABLE"


class BrokerRefusedError(WarrenSparkError):
    """The broker refused the request: credentials, vhost, queue, permissions."""

    condition = "WARREN_REFUSED"


class TokenError(WarrenSparkError):
    """The token endpoint refuses the client, or answers something else than a token."""

    condition = "WARREN_TOKEN"


class UnsupportedError(WarrenSparkError):
    """A feature that this version does not have."""

    condition = "WARREN_UNSUPPORTED"


class SpoolError(WarrenSparkError):
    """The spool cannot be read or written, or holds what is not its own."""

    condition = "WARREN_SPOOL"


class SpoolLostError(WarrenSparkError):
    """The spool lacks rows that the checkpoint counts on."""

    condition = "WARREN_SPOOL_LOST"


class OffsetLostError(WarrenSparkError):
    """A stream lacks offsets that the checkpoint counts on: removed, or it was declared again."""

    condition = "WARREN_OFFSET_LOST"
