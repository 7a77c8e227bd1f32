"""The commands and replies of a queue's replicated log.

An entry's data is one `Submission`, encoded by `queue.codec`, followed by at most one block.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from warren_machines.queue.claims.decision_commands import (
    AnyDecided,
    AnyDecision,
    ClaimBinding,
    ClaimName,
)
from warren_machines.queue.delayed.delay_commands import EndDelay, EnqueueDelayed
from warren_machines.queue.filters.filter_commands import Judge, NotYet
from warren_machines.queue.jobs.job_commands import AnyJobCommand, AnyJobReply
from warren_machines.queue.relays.relay_commands import AnyRelayed
from warren_wire.queue_values.command_base import QueueCommand, Reply
from warren_wire.queue_values.config import QueueConfig
from warren_wire.queue_values.describe_command import DescribeClaim, ReadBy
from warren_wire.queue_values.give_up_command import GiveUpClaim

UplinkId: TypeAlias = int
"""One process of one node: 64 random bits drawn when it starts; 0: no node (a timer)."""
Incarnation: TypeAlias = int
"""The number of a node's process: the log index of the metadata group at which it began. A later
process of any node has a higher one."""
ConsumerId: TypeAlias = int
"""A consumer of an uplink, numbered by its node, never used twice in one incarnation."""
SessionId: TypeAlias = int
"""A channel (0.9.1) or session (1.0) of an uplink, numbered by its node, never used twice."""
MsgId: TypeAlias = int
"""The number of a delivery to one consumer: 0, 1, 2 … without gaps."""
MsgIds: TypeAlias = tuple[tuple[MsgId, MsgId], ...]
"""Closed ranges (first, last), ascending, disjoint."""
Pairs: TypeAlias = tuple[tuple[str, bytes], ...]
"""Annotations of a message: (key, value in MessagePack), keys ascending, each once.

What the values mean is said in `queue.annotations`; the machine does not read them.
"""


class Enqueue(QueueCommand, frozen=True, array_like=True, tag="enq"):
    """Add the messages of the entry's block to the ready ones."""


class Checkout(QueueCommand, frozen=True, array_like=True, tag="checkout"):
    """Add a consumer.

    prefetch    maximum of unsettled messages; ignored with explicit_credit. 0: the client sets
                no limit; the machine keeps limits.UNLIMITED_WINDOW and limits.WINDOW_BYTES
    no_ack      what is delivered counts as settled; at most limits.NO_ACK_WINDOW messages and
                limits.WINDOW_BYTES are on their way, until `Credit` says they left for the client
    priority    consumers with a higher one are served first
    timeout_ms  how long it may hold a message unsettled; None: the queue's or the node's default
    relay       name of the relay that it is (`relays`); "": none
    origin      with a relay: a random number, of the messages that this session takes first
    filter      it gets only messages that match (`message_filter`); b"": all. Consumers with equal
                bytes share what was judged
    """

    consumer: ConsumerId
    session: SessionId
    tag: str
    prefetch: int = 0
    explicit_credit: bool = False
    priority: int = 0
    no_ack: bool = False
    exclusive: bool = False
    timeout_ms: int | None = None
    relay: str = ""
    origin: int = 0
    filter: bytes = b""


class Credit(QueueCommand, frozen=True, array_like=True, tag="credit"):
    """Update the flow of one consumer, with a meaning per kind of consumer.

    explicit_credit   `credit` more after the `delivered`-th delivery; `drain` gives the rest back
                      (reply: Count, the deliveries so far), as AMQP 1.0's flow has it; NotYet
                      while messages that the consumer's filter may match are not judged
    no_ack            deliveries with msg_id < `delivered` have left for the client, the window
                      moves. A node must send this as its socket drains, at the latest after half of
                      limits.NO_ACK_WINDOW deliveries or limits.WINDOW_BYTES / 2; deliveries that it
                      never sent it may return by `Return` before `Cancel` or `SessionDown`
    otherwise         `credit` messages beyond the prefetch, that its node keeps for its client,
                      instead of those said before (reply: Count, the deliveries so far). Since
                      version READ_AHEAD; ignored before
    """

    consumer: ConsumerId
    delivered: int
    credit: int
    drain: bool = False


