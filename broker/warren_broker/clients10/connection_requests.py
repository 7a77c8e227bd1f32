"""The requests that an AMQP 1.0 connection makes of the cluster, as values."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from warren_machines.queue.commands import Acknowledgement
from warren_wire.admin.requests import Request
from warren_wire.amqp10.addresses import ClaimSource, StageTarget, ViewSource
from warren_wire.amqp10.fetched import encode_runs
from warren_wire.amqp10.viewed import ViewHead, encode_view_head
from warren_wire.block.layout import AREAS
from warren_wire.errors import Refusal


class Login(Request, frozen=True):
    """Check credentials of SASL. Answer: LoggedIn or Refusal (its detail is not sent)."""

    user: str
    password: str
    mechanism: str = "PLAIN"

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, password=…)"


class OpenVhost(Request, frozen=True):
    """Check the user's access to the vhost. Answer: VhostOpened or Refusal."""

    user: str
    vhost: str


class StageBlock(Request, frozen=True):
    """Add one block to a stage. Answer: Staged or Refusal, such as NoRoute.

    stage  the stage, and the exchange to which the messages are published: a block's routes name
           the routing keys; its seq is that of the link's first block
    seq    1, 2, 3 … within the stage; a repeat of one already staged is accepted and dropped
    block  an encoded block, not checked yet
    """

    stage: StageTarget
    seq: int
    block: bytes | memoryview


class PublishBlock(Request, frozen=True):
    """Publish one block. Answer: Published or Refusal, such as NoRoute.

    queue     directly to that queue; "": to the exchange
    exchange  routes by the routing keys of the block's routes; ignored unless queue is ""
    """

    queue: str
    exchange: str
    block: bytes | memoryview


class FetchClaim(Request, frozen=True):
    """Fetch messages first ≤ i < last of a claim, in claim order. Answer: Fetched or Refusal.

    max_bytes  a hint: the answer holds about that much, at least one block; whatever its areas,
               messages count as they are in the queue, because that is what is read
    """

    source: ClaimSource
    max_bytes: int


class Browse(Request, frozen=True):
    """Read some of a queue's ready messages without a change. Answer: Fetched or Refusal.

    cursor        None at first, then the cursor of the last answer
    max_messages  the number of messages still wanted
    max_bytes     a hint, as in FetchClaim
    areas         of the blocks, as in ClaimSource
    """

    queue: str
    cursor: Any
    max_messages: int
    max_bytes: int
    areas: int = AREAS


class ViewQueue(Request, frozen=True):
    """Read what a queue holds, with the state of each message. Answer: Fetched or Refusal.

    Refused: PreconditionFailed when the piece has too many rows.

    cursor     None at first, then the cursor of the last answer
    max_bytes  a hint, as in FetchClaim
    """

    source: ViewSource
    cursor: Any
    max_bytes: int


AnyRequest: TypeAlias = Request | Acknowledgement
"""An acknowledgement is for a consumer's queue as it is, and has no answer."""

# ------------------------------------------------------------------ answers


class LoggedIn(msgspec.Struct, frozen=True):
    """The credentials are accepted.

    user  that a token names; "": the one that SASL named
    """

    user: str = ""


class VhostOpened(msgspec.Struct, frozen=True):
    """The vhost exists and the user may use it.

    node, cluster  sent to the client in Open's properties
    """

    node: str = ""
    cluster: str = ""


class Staged(msgspec.Struct, frozen=True):
    """The block is durable in the stages of these queues, sorted."""

    queues: tuple[str, ...]


class Published(msgspec.Struct, frozen=True):
    """Every queue has confirmed."""


class Piece(msgspec.Struct, frozen=True):
    """A run of fetched messages.

    runs   (index, first, last, delivery_count, acquired_count), closed ranges, in the block's
           order: message k of the block is the k-th message of the runs; the counts are those
           before the claim
    block  an encoded block with just these messages
    """

    runs: tuple[tuple[int, int, int, int, int], ...]
    block: bytes | memoryview

    def head(self) -> bytes:
        """Return the bytes before the block."""
        return encode_runs(self.runs)


class ViewedPiece(msgspec.Struct, frozen=True):
    """Some rows of a view. block: of their messages, empty if none was asked for."""

    rows: ViewHead
    block: bytes | memoryview

    def head(self) -> bytes:
        """Return the bytes before the block."""
        return encode_view_head(self.rows)


class Fetched(msgspec.Struct, frozen=True):
    """Fetched pieces, in order.

    messages  the number of messages in the pieces
    cursor    Browse, ViewQueue: where to continue, None at the end; FetchClaim: not used
    """

    pieces: tuple[Piece | ViewedPiece, ...]
    messages: int
    cursor: Any = None


AnyAnswer: TypeAlias = msgspec.Struct | Refusal
"""What the request names; of an AdminRequest: a Result, or a value of `warren_wire.admin`."""
