"""Messages between the brokers of a cluster, besides Raft's own.

A message on the peer connection is `u32 header length | MessagePack header | blobs`; the header is
one of the structs below and contains the length of each blob. Little-endian.
"""

from __future__ import annotations

import struct
from functools import reduce
from operator import or_

import msgspec

from warren_machines.queue.commands import (
    ConsumerId,
    Delivery,
    StatReply,
    SubmissionReply,
    UplinkId,
)
from warren_machines.queue.effects import ActiveIs, CancelConsumer
from warren_machines.queue.jobs.job_commands import JobStat
from warren_machines.queue.places import BrowsedRows, BrowsePlace
from warren_raft.errors import PeerError
from warren_raft.types import MemberState
from warren_raft.versions import FIRST, Versions
from warren_wire.admin.connections import ConnectionInfo, ConsumerInfo
from warren_wire.admin.members import MemberLog
from warren_wire.admin.overview import NodeTotals
from warren_wire.admin.shovels import ShovelInfo
from warren_wire.admin.statistics import QueueStatistics
from warren_wire.block.layout import AREAS
from warren_wire.undecodable import UNDECODABLE

_LENGTH = struct.Struct("<I")
HEADER_BYTES_MAX = 64 * 1024 * 1024


class PeerMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base class of all messages between brokers."""


class Numbered(PeerMessage, frozen=True, array_like=True):
    """A question between brokers, or the answer to it: both carry the asker's number."""

    request: int


class Submit(PeerMessage, frozen=True, array_like=True, tag="submit"):
    """Propose the blob (an encoded submission) in that group."""

    group: int
    seq: int
    length: int


class LeaderIsElsewhere(PeerMessage, frozen=True, array_like=True, tag="not_leader"):
    """Report that the sender, which got a submission, does not lead the group.

    leader  the node that may lead, as of `term`; None: unknown
    """

    group: int
    leader: str | None
    term: int


class LeaderIs(PeerMessage, frozen=True, array_like=True, tag="leader_is"):
    """Report that the sender leads the group since `term`."""

    group: int
    term: int


class WhoLeads(PeerMessage, frozen=True, array_like=True, tag="who_leads"):
    """Ask for the leader, which answers LeaderIs; a follower passes the question on.

    passed_on  the sender takes the receiver for the leader: LeaderIsElsewhere, if it is not
    """

    group: int
    passed_on: bool = False


class Short(PeerMessage, frozen=True, array_like=True, tag="short"):
    """Report the resources that the sender is low on; every node then blocks its publishers."""

    reasons: tuple[str, ...]


class Replied(PeerMessage, frozen=True, array_like=True, tag="replied"):
    """Report that a submission was applied at `index`, or has a gap before it."""

    group: int
    index: int
    reply: SubmissionReply


class MetadataReplied(PeerMessage, frozen=True, array_like=True, tag="metadata_replied"):
    """Report the same from the metadata group; `reply` is an encoded metadata reply."""

    index: int
    reply: bytes


class Delivered(PeerMessage, frozen=True, array_like=True, tag="delivered"):
    """Deliver messages to a consumer of the receiver.

    terms    of the entries of those deliveries that the receiver holds itself; 0 for the others
    lengths  of the blobs: the blocks of the others, in order, each cut to its delivery's range
    """

    group: int
    uplink: UplinkId
    consumer: ConsumerId
    deliveries: tuple[Delivery, ...]
    terms: tuple[int, ...]
    lengths: tuple[int, ...]


class DeliveriesTaken(PeerMessage, frozen=True, array_like=True, tag="deliveries_taken"):
    """Report bytes of `Delivered` blobs that the sender has taken, or dropped."""

    size_bytes: int


class DeliveriesRefused(PeerMessage, frozen=True, array_like=True, tag="deliveries_refused"):
    """Report that a consumer of the sender takes nothing, and will ask for it (`Resume`)."""

    group: int
    uplink: UplinkId
    consumer: ConsumerId