class Cancel(QueueCommand, frozen=True, array_like=True, tag="cancel"):
    """Cancel a consumer; it keeps what it holds until that is settled or its session ends."""

    consumer: ConsumerId


class SessionDown(QueueCommand, frozen=True, array_like=True, tag="session_down"):
    """End a channel or session: remove its consumers and return what they held.

    failed  count it as a failed delivery (connection lost, channel closed with messages pending)
    """

    session: SessionId
    failed: bool = True


class Get(QueueCommand, frozen=True, array_like=True, tag="get"):
    """Take one message for basic.get (creates the consumer on first use); reply: GetReply."""

    consumer: ConsumerId
    session: SessionId
    no_ack: bool = False


class Settle(QueueCommand, frozen=True, array_like=True, tag="settle"):
    """Acknowledge messages; unknown ids are ignored."""

    consumer: ConsumerId
    msg_ids: MsgIds


class Return(QueueCommand, frozen=True, array_like=True, tag="return"):
    """Return messages to the queue, ahead of the ready ones, in the order of the ids.

    failed  delivery-count rises: basic.reject, not basic.nack or basic.recover
    unseen  no client has been sent them: a relay's stay with it. From version READ_AHEAD on others
            take their old places, and count as acquired only if another consumer has been given
            messages since (reply: Count, the deliveries so far)
    """

    consumer: ConsumerId
    msg_ids: MsgIds
    failed: bool
    unseen: bool = False


class Discard(QueueCommand, frozen=True, array_like=True, tag="discard"):
    """Drop or dead-letter rejected messages. failed: they count it, by basic.reject, not nack."""

    consumer: ConsumerId
    msg_ids: MsgIds
    failed: bool = False


class Modify(QueueCommand, frozen=True, array_like=True, tag="modify"):
    """Return messages to the queue, or discard them, and annotate them.

    failed       the delivery failed: delivery-count rises
    discard      drop or dead-letter them (undeliverable-here), as `Discard` does
    annotations  stay with each message while it is in the queue, and replace those with equal keys
    ready_ms     do not deliver them before that time, whatever delayed retry says; a time that has
                 passed, such as 0, says nothing

    A classic queue knows neither annotations nor the time.
    """

    consumer: ConsumerId
    msg_ids: MsgIds
    failed: bool = False
    discard: bool = False
    annotations: Pairs = ()
    ready_ms: int = 0


Acknowledgement: TypeAlias = Settle | Return | Discard | Modify


class Resume(QueueCommand, frozen=True, array_like=True, tag="resume"):
    """Send the deliveries from `next_msg_id` on again, after the uplink lost its leader."""

    consumer: ConsumerId
    next_msg_id: MsgId


class Purge(QueueCommand, frozen=True, array_like=True, tag="purge"):
    """Drop all ready, returned and delayed messages and the dead letters; reply: Count."""


class RetryDelayed(QueueCommand, frozen=True, array_like=True, tag="retry_delayed"):
    """Make all delayed messages ready now; reply: Count of those that were not asked for before.

    More than delayed_retry.READY_RUNS_MAX runs of them return over several entries.
    """


class SettleLetters(QueueCommand, frozen=True, array_like=True, tag="settle_letters"):
    """Remove dead letters that their targets have confirmed; reply: Count of those that were there.

    letters  (number, first, last) of `letter_queue`
    """

    letters: tuple[tuple[int, int, int], ...]


class Delete(QueueCommand, frozen=True, array_like=True, tag="delete"):
    """Delete the queue for good; reply: Count of ready messages, Refused(in_use / not_empty)."""

    if_unused: bool = False
    if_empty: bool = False


class Stat(QueueCommand, frozen=True, array_like=True, tag="stat"):
    """Ask for the counts; reply: StatReply.

    touch  a redeclaration: renews x-expires where the kind requires it (classic); False: read only
    """

    touch: bool = True


