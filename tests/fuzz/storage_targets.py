"""Targets of bytes between nodes and on disk: checksums are repaired, so that what follows is read.

The first octet of an input chooses the decoder where a target has several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tests.fuzz.target import Target, same
from warren_broker.cluster import messages as peer_messages
from warren_machines.metadata import codec as metadata_codec
from warren_machines.metadata import commands as metadata_commands
from warren_machines.metadata.machine import MetadataMachine
from warren_machines.metadata.records import User, Vhost
from warren_machines.queue import codec as queue_codec
from warren_machines.queue import commands, queue_snapshot
from warren_machines.queue.machine import QueueMachine
from warren_raft import messages
from warren_raft.core import membership
from warren_raft.errors import StorageError
from warren_raft.index_set import Indexes
from warren_raft.machine import Meta
from warren_raft.runtime import log_identity
from warren_raft.runtime.net import codec, handshake
from warren_raft.storage import format as wal
from warren_raft.storage import manifest, segment, snapshot, synced_mark
from warren_raft.storage.entry_index import Rows
from warren_raft.storage.format import Damaged
from warren_raft.storage.framed_file import SEAL_HEADER_BYTES
from warren_raft.types import EntryKind
from warren_raft.versions import NEWEST, OWN, VersionNeeded
from warren_wire.amqp10 import fetched, viewed
from warren_wire.checksum import crc32
from warren_wire.queue_values.config import QueueConfig
from warren_wire.undecodable import NO_STATE, UNDECODABLE

FRAME_BYTES_MAX = 1 << 20
SALT = 0x5EED5EED
Decoder = tuple[Callable[[bytes], object], tuple[type[Exception], ...]]
NESTED = b"\x91" * 3000 + b"\xc0"


def _chosen(data: bytes, decoders: tuple[Decoder, ...]) -> None:
    """Play the rest of the input with the decoder that its first octet chooses."""
    if data:
        decode, refused = decoders[data[0] % len(decoders)]
        try:
            decode(data[1:])
        except refused:
            pass


def _numbered(inputs: list[list[bytes]]) -> Iterator[bytes]:
    """Seeds for `_chosen`; those that are arrays in MessagePack also with a deep last field."""
    for number, each in enumerate(inputs):
        for data in each:
            yield bytes((number,)) + data
            if data and data[0] & 0xF0 == 0x90 and data[0] < 0x9F:
                yield bytes((number, data[0] + 1)) + data[1:] + NESTED


# ------------------------------------------------------------------ between nodes


def peer_frames(data: bytes) -> None:
    """A stream of a peer, cut at the place that the first octet says."""
    if not data:
        return
    whole, cut = _assembled([data[1:]]), _assembled([data[1:][: data[0]], data[1:][data[0] :]])
    same("frames of cut and whole input", cut, whole)
    for kind, body in whole:
        if kind == codec.RAFT:
            try:
                found = codec.decode_raft(memoryview(body))
            except codec.BadFrame:
                continue
            encoded = b"".join(codec.encode_raft(found))[codec.FRAME_HEADER_BYTES :]
            same("Raft frame", codec.decode_raft(memoryview(encoded)), found)


def _assembled(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    assembler = codec.Assembler(FRAME_BYTES_MAX)
    try:
        for piece in pieces:
            assembler.feed(piece, lambda kind, body: found.append((kind, bytes(body))))
    except codec.BadFrame:
        pass
    return found


_APPEND = messages.Append(
    2, "a", "b", 3, 10, 2, 9, ((3, EntryKind.COMMAND, 5, b"data"), (3, EntryKind.NOOP, 6, b""))
)
_RAFT: list[messages.AnyRaftMessage] = [
    messages.Vote(1, "a", "b", 3, 10, 2),
    _APPEND,
    messages.AppendReply(1, "b", "a", 3, True, 11, 11),
]


def peer_frames_seeds() -> Iterator[bytes]:
    """Frames of each kind, one after the other."""
    raft = b"".join(codec.encode_raft(_RAFT))
    for cut in (0, 3, 40):
        yield bytes((cut,)) + raft + codec.position_frame(7) + codec.frame(codec.MESSAGE, b"hello")
        yield bytes((cut,)) + codec.disk_frame(1) + b"".join(codec.encode_raft([_APPEND]))
        yield bytes((cut,)) + codec.frame(codec.HELLO, b"\x91" + NESTED)


def _round_trip(decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]) -> Any:
    """Return a decoder that also encodes what it decoded, and decodes that."""

    def play(data: bytes) -> None:
        found = encode(decode(data))
        same("round trip", encode(decode(found)), found)

    return play


def _encode_raft(found: list[messages.AnyRaftMessage]) -> bytes:
    return b"".join(codec.encode_raft(found))[codec.FRAME_HEADER_BYTES :]


def _decode_raft(body: bytes) -> list[messages.AnyRaftMessage]:
    return codec.decode_raft(memoryview(body))


def _peer_message(data: bytes) -> None:
    found, rest = peer_messages.decode(data)
    again, same_rest = peer_messages.decode(b"".join(peer_messages.encode(found, rest)))
    same("peer message", msgspec.msgpack.encode(again), msgspec.msgpack.encode(found))
    same("blobs", bytes(same_rest), bytes(rest))


def _views(data: bytes) -> None:
    viewed.decode_view(memoryview(data))


def _pieces(data: bytes) -> None:
    section = fetched.decode_section(memoryview(data))
    runs, rest = fetched.decode_piece(section)
    same("piece", fetched.encode_runs(runs) + bytes(rest), bytes(section))


def _handshake(kind: type[msgspec.Struct]) -> Decoder:
    decoder = msgspec.msgpack.Decoder(kind)
    return decoder.decode, UNDECODABLE


_PEERS: tuple[Decoder, ...] = (
    (_round_trip(_decode_raft, _encode_raft), (codec.BadFrame,)),
    (_peer_message, (peer_messages.MalformedPeerMessage,)),
    (_views, (fetched.MalformedPiece,)),
    (_pieces, (fetched.MalformedPiece,)),
    _handshake(handshake.Hello),
    _handshake(handshake.Proof),
)


def peers(data: bytes) -> None:
    """Messages between nodes, and pieces that a node sends to a Spark executor."""
    _chosen(data, _PEERS)


def peers_seeds() -> Iterator[bytes]:
    """One of each kind, and some with many fields."""
    pieces = fetched.encode_runs([(1, 0, 5, 0, 0), (2, 0, 0, 1, 1)]) + b"block"
    view = viewed.encode_view_head(viewed.ViewHead(("a",), ((1,) * 10,), ((1, 2),)))
    asked = [
        peer_messages.Submit(1, 2, 4),
        peer_messages.AskShovels(1, "/", "name"),
        peer_messages.AskMembers(3, (1, 2)),
        peer_messages.AskConnections(4, "/", "user", "name", True, "", True, "queue"),
    ]
    return _numbered(
        [
            [_encode_raft([one]) for one in _RAFT],
            [b"".join(peer_messages.encode(one, b"blob")) for one in asked],
            [view + b"block", view],
            [fetched.encode_section_head(len(pieces)) + pieces],
            [msgspec.msgpack.encode(handshake.Hello(OWN, "c", "a", 7, b"n" * 32))],
            [msgspec.msgpack.encode(handshake.Proof(b"m" * 32))],
        ]
    )


# ------------------------------------------------------------------ on disk


def _resealed(data: bytes) -> bytes:
    """The file, framed as in `framed_file`, with its length and checksum repaired."""
    if len(data) < SEAL_HEADER_BYTES:
        return data
    length = (len(data) - SEAL_HEADER_BYTES).to_bytes(8, "little")
    crc = crc32(data[SEAL_HEADER_BYTES:], crc32(length, crc32(data[:12])))
    return data[:12] + crc.to_bytes(4, "little") + length + data[SEAL_HEADER_BYTES:]


def _framed(decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]) -> Decoder:
    play = _round_trip(decode, encode)
    return (lambda data: play(_resealed(data))), (Damaged,)


def _records(data: bytes) -> None:
    """A file of the log: its head, then records until the first damaged one."""
    data = _repaired_records(data)
    head = wal.decode_head(data)
    at = wal.FIRST_RECORD
    while at < len(data):
        record = wal.decode_record(head.salt, memoryview(data), at)
        if record.kind in wal.ENTRY_RECORDS:
            entry = wal.decode_entry(record)
            parts = wal.intact_entry(
                head.salt, memoryview(data), at, record.group, record.index, len(record.data)
            )
            if parts is not None:
                known = (entry.index, entry.term, entry.kind, entry.time_ms, entry.data)
                same("entry", tuple(parts), known)
        assert record.end > at, (record.end, at)
        at = record.end


def _repaired_records(data: bytes) -> bytes:
    """With the checksums that head and records have, where there is room for them."""
    made = bytearray(data)
    if len(made) < wal.FILE_HEADER_BYTES:
        return data
    made[32:40] = crc32(made[:32]).to_bytes(4, "little") + bytes(4)
    salt, at = int.from_bytes(made[12:16], "little"), wal.FILE_HEADER_BYTES
    while at + wal.RECORD_HEADER_BYTES <= len(made):
        end = at + wal.RECORD_HEADER_BYTES + int.from_bytes(made[at + 8 : at + 12], "little")
        if end > len(made):
            break
        made[at + 4 : at + 8] = crc32(bytes(made[at + 8 : end]), salt).to_bytes(4, "little")
        at = end
    return bytes(made)


def _entry(data: bytes) -> None:
    """An entry of a queue: decoded and encoded."""
    found, block = queue_codec.decode_submission(data)
    encoded = queue_codec.encode_submission(found, block)
    again, _ = queue_codec.decode_submission(encoded)
    same("submission", msgspec.msgpack.encode(again), msgspec.msgpack.encode(found))


_DISK: tuple[Decoder, ...] = (
    (_records, (Damaged,)),
    _framed(snapshot.decode, snapshot.encode),
    _framed(manifest.decode, manifest.encode),
    _framed(segment.decode, segment.encode),
    (synced_mark.decode, ()),
    (_round_trip(membership.decode, membership.encode), (StorageError,)),
    (lambda data: log_identity.decode(1, data), (StorageError,)),
    (_entry, (queue_codec.MalformedEntry, VersionNeeded)),
    (metadata_codec.decode_submission, (metadata_codec.MalformedMetadata, VersionNeeded)),
)


def files(data: bytes) -> None:
    """Files of the data directory, and the entries in them."""
    _chosen(data, _DISK)


def _log_file() -> bytes:
    data = wal.encode_head(2, SALT, 5, wal.Link(7, SALT, 100, 0))
    for number, kind in enumerate(wal.RecordKind):
        content = b"data" * number
        data += wal.encode_record(SALT, 5, kind, 1, number, 1, content, number % 3, 9) + content
    return data


def files_seeds() -> Iterator[bytes]:
    """A file of each kind."""
    rows = Rows()
    for column, value in (
        (rows.indexes, 1),
        (rows.terms, 1),
        (rows.offsets, 40),
        (rows.lengths, 4),
    ):
        column.append(value)
    index = segment.SegmentIndex(
        segment.SegmentName(1, 2, 0), False, 99, SALT, ((1, (1, 1), rows),)
    )
    row = manifest.GroupRow(1, (1, 1), b"created", 1, "a", 5, 5)
    config = commands.Submission(1, "a", 1, (commands.Enqueue(), commands.Stat()), NEWEST)
    declared = (metadata_commands.AddVhost(Vhost("v")),)
    return _numbered(
        [
            [_log_file()],
            [
                snapshot.encode(
                    snapshot.Snapshot(1, 1, 1, 0, (1, 1), 1, ("a",), (), live, b"state")
                )
                for live in (b"", bytes(Indexes.of([1, 2, 9, 5000]).tobytes()))
            ],
            [manifest.encode(manifest.Manifest(3, (1, 1), (row,), 9))],
            [segment.encode(index)],
            [synced_mark.encode(synced_mark.SyncedMark(1, 99, SALT, 7))],
            [membership.encode(membership.Membership(("a", "b"), ("c",), (("a", 1),)))],
            [log_identity.encode(log_identity.Birth(("a",), 5))],
            [
                queue_codec.encode_submission(config, b"block"),
                queue_codec.encode_submission(config),
            ],
            [metadata_codec.encode_submission(1, "a", 1, declared, NEWEST)],
        ]
    )


# ------------------------------------------------------------------ states


def states(data: bytes) -> None:
    """Snapshots of a queue and of the definitions: restored, and taken again.

    A state has a checksum, or comes from a member of the group: a machine refuses other bytes with
    any of NO_STATE, in time and space.
    """
    machine: Any = MetadataMachine() if data[:1] == b"\1" else QueueMachine(QueueConfig("/", "q"))
    try:
        found = machine.snapshot(machine.restore(data[1:]))
    except NO_STATE:
        return
    try:
        state = machine.restore(found)
    except NO_STATE:
        return
    same("snapshots", machine.snapshot(state), found)


def states_seeds() -> Iterator[bytes]:
    """States with messages, consumers, definitions."""
    from tests.broker.fuzz.test_blocks import CONFIGS, consumed, good

    for config in CONFIGS:
        queue = consumed(config)
        queue.submit(commands.Enqueue(), block=good())
        yield b"\0" + queue_snapshot.snapshot(queue.state)
    machine, user = MetadataMachine(), User("guest", "hash", ("administrator",))
    state = machine.init()
    yield b"\1" + machine.snapshot(state)
    first = metadata_commands.Bootstrap(Vhost("/"), user)
    more = metadata_commands.AddVhost(Vhost("v"))
    machine.apply(
        Meta(1, 1, 1), metadata_codec.encode_submission(1, "a", 1, (first, more), NEWEST), state
    )
    yield b"\1" + machine.snapshot(state)


TARGETS = (
    Target("peer-frames", peer_frames, peer_frames_seeds),
    Target("peers", peers, peers_seeds, heads=(1,)),
    Target("files", files, files_seeds, heads=(1, 1 + SEAL_HEADER_BYTES)),
    Target("states", states, states_seeds, heads=(1,)),
)