class Got(PeerMessage, frozen=True, array_like=True, tag="got"):
    """Send a message's block (the blob) for the answer to a `Get`, ahead of `Replied`."""

    group: int
    index: int
    ordinal: int
    length: int


class ConsumerCancelled(PeerMessage, frozen=True, array_like=True, tag="cancelled"):
    """Report that a consumer of the receiver was cancelled."""

    group: int
    effect: CancelConsumer


class ConsumerActive(PeerMessage, frozen=True, array_like=True, tag="active"):
    """Report whether a consumer of the receiver is the single active one."""

    group: int
    effect: ActiveIs


class ReadRuns(Numbered, frozen=True, array_like=True, tag="read_runs"):
    """Ask for messages first <= i < last of a claim, or of the ready ones (reader empty)."""

    group: int
    reader: str
    number: int
    first: int
    last: int


class RunsAre(Numbered, frozen=True, array_like=True, tag="runs"):
    """Answer ReadRuns: (index, first, last, delivery_count, acquired_count), closed, in order."""

    rows: tuple[tuple[int, int, int, int, int], ...]


class ReadDelayed(Numbered, frozen=True, array_like=True, tag="read_delayed"):
    """Ask a leader for the first delayed messages, at most `count`."""

    group: int
    count: int


class DelayedAre(Numbered, frozen=True, array_like=True, tag="delayed"):
    """Answer ReadDelayed: (ready_ms, index, first, last, delivery_count, acquired_count)."""

    rows: tuple[tuple[int, int, int, int, int, int], ...]


class ReadSinks(Numbered, frozen=True, array_like=True, tag="read_sinks"):
    """Ask a leader what its queue remembers of sinks (`queue.view`)."""

    group: int
    sink: str
    run: str
    count: int


class SinksAre(Numbered, frozen=True, array_like=True, tag="sinks"):
    """Answer ReadSinks: how many runs there are, and the first of them.

    now_ms  of the leader, by the clock of the times in the rows
    """

    total: int
    rows: tuple[tuple[str, str, int, int, tuple[tuple[int, int], ...], int, int, int], ...]
    now_ms: int


class ReadView(Numbered, frozen=True, array_like=True, tag="read_view"):
    """Ask a leader what its queue holds (`queue.view`); with pieces: where to cut that.

    browse  instead the next `count` messages behind a place, and which member gave that; None: the
            view is asked for
    """

    group: int
    states: tuple[str, ...]
    first: int
    last: int
    count: int
    pieces: int
    browse: tuple[BrowsePlace | None, int] | None = None


class ViewIs(Numbered, frozen=True, array_like=True, tag="view"):
    """Answer ReadView: names and rows, or edges.

    browsed  what was asked for with `browse`, and which member this is; a node that does not know
             that field answers with names and rows
    """

    names: tuple[str, ...]
    rows: tuple[tuple[int, int, int, int, int, int, int, int, int, int], ...]
    edges: tuple[int, ...]
    browsed: BrowsedRows | None = None
    origin: int = 0


class ReadKept(Numbered, frozen=True, array_like=True, tag="read_kept"):
    """Ask a leader for the first of these messages that are still in its queue, as ReadBlock.

    times   with the times of their entries
    blocks  False: without the block
    areas   of the block, as in ReadBlock
    """

    group: int
    runs: tuple[tuple[int, int, int, int, int], ...]
    max_bytes: int
    times: bool
    blocks: bool
    areas: int = AREAS


class KeptIs(Numbered, frozen=True, array_like=True, tag="kept"):
    """Answer ReadKept: the blob is a block of the first `messages` messages, without those gone.

    gone   log indexes of entries with no message in the queue any more
    times  (index, time_ms) of the entries of these messages
    """

    gone: tuple[int, ...]
    messages: int
    times: tuple[tuple[int, int], ...]
    length: int