class Configure(QueueCommand, frozen=True, array_like=True, tag="configure"):
    """Replace the settings, after a policy or the meaning of an argument changed.

    A changed time after which the unused queue expires is counted from now: counted from its last
    use, which may be long ago, it would delete the queue at once.
    """

    config: QueueConfig


class NodeDown(QueueCommand, frozen=True, array_like=True, tag="node_down"):
    """End an incarnation of a node, as SessionDown(failed) for all its sessions, and its uplink.

    node, incarnation  the node and the number of the incarnation: whatever it, or an older one of
                       the node, still has on its way is refused from here on
                       (`SubmissionReply.retired`). Without a number a submission of seq 1 that
                       arrives after this is taken for that of a new uplink
    """

    uplink: UplinkId
    node: str = ""
    incarnation: Incarnation = 0


class NodeSuspected(QueueCommand, frozen=True, array_like=True, tag="node_suspected"):
    """Suspend deliveries to the consumers of an unreachable node.

    After consumer-disconnected-timeout what they hold returns, not failed.

    hand_over  with single active consumer: one on the node that holds nothing unacknowledged is
               replaced at once; one that does, when that has been settled or has returned. An
               exclusive consumer is cancelled when what it holds returns. False: a node says it of
               itself and sends its clients away; the consumer is replaced only when what it holds
               returns
    gone       its process is known to have ended: consumer-disconnected-timeout is over
    """

    node: str
    hand_over: bool = False
    gone: bool = False


class NodeBack(QueueCommand, frozen=True, array_like=True, tag="node_back"):
    """Resume deliveries to the consumers of a node that is reachable again."""

    node: str


class Timer(QueueCommand, frozen=True, array_like=True, tag="timer"):
    """Do what is due at meta.time_ms: the timer that `SetTimer` asked for."""


class RegisterReader(QueueCommand, frozen=True, array_like=True, tag="reader"):
    """Register a claim reader's new driver and fence every older one. Reply: ReaderReply.

    go_on_after  the driver accepts that its claims up to this number are lost, and counts them as
                 settled, unless one of them is still open; 0: it accepts nothing
    call         the name of the driver's call: a repeat, however late, gets the same epoch;
                 "": every command is a call of its own
    idle_ms      when the reader is new: forget readers without messages in claims, silent for that
                 long, and at claim.READERS_MAX the one silent longest; 0: none
    expires_ms   forget this reader once it is silent for that long and has no messages in claims;
                 0: not by itself. The latest registration says it
    """

    reader: str
    go_on_after: int = 0
    call: str = ""
    idle_ms: int = 0
    expires_ms: int = 0


class ClaimCommand(QueueCommand, frozen=True, array_like=True):
    """A driver's command about its reader's claim `number`; an older epoch is Refused(fenced)."""

    reader: str
    number: int
    epoch: int


class OpenClaim(ClaimCommand, frozen=True, array_like=True, tag="claim"):
    """Open claim `number` with messages from the head; a repeat gets the same answer.

    It counts as a use of the queue, as a get does; while a claim with messages is open the queue is
    in use, as by a consumer (x-expires, if-unused).
    Reply: ClaimReply; messages 0: nothing was ready, none was opened. EmptyClaim: it holds nothing.

    number        last settled + 1; any other that is not open is Refused(claim_lost), but see ahead
    max_messages  at least 1; a part of a claim that was divided is claimed whole
    max_bytes     bodies and properties, at least 1; one message is taken even if larger
    ttl_ms        0: does not expire
    keep_empty    when nothing is ready, open a claim without messages, as any other: a repeat gets
                  the same. It does not expire
    ahead         while claim last settled + 1 is open, open the one after it, if it is full: so
                  many messages or bytes are ready, and no part
    """

    max_messages: int
    max_bytes: int
    ttl_ms: int = 0
    keep_empty: bool = False
    ahead: bool = False


class RenewClaims(QueueCommand, frozen=True, array_like=True, tag="renew"):
    """Renew the reader's claims: they expire ttl_ms from now."""

    reader: str
    epoch: int


