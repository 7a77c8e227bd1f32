"""The errors of `warren`, by the party that must act.

WarrenError
  UsageError      the caller: an argument, an option, an address
  PeerError         the broker refused, and will refuse again
    NotFound          no such queue, exchange, vhost
    AccessRefused     wrong credentials, or not allowed
    TlsError          a certificate is refused by one of the two sides, or there is no TLS
    Conflict        exists with other settings; in use; not empty
    TooLarge          above a size limit
    Unroutable        no queue for a message
    ClaimLost         the claim was released or expired: its rows cannot be read again
    StageLost         staged rows are missing: nothing was published, stage the batch again
    BatchConflict     the batch was published with other rows: nothing was published now
    BatchPast       the batch precedes the last one of its run
    Fenced            a newer driver has registered this reader, or this run of a sink
  Unavailable       no action, try later: no node answers, no majority, deadline passed
    NoNodeReached     no connection was made to any node: nothing was asked
    StillUnderWay     the operation continues, but was not complete in time
"""

from __future__ import annotations


class WarrenError(Exception):
    """The base of all errors of this package."""


class UsageError(WarrenError):
    """An invalid argument."""


class PeerError(WarrenError):
    """The broker refused.

    status     HTTP status code, 0 when the refusal has none
    condition  the AMQP error condition
    """

    def __init__(self, detail: str, *, status: int = 0, condition: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.condition = condition

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.detail, self.status, self.condition)


class NotFound(PeerError):
    """No such queue, exchange, vhost or reader."""


class AccessRefused(PeerError):
    """Wrong credentials, or missing permissions."""


class TlsError(PeerError):
    """No TLS connection is possible: a certificate is refused, or the node does not speak TLS."""


class Conflict(PeerError):
    """The object exists with other settings, is in use, or is not empty."""


class TooLarge(PeerError):
    """Above one of the broker's size limits."""


class Unroutable(PeerError):
    """At least one message is unroutable; none of its block was published."""


class ClaimLost(PeerError):
    """The claim was released, has expired, or was never opened: its rows cannot be read again."""


class StageLost(PeerError):
    """A stage to be published is missing or incomplete; nothing of it was published in that queue.

    Stage the batch again, under new attempts, and publish those.
    """


class BatchConflict(PeerError):
    """The run has published this batch with other rows; those staged now were not published."""


class BatchPast(PeerError):
    """The batch precedes the last one that the run has published, and is not recorded any more."""


class Fenced(PeerError):
    """A newer driver has registered this reader, or this run of a sink; this one must stop."""


class Unavailable(WarrenError):
    """No node answered before the deadline; trying later may help."""


class ConnectionLost(Unavailable):
    """A connection ended during a request; it is not known whether that was carried out."""


class NothingListens(WarrenError):
    """Every address of a cluster refuses connections: no node runs there, or another port is meant.

    Raised only where a call is not to wait for one.
    """


class NoNodeReached(Unavailable):
    """No node has accepted this connection before the deadline: nothing was asked."""


class DeadlinePassed(Unavailable):
    """A node did not answer before the deadline."""


class StillUnderWay(DeadlinePassed):
    """The operation was not complete in time; it continues in the cluster."""


def _rebuild(kind: type[PeerError], detail: str, status: int, condition: str) -> PeerError:
    """Unpickle a PeerError; executors send theirs to the driver."""
    return kind(detail, status=status, condition=condition)


_BY_CONDITION: dict[str, type[PeerError]] = {
    "warren:claim-lost": ClaimLost,
    "warren:stage-lost": StageLost,
    "warren:batch-conflict": BatchConflict,
    "warren:batch-past": BatchPast,
    "warren:fenced": Fenced,
    "amqp:not-found": NotFound,
    "amqp:unauthorized-access": AccessRefused,
    "amqp:precondition-failed": Conflict,
    "amqp:resource-locked": Conflict,
    "amqp:link:message-size-exceeded": TooLarge,
    "warren:no-route": Unroutable,
}
_BY_STATUS: dict[int, type[PeerError]] = {
    401: AccessRefused,
    403: AccessRefused,
    404: NotFound,
    409: Conflict,
    410: ClaimLost,
    412: Conflict,
    413: TooLarge,
}
_LATER = frozenset({"warren:unavailable", "amqp:connection:forced", "amqp:resource-limit-exceeded"})


def refusal(status: int, condition: str, detail: str) -> WarrenError:
    """Return the error for a refusal received from the broker; status 0: it had none."""
    if status == 503 or (status == 0 and condition in _LATER):
        return Unavailable(detail)
    kind = _BY_CONDITION.get(condition) or _BY_STATUS.get(status) or PeerError
    return kind(detail, status=status, condition=condition)