class ReadBlock(Numbered, frozen=True, array_like=True, tag="read_block"):
    """Ask for the first of these messages as one block of about max_bytes, at least one message.

    areas  of the block (`block.layout`); a node that does not know the field sends both
    """

    group: int
    runs: tuple[tuple[int, int, int, int, int], ...]
    max_bytes: int
    areas: int = AREAS


class BlockIs(Numbered, frozen=True, array_like=True, tag="block"):
    """Answer ReadBlock: the blob is a block of the first `messages` messages."""

    messages: int
    length: int


class ReadRefused(Numbered, frozen=True, array_like=True, tag="read_refused"):
    """Refuse a read that cannot be answered here; retry: another member may, or this one later."""

    retry: bool
    detail: str


class QueueCounts(Numbered, frozen=True, array_like=True, tag="counts"):
    """Ask a leader for its counts without writing to the log."""

    group: int


class CountsAre(Numbered, frozen=True, array_like=True, tag="counts_are"):
    """Answer QueueCounts."""

    stat: StatReply
    set_aside: int = 0


class MessagesSetAside(PeerMessage, frozen=True, array_like=True, tag="set_aside"):
    """Tell a queue's leader how many of its messages could not be handled on the sender's node."""

    group: int
    count: int


class ReplyFor(PeerMessage, frozen=True, array_like=True, tag="reply_for"):
    """Send a message to a consumer of amq.rabbitmq.reply-to; the blob is its block."""

    name: str
    length: int


class HaveYouSeen(Numbered, frozen=True, array_like=True, tag="have_you_seen"):
    """Ask for HasSeen once that index of the metadata group has been applied."""

    index: int


class HasSeen(Numbered, frozen=True, array_like=True, tag="has_seen"):
    """Answer HaveYouSeen: the index has been applied."""


class CountClients(Numbered, frozen=True, array_like=True, tag="count_clients"):
    """Ask for the receiver's clients in that vhost, and those of that user."""

    vhost: str
    user: str


class ClientsCounted(Numbered, frozen=True, array_like=True, tag="clients_counted"):
    """Answer CountClients, by name of the limit that counts them."""

    vhost_connections: int
    user_connections: int
    user_channels: int


class AskShovels(Numbered, frozen=True, array_like=True, tag="ask_shovels"):
    """Ask for the shovels that the receiver runs; name: of one that is to be restarted first."""

    vhost: str
    name: str


class ShovelsAre(Numbered, frozen=True, array_like=True, tag="shovels_are"):
    """Answer AskShovels.

    static  name -> digest of each shovel of the node's configuration
    """

    shovels: tuple[ShovelInfo, ...]
    static: dict[str, str]


class AskJobs(Numbered, frozen=True, array_like=True, tag="ask_jobs"):
    """Ask for the jobs of the queues that the receiver leads; from version JOBS_VERSION on."""


class JobsAre(Numbered, frozen=True, array_like=True, tag="jobs_are"):
    """Answer AskJobs: (group, job)."""

    jobs: tuple[tuple[int, JobStat], ...]


class AskConnections(Numbered, frozen=True, array_like=True, tag="ask_connections"):
    """Ask for the receiver's connections of that vhost, user and name; "": of any.

    channels   whether the answer has their open channels
    reason     not empty: the one of that name is to be closed instead
    consumers  the answer is to have their consumers instead, of that queue ("": of any)
    totals     the answer is to have what the node counts instead
    statistics  the answer is to have those of the vhost's queues, or of `queue`, instead;
                without a vhost those of the receiver itself
    samples    of statistics, or of connections and channels: with these
    counted    "exchanges" or "vhosts": the answer is to have statistics of these instead, of the
               vhost and the name in `queue` ("": of all); "gauges": of the receiver itself
    groups, column  the answer is to have the numbers of these queues instead, or that number of all

    A node that does not know the last eight fields answers the connections.
    """

    vhost: str
    user: str
    name: str
    channels: bool
    reason: str
    consumers: bool = False
    queue: str = ""
    totals: bool = False
    statistics: bool = False
    samples: bool = False
    counted: str = ""
    groups: tuple[int, ...] = ()
    column: str = ""