class SettleClaims(ClaimCommand, frozen=True, array_like=True, tag="settle_claims"):
    """Settle the claims up to `number`; a repeat is harmless. Reply: Count of messages settled now.

    A number that was never opened, or was opened and is neither open nor settled (it expired or was
    released), is Refused(claim_lost), and nothing is settled.
    """


class ReleaseClaim(ClaimCommand, frozen=True, array_like=True, tag="release"):
    """Return claim `number` to the queue; 0: all of the reader's claims, and forget the reader.

    Reply: Count of messages returned. The number stays lost: opening it is Refused(claim_lost). The
    numbers of a reader that was forgotten are never used again in this queue.

    epoch  -1: an operator, not fenced
    """

    failed: bool = False


class SinkCommand(QueueCommand, frozen=True, array_like=True):
    """A driver's command about one batch of a sink's run."""

    sink: str
    run: str
    epoch: int
    batch: int


class SinkStage(SinkCommand, frozen=True, array_like=True, tag="sink_stage"):
    """Add the entry's block, invisible, to a stage (batch, partition, attempt) of a sink's run.

    For a batch that this run has published here the block is counted and not kept: `SinkPublish`
    compares. A batch at or below the run's last one that is no longer remembered is
    Refused(batch_past).

    epoch   of the driver (`cluster.definitions.Definitions.number`); one lower than the run's here
            is Refused(fenced); a higher one drops what lower ones staged
    digest  of the block's messages (`kernel.content_digest`); digests of blocks add up
    ttl_ms  the stage is dropped that long after its last block; 0: never
    seq     1, 2, 3 … within the stage, of which one queue may see only some; one that is not above
            the stage's last is a writer's resend through another node: acknowledged, dropped.
            0: not numbered
    """

    partition: int
    attempt: int
    digest: int
    ttl_ms: int = 0
    seq: int = 0


class SinkPublish(SinkCommand, frozen=True, array_like=True, tag="sink_publish"):
    """Make the named stages ready in this order; drop all others of the batch.

    Reply: Count of the batch's messages here, also for a repeat: the same attempts again, or others
    with the same messages in any order. Refused without any change: stage_lost when a stage is
    missing or has another number of blocks; batch_conflict when the batch was published with other
    content; batch_past; fenced; queue_full.

    attempts  (partition, attempt, number of blocks) as staged in this queue
    settles   claims, ascending, bound to this batch, which settles them; a repeat names the same
    expires_ms  forget the run once it has neither staged nor published for that long and nothing of
                it is staged; 0: not by itself. The latest publish says it
    """

    attempts: tuple[tuple[int, int, int], ...]
    settles: tuple[ClaimName, ...] = ()
    expires_ms: int = 0


class SinkDrop(SinkCommand, frozen=True, array_like=True, tag="sink_drop"):
    """Drop these stages (partition, attempt), and no others, of an aborted batch."""

    attempts: tuple[tuple[int, int], ...]


class ForgetSink(QueueCommand, frozen=True, array_like=True, tag="forget_sink"):
    """Forget a sink's runs with their epochs, batches and stages. Reply: SinkForgotten.

    A later batch of such a run is that of a new run: whatever its number it is taken, and one that
    was published before is published again.

    run     only this one; "": all
    forced  drop what is staged; False: while anything is, Refused(sink_in_use), and nothing is
            changed
    """

    sink: str
    run: str = ""
    forced: bool = False


_AnyNode: TypeAlias = NodeDown | NodeSuspected | NodeBack
_AnyReader: TypeAlias = RegisterReader | OpenClaim | RenewClaims | SettleClaims | ReleaseClaim
_AnySink: TypeAlias = SinkStage | SinkPublish | SinkDrop | ForgetSink
AnyCommand: TypeAlias = (
    Enqueue
    | Checkout
    | Credit
    | Cancel
    | SessionDown
    | Get
    | Settle
    | Return
    | Discard
    | Modify
    | Resume
    | Purge
    | Delete
    | Stat
    | _AnyNode
    | Timer
    | _AnyReader
    | DescribeClaim
    | GiveUpClaim
    | _AnySink
    | AnyDecision
    | Configure
    | RetryDelayed
    | SettleLetters
    | EnqueueDelayed
    | EndDelay
    | AnyRelayed
    | Judge
    | AnyJobCommand
)


