"""A snapshot's way from a leader to a member, over a link that loses, repeats and reorders."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren_raft.core import snapshot_transfer
from warren_raft.core.snapshot_transfer import (
    CHUNK_BYTES_MAX,
    CHUNKS_UNDER_WAY_MAX,
    Incoming,
    OutgoingSnapshot,
)
from warren_raft.messages import SnapshotChunk, SnapshotWanted
from warren_raft.types import Entry, EntryKind

INDEX, TERM, LEADER_TERM = 900, 7, 9


def entry(index: int, size: int = 10) -> Entry:
    return Entry(index, 3, EntryKind.COMMAND, index * 2, bytes([index % 251]) * size)


def outgoing(
    live: list[int], payload: bytes = b"s", size: int = 10, now_ms: int = 5
) -> OutgoingSnapshot:
    return OutgoingSnapshot(
        1, "a", "b", INDEX, TERM, live, payload, lambda i: entry(i, size), now_ms
    )


def wanted(receiver: Incoming, repeat: bool) -> SnapshotWanted:
    return SnapshotWanted(
        1, "b", "a", LEADER_TERM, INDEX, TERM, receiver.live_after, len(receiver.payload), repeat
    )


def begun(sender: OutgoingSnapshot, applied: int = 0) -> Incoming:
    """The offer was made and answered."""
    receiver = Incoming(sender.offer(LEADER_TERM), applied)
    sender.heard(wanted(receiver, True), 6)
    return receiver


def test_the_chunk_size_and_the_window_are_as_documented() -> None:
    assert (CHUNK_BYTES_MAX, CHUNKS_UNDER_WAY_MAX) == (1_048_576, 4)


def test_nothing_is_sent_before_the_offer_is_answered() -> None:
    sender = outgoing([3, 4], b"state")
    assert sender.next(LEADER_TERM) is None, "nor before it is made"
    offer = sender.offer(LEADER_TERM)
    assert offer == SnapshotChunk(1, "a", "b", LEADER_TERM, INDEX, TERM, 0, (), -1, b"", 5)
    assert sender.next(LEADER_TERM) is None
    sender.heard(SnapshotWanted(1, "b", "a", LEADER_TERM, INDEX, TERM, 3, 0, True), 17)
    assert sender.heard_ms == 17
    chunk = sender.next(LEADER_TERM)
    assert chunk is not None
    assert [live[0] for live in chunk.entries] == [4], "entry 3 is there already"
    assert chunk.live_after == 3


def test_live_entries_go_first_then_the_payload() -> None:
    sender = outgoing([3, 4, 8], b"state")
    receiver = begun(sender)
    first = sender.next(LEADER_TERM)
    assert first is not None and first.payload_from == -1
    entries, repeat = receiver.take(first)
    assert (entries, repeat) == ((entry(3), entry(4), entry(8)), False)
    assert (receiver.live_after, receiver.complete) == (8, False)
    second = sender.next(LEADER_TERM)
    assert second is not None
    assert (second.live_after, second.payload_from, second.payload) == (8, 0, b"state")
    assert receiver.take(second) == ((), False)
    assert receiver.complete
    assert sender.next(LEADER_TERM) is None, "all was sent"


def test_a_chunk_holds_what_one_may_hold() -> None:
    half = CHUNK_BYTES_MAX // 2
    sender = outgoing([1, 2, 3], bytes(CHUNK_BYTES_MAX + 1), size=half)
    begun(sender)
    chunks = [sender.next(LEADER_TERM) for _ in range(4)]
    assert [len(c.entries) for c in chunks if c is not None] == [2, 1, 0, 0]
    assert [len(c.payload) for c in chunks if c is not None] == [0, 0, CHUNK_BYTES_MAX, 1]
    assert [c.payload_from for c in chunks if c is not None] == [-1, -1, 0, CHUNK_BYTES_MAX]


def test_a_larger_entry_goes_alone() -> None:
    sender = outgoing([1, 2], size=CHUNK_BYTES_MAX + 1)
    begun(sender)
    chunk = sender.next(LEADER_TERM)
    assert chunk is not None and len(chunk.entries) == 1


def test_four_chunks_are_under_way_and_each_answer_makes_room_for_one() -> None:
    sender = outgoing(list(range(1, 10)), size=CHUNK_BYTES_MAX)
    receiver = begun(sender)
    chunks = [sender.next(LEADER_TERM) for _ in range(5)]
    assert [c is not None for c in chunks] == [True] * 4 + [False]
    assert chunks[0] is not None
    receiver.take(chunks[0])
    sender.heard(wanted(receiver, False), 8)
    assert sender.next(LEADER_TERM) is not None
    assert sender.next(LEADER_TERM) is None


def test_answers_never_make_room_for_more_than_the_window() -> None:
    sender = outgoing(list(range(1, 20)), size=CHUNK_BYTES_MAX)
    receiver = begun(sender)
    for _ in range(3):
        sender.heard(wanted(receiver, False), 8)
    assert sum(sender.next(LEADER_TERM) is not None for _ in range(9)) == CHUNKS_UNDER_WAY_MAX


def test_a_loss_turns_the_sender_back_once() -> None:
    """Of four chunks under way the first is lost: three answers say so, one resend follows."""
    sender = outgoing(list(range(1, 7)), size=CHUNK_BYTES_MAX)
    receiver = begun(sender)
    chunks = [sender.next(LEADER_TERM) for _ in range(4)]
    resent = []
    for chunk in chunks[1:]:
        assert chunk is not None
        assert receiver.take(chunk) == ((), True)
        sender.heard(wanted(receiver, True), 9)
        while (again := sender.next(LEADER_TERM)) is not None:
            resent.append(again.entries[0][0])
    # The turn empties the window (1 … 4), and each further answer makes room for one.
    assert resent == [1, 2, 3, 4, 5, 6]


def test_what_belongs_to_another_snapshot_steers_nothing() -> None:
    sender = outgoing([1, 2], b"state")
    receiver = begun(sender)
    sender.next(LEADER_TERM)
    for index, term in ((INDEX + 1, TERM), (INDEX, TERM + 1)):
        stray = SnapshotWanted(1, "b", "a", LEADER_TERM, index, term, 0, 0, True)
        sender.heard(stray, 99)
    assert (sender.heard_ms, sender.live_sent, sender.under_way) == (6, 2, 1)
    assert receiver.live_after == 0


@pytest.mark.parametrize("payload", [b"", b"pay"])
def test_out_of_place_is_not_taken(payload: bytes) -> None:
    sender = outgoing([5, 6], b"payload")
    receiver = begun(sender)
    receiver.payload += payload
    after = SnapshotChunk(1, "a", "b", LEADER_TERM, INDEX, TERM, 5, (), -1, b"", 7)
    chunk = sender.next(LEADER_TERM)
    assert chunk is not None
    late = SnapshotChunk(*(*_fields(after)[:6], 5, chunk.entries, -1, b"", 7))
    assert receiver.take(late) == ((), True), "it follows an entry that is not here"
    if payload:
        assert receiver.take(chunk) == ((), True), "no entries once the payload has begun"
        gap = SnapshotChunk(*(*_fields(after)[:6], 0, (), 2, b"x", 7))
        assert receiver.take(gap) == ((), True), "bytes 2 … are here up to 3"
        other = SnapshotChunk(*(*_fields(after)[:6], 6, (), 3, b"x", 7))
        assert receiver.take(other) == ((), True), "live entries are missing before it"
    assert receiver.take(sender.offer(LEADER_TERM)) == ((), True), "an offer asks where it stands"
    assert (receiver.live_after, bytes(receiver.payload)) == (0, payload)


def _fields(chunk: SnapshotChunk) -> tuple[object, ...]:
    return tuple(getattr(chunk, name) for name in chunk.__struct_fields__)


def test_a_chunk_is_of_one_snapshot_and_one_sender() -> None:
    offer = outgoing([1], b"state").offer(LEADER_TERM)
    receiver = Incoming(offer, 0)
    assert receiver.is_of(offer)
    fields = dict(zip(offer.__struct_fields__, _fields(offer), strict=True))
    for name, value in (("sender", "c"), ("index", 1), ("last_term", 1), ("payload_bytes", 9)):
        assert not receiver.is_of(SnapshotChunk(**dict(fields, **{name: value})))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 60), unique=True),
    st.integers(1, 40),
    st.integers(0, 30),
    st.floats(0.0, 0.6),
)
def test_everything_arrives_once_whatever_the_link_does(
    seed: int, live: list[int], payload: int, applied: int, loss: float
) -> None:
    """Chunks of a few bytes; the link loses, repeats and reorders; a new offer when all is lost."""
    chance, live = Random(seed), sorted(live)
    state = bytes(chance.randrange(256) for _ in range(payload))
    before = snapshot_transfer.CHUNK_BYTES_MAX
    snapshot_transfer.CHUNK_BYTES_MAX = 16
    try:
        sender, receiver, got = outgoing(live, state, size=6), None, []
        there: list[SnapshotChunk] = [sender.offer(LEADER_TERM)]
        back: list[SnapshotWanted] = []
        for _ in range(20_000):
            if receiver is not None and receiver.complete:
                break
            if not there and not back:
                there.append(sender.offer(LEADER_TERM))
            link: list[Any] = there if there and (not back or chance.random() < 0.5) else back
            message = link.pop(chance.randrange(len(link)) if chance.random() < 0.3 else 0)
            if chance.random() < loss:
                continue
            if chance.random() < loss / 2:
                link.append(message)
            if isinstance(message, SnapshotChunk):
                receiver = receiver or Incoming(message, applied)
                entries, repeat = receiver.take(message)
                got.extend(entries)
                back.append(wanted(receiver, repeat))
            else:
                sender.heard(message, 1)
                while (chunk := sender.next(LEADER_TERM)) is not None:
                    there.append(chunk)
        assert receiver is not None and receiver.complete
        assert bytes(receiver.payload) == state
        assert [each.index for each in got] == [i for i in live if i > applied]
        assert got == [entry(each.index, 6) for each in got]
    finally:
        snapshot_transfer.CHUNK_BYTES_MAX = before