class NumbersOfQueue(msgspec.Struct, frozen=True, array_like=True):
    """What a node knows of a queue.

    stat, set_aside  of the node that leads it; None, 0: that one does not
    statistics       None: it was not used there
    """

    group: int
    stat: StatReply | None
    set_aside: int
    statistics: QueueStatistics | None

    def plus(self, other: NumbersOfQueue) -> NumbersOfQueue:
        """Return the sums with what another node knows of the same queue."""
        led = self if self.stat is not None else other
        statistics = self.statistics or other.statistics
        if self.statistics is not None and other.statistics is not None:
            statistics = self.statistics.plus(other.statistics)
        return NumbersOfQueue(self.group, led.stat, led.set_aside, statistics)


class ConnectionsAre(Numbered, frozen=True, array_like=True, tag="connections_are"):
    """Answer AskConnections.

    consumers  group of the queue, number on the sender, and what is known there
    active     of single active consumers of queues that the sender leads: group, uplink, number
    """

    connections: tuple[ConnectionInfo, ...]
    consumers: tuple[tuple[int, int, ConsumerInfo], ...] = ()
    active: tuple[tuple[int, int, int], ...] = ()
    totals: NodeTotals | None = None
    statistics: tuple[QueueStatistics, ...] = ()
    queues: tuple[NumbersOfQueue, ...] = ()
    column: dict[int, float] = {}


class Join(PeerMessage, frozen=True, array_like=True, tag="join"):
    """Ask to join the cluster, from a node that does not know the definitions yet.

    passed_on  forwarded by a node that does not lead the metadata group
    versions   that its program has
    """

    node: str
    disk: int
    address: str
    passed_on: bool = False
    versions: Versions = FIRST


class AskMembers(Numbered, frozen=True, array_like=True, tag="ask_members"):
    """Ask for the facts of these groups, as far as the receiver leads them."""

    groups: tuple[int, ...]


class GroupFacts(msgspec.Struct, frozen=True, array_like=True):
    """A group as its leader sees it."""

    group: int
    term: int
    last: int
    commit: int
    members: tuple[MemberState, ...]


class MembersAre(Numbered, frozen=True, array_like=True, tag="members_are"):
    """Answer AskMembers; groups that the sender does not lead are missing."""

    facts: tuple[GroupFacts, ...]


class AskLed(Numbered, frozen=True, array_like=True, tag="ask_led"):
    """Ask which groups the receiver leads, and which of them need `stopping` for their majority.

    brief  of the groups only how many are led, and whether the definitions are
    """

    stopping: str
    brief: bool = False


class LedAre(Numbered, frozen=True, array_like=True, tag="led_are"):
    """Answer AskLed.

    led        every group that the sender leads, ascending
    critical   those that would lose their majority
    unsettled  those with other members than wanted
    leads      how many of them are replicated queues, in a brief answer, which has of the groups
               only that of the definitions; -1: it is another one
    """

    led: tuple[int, ...]
    critical: tuple[int, ...]
    unsettled: tuple[GroupFacts, ...]
    leads: int = -1


class AskLogEnd(Numbered, frozen=True, array_like=True, tag="ask_log_end"):
    """Ask for the end of the receiver's log of a group; see `Host.log_end`."""

    group: int


class LogEndIs(Numbered, frozen=True, array_like=True, tag="log_end_is"):
    """Answer AskLogEnd; log: None where no member runs."""

    term: int
    last: int
    log: MemberLog | None = None


class HandOver(PeerMessage, frozen=True, array_like=True, tag="hand_over"):
    """Ask the leader of a group to transfer the leadership to that node."""

    group: int
    to: str


class HoldGroup(Numbered, frozen=True, array_like=True, tag="hold_group"):
    """Ask a member of a group to hold a snapshot of it, for a backup."""

    group: int