class Submission(msgspec.Struct, frozen=True, array_like=True):
    """What one node submits to one queue at once; applied whole, once, in order.

    uplink    of the node; 0: not counted, not de-duplicated
    seq       1, 2, 3 … per (uplink, queue); a repeat (<= last) is acknowledged and dropped,
              a gap (> last + 1) is refused with Gap and nothing is applied
    commands  in order; at most one Enqueue, EnqueueDelayed, EnqueueRelayed or SinkStage, which owns
              the entry's block
    version   the cluster's, as the process that submits knows it: the queue behaves as in that one
    answered  replies up to this seq have reached the node and need not be kept. A repeat gets the
              replies of the first time as long as it is above `answered` and among the last
              machine.REPLIES_KEPT seqs: a node must not have more than that unanswered
    incarnation  that of the uplink, which submits nothing before it knows it
    """

    uplink: UplinkId
    node: str
    seq: int
    commands: tuple[AnyCommand, ...]
    version: int
    answered: int = 0
    incarnation: Incarnation = 0


class Done(Reply, frozen=True, array_like=True, tag="done"):
    """Success without a value."""


class Count(Reply, frozen=True, array_like=True, tag="count"):
    """A number of messages."""

    messages: int


class Resumed(Reply, frozen=True, array_like=True, tag="resumed"):
    """Deliveries below first_msg_id that the consumer has not seen are no longer its own."""

    first_msg_id: int


class Refused(Reply, frozen=True, array_like=True, tag="refused"):
    """A command that could not be carried out.

    reason    a word that the session turns into its protocol's code
    detail    what, which value, which limit, what to do
    accepted  with queue_full for an Enqueue: that many messages of the block, those with an ordinal
              below it, are in the queue all the same; the rest is not
    """

    reason: Literal[
        "in_use",
        "not_empty",
        "exclusive_use",
        "claim_lost",
        "fenced",
        "unknown_reader",
        "queue_full",
        "deleted",
        "invalid",
        "single_active",
        "stage_lost",
        "batch_past",
        "batch_conflict",
        "sink_in_use",
        "failed_in_row",
        "filters_full",
        "relay_in_use",
        "no_job",
        "job_state",
    ]
    detail: str
    accepted: int = 0


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """A run of messages of a block for one consumer; i of it has msg_id first_msg_id + i - first.

    delivery_count, acquired_count   as before this delivery (x-delivery-count, x-acquired-count);
                                     redelivered is acquired_count > 0
    annotations                      (msg_id, annotations) of those that consumers have annotated
    origin, number                   the name of the first in a relay's hands, and the following
                                     numbers are those of the others (`relays`); 0: it has none
    """

    first_msg_id: MsgId
    index: int
    first: int
    last: int
    delivery_count: int = 0
    acquired_count: int = 0
    annotations: tuple[tuple[MsgId, Pairs], ...] = ()
    origin: int = 0
    number: int = 0


class GetReply(Reply, frozen=True, array_like=True, tag="get"):
    """The result of basic.get; delivery is None when the queue is empty."""

    delivery: Delivery | None
    messages_ready: int


class ReaderStat(msgspec.Struct, frozen=True, array_like=True):
    """A claim reader in the counts of its queue.

    settled     the last settled claim; open_claims: how many are open
    heard_ms    when it was heard last
    forgotten_ms  when it is forgotten unless it is heard before; 0: not by itself
    starts      its registrations
    described   the latest claim that was described, and the batch that reads it
    bound       (claim, batch that decides about it)
    in_parts    messages of claims that were divided; part_due: the next claim is one of these
    failed_in_row  messages that failed alone, and claims rejected, since a claim was settled
    """

    name: str
    epoch: int
    settled: int
    open_claims: int
    heard_ms: int
    forgotten_ms: int
    starts: int
    described: tuple[int, ReadBy] | None
    bound: tuple[tuple[int, ClaimBinding], ...]
    in_parts: int
    part_due: bool
    failed_in_row: int


class StatReply(Reply, frozen=True, array_like=True, tag="stat"):
    """Counts, all of messages except `consumers`. now_ms: see `whole_queue.counts`.

    by_priority  (priority, ready messages), ascending, only those that have any
    readers      by name
    next_delayed_ms, last_delayed_ms  when the first and the last delayed message are ready; 0: none
    messages_dlx, message_bytes_dlx  dead letters that are kept until they have been forwarded
    duplicates_dropped  repeats dropped since the declaration; deduplication_ids: ids remembered
    relays       see `in_hands`
    bytes_unacknowledged, bytes_kept  of what consumers hold; of what claims hold, and is delayed;
                 0 where now_ms is 0
    messages_in_jobs  taken by jobs, or kept by them for an undo
    """

    messages_ready: int
    messages_unacknowledged: int
    messages_claimed: int
    messages_staged: int
    messages_delayed: int
    returned: int
    bytes_ready: int
    consumers: int
    by_priority: tuple[tuple[int, int], ...]
    readers: tuple[ReaderStat, ...]
    next_delayed_ms: int = 0
    last_delayed_ms: int = 0
    messages_dlx: int = 0
    message_bytes_dlx: int = 0
    duplicates_dropped: int = 0
    deduplication_ids: int = 0
    relays: tuple[tuple[str, int, int], ...] = ()
    now_ms: int = 0
    bytes_unacknowledged: int = 0
    bytes_kept: int = 0
    messages_in_jobs: int = 0


class ReaderReply(Reply, frozen=True, array_like=True, tag="reader"):
    """The reader's new epoch, the last settled claim, its registrations."""

    epoch: int
    settled: int
    starts: int


class ClaimReply(Reply, frozen=True, array_like=True, tag="claim"):
    """The content of a claim. origin: see `give_up_command.ORIGINS`.

    runs    (index, first, last, delivery_count, acquired_count) in delivery order
    """

    number: int
    messages: int
    size_bytes: int
    runs: tuple[tuple[int, int, int, int, int], ...]
    origin: int = 0


class EmptyClaim(Reply, frozen=True, array_like=True, tag="empty_claim"):
    """A claim that is open and holds no messages; see OpenClaim.keep_empty."""

    number: int


class SinkForgotten(Reply, frozen=True, array_like=True, tag="sink_forgotten"):
    """The number of runs forgotten, and of staged messages dropped with them."""

    runs: int
    messages_staged: int


_AnyClaim: TypeAlias = ReaderReply | ClaimReply | EmptyClaim | AnyDecided
_AnyCount: TypeAlias = Count | StatReply | SinkForgotten | AnyJobReply
AnyReply: TypeAlias = Done | Refused | GetReply | _AnyCount | _AnyClaim | Resumed | NotYet


class SubmissionReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a submission: one reply per command; expected_seq is set after a gap.

    retired  the incarnation that submitted has ended (`NodeDown`): nothing was or will be applied
    """

    uplink: UplinkId
    seq: int
    replies: tuple[AnyReply, ...]
    expected_seq: int = 0
    retired: bool = False


def part_of(delivery: Delivery, start: int, end: int) -> Delivery:
    """Return messages start <= k < end of a run, counted from its first."""
    return Delivery(
        delivery.first_msg_id + start,
        delivery.index,
        delivery.first + start,
        delivery.first + end - 1,
        delivery.delivery_count,
        delivery.acquired_count,
        delivery.annotations,
        delivery.origin,
        delivery.number + start if delivery.number else 0,
    )


def rest_of(delivery: Delivery, start: int) -> Delivery:
    """Return the run without its first `start` messages; all of it when that is not above 0.

    The result has first > last when the run has no more messages than that.
    """
    if start <= 0:
        return delivery
    return part_of(delivery, start, delivery.last - delivery.first + 1)