class GroupHeld(Numbered, frozen=True, array_like=True, tag="group_held"):
    """Answer HoldGroup; see `backups.Held`. detail: why there is none; "": there is."""

    hold: int = 0
    index: int = 0
    term: int = 0
    time_ms: int = 0
    members: tuple[str, ...] = ()
    detail: str = ""


class ReadHeld(Numbered, frozen=True, array_like=True, tag="read_held"):
    """Ask for the next bytes of a part of what is held; see `HeldIs`."""

    hold: int
    part: str
    position: int
    offset: int


class HeldIs(Numbered, frozen=True, array_like=True, tag="held"):
    """Answer ReadHeld.

    position, offset  where the next read begins
    more              whether there is more
    detail            why there are no bytes; "": there are, or nothing is left
    gone              it is held no more, and another one is needed
    """

    data: bytes = b""
    position: int = 0
    offset: int = 0
    more: bool = False
    detail: str = ""
    gone: bool = False


class ReleaseHeld(PeerMessage, frozen=True, array_like=True, tag="release_held"):
    """Report that what is held is not needed any more."""

    hold: int


class AskNode(Numbered, frozen=True, array_like=True, tag="ask_node"):
    """Ask a node a request of the administration about itself (`node_questions`).

    kind    the name of the request's type; fields: the request in MessagePack
    A node of a version before `node_questions.SINCE` ends the connection, and is not asked.
    """

    kind: str
    fields: bytes


class NodeSays(Numbered, frozen=True, array_like=True, tag="node_says"):
    """Answer AskNode: the value in MessagePack."""

    answer: bytes


class TracedSubmission(PeerMessage, frozen=True, array_like=True, tag="traced"):
    """Report that a submission, which comes next, has messages of sampled traces.

    uplink, seq  of the submission
    queue        the name of the group's queue
    contexts     of the spans of their publishing, trace-id and span-id of each, one after the other
    A node of a version before `traced_cluster.TRACES_SINCE` ends the connection, and is not told.
    """

    group: int
    uplink: UplinkId
    seq: int
    queue: str
    contexts: bytes


_ENCODER = msgspec.msgpack.Encoder()
_KINDS = (*PeerMessage.__subclasses__(), *Numbered.__subclasses__())
_DECODER: msgspec.msgpack.Decoder[PeerMessage] = msgspec.msgpack.Decoder(
    reduce(or_, [kind for kind in _KINDS if kind is not Numbered])
)


class MalformedPeerMessage(PeerError):
    """Bytes from another node that are not a peer message; its connection is closed."""


def encode(message: PeerMessage, *blobs: bytes | memoryview) -> list[bytes | memoryview]:
    """Encode a message as buffers to be written one after the other."""
    header = _ENCODER.encode(message)
    return [_LENGTH.pack(len(header)) + header, *blobs]


def decode(data: bytes | memoryview) -> tuple[PeerMessage, memoryview]:
    """Return the message and the bytes after its header; raises MalformedPeerMessage."""
    view = memoryview(data)
    if len(view) < _LENGTH.size:
        raise MalformedPeerMessage(f"{len(view)} bytes are less than a header's length field")
    (length,) = _LENGTH.unpack_from(view)
    if length > min(len(view) - _LENGTH.size, HEADER_BYTES_MAX):
        raise MalformedPeerMessage(f"header of {length} bytes in a message of {len(view)}")
    end = _LENGTH.size + length
    try:
        return _DECODER.decode(view[_LENGTH.size : end]), view[end:]
    except UNDECODABLE as error:
        raise MalformedPeerMessage(str(error)) from error


def cut(blobs: memoryview, lengths: tuple[int, ...]) -> list[memoryview]:
    """Split the bytes after a header by the lengths it names; raises MalformedPeerMessage."""
    parts, start = [], 0
    for length in lengths:
        if length < 0 or start + length > len(blobs):
            raise MalformedPeerMessage(f"blob of {length} bytes at {start} in {len(blobs)}")
        parts.append(blobs[start : start + length])
        start += length
    return parts
