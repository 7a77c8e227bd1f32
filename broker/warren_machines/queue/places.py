"""Where the messages of a queue stand, state by state and from any place on; nothing is changed.

Ready messages come in the order of delivery, held ones by consumer, delayed ones by the time at
which they are ready, claimed ones by reader and claim, letters in the order of the deaths. These
are the orders in which the queue keeps them, so a place in them is found again by bisection: a page
of a queue of ten million messages costs what the page has. What stays where it is while pages are
read one after the other is in exactly one of them, whatever comes, leaves or moves meanwhile.

Numbers of chunks and leaves are a member's own: at another member the place of a ready message is
looked for chunk by chunk, and that of a returned one near by (`ReturnedRuns.runs_after`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

import msgspec

from warren_machines.queue.commands import Pairs
from warren_machines.queue.letters.letter_queue import REASONS
from warren_machines.queue.ready.ranges import COUNT_MASK, unmarked
from warren_machines.queue.relays.relays import KEPT_MS
from warren_machines.queue.state import Consumer, QueueState
from warren_wire.message_states import CLAIMED, DEAD, DELAYED, HELD, IN_JOB, READY, STATES

ViewRow: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int]
"""(state, name, index, first, last, delivery_count, acquired_count, since_ms, next_ms, claim).

state     place in STATES
name      place in the names: consumer tag, relay, reader, job, or reason of a death; -1: none
first     and last, both included, of the block at log index `index`
since_ms  when it was delivered, its relay lost its session, or it died; 0: not known
next_ms   when it is ready again if nothing is done: the end of its delay, the expiry of its
          claim, or of what is kept for a relay; when what a job keeps leaves; 0: never, or now
claim     its number; 0: none
"""
Key: TypeAlias = tuple[int, ...]


class BrowsePlace(msgspec.Struct, frozen=True, array_like=True):
    """The place of a message in the walk through a queue; what comes next is behind it.

    state  in STATES
    name   of the relay or reader that has it, else ""
    at     its place in the order of its state, the ordinal of the message last:
           ready    part of `Order.parts`, place in it of `Order.runs_after`, log index
           held     order of the consumer (of a relay: 0), msg_id (number) less ordinal
           delayed  0 to be ready now, 1 waiting; ready_ms, log index
           claimed  0 claim, 1 part of a divided one; its number, or place; place of the run
           dead     number of the letter, log index
           kept     number of the job; 0 taken, 1 kept for an undo; log index
    """

    state: int
    name: str
    at: Key

    @property
    def is_one(self) -> bool:
        """Whether it has the parts of a place: one may come from a client."""
        return 0 <= self.state < len(STATES) and len(self.at) == _KEY_PARTS[self.state]


_KEY_PARTS: Final = (6, 3, 4, 4, 3, 4)
_START: Final = (-1, -1, -1)
Found: TypeAlias = tuple[str, Key, ViewRow]
"""(name, key without the ordinal, row); see `BrowsePlace`."""


class Holder(NamedTuple):
    """What has some messages: a consumer (tag "": of `basic.get`), a relay, a reader; or a reason.

    node, session  of a consumer
    """

    name: str
    node: str = ""
    session: int = 0


class Names:
    """Names that occur often, each kept once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, name: str) -> int:
        """Return the place of a name; "" has none."""
        return self._places.setdefault(name, len(self._places)) if name else -1

    def consumer(self, state: QueueState, consumer: Consumer) -> int:
        """Return the place of a consumer's name."""
        return self.place(consumer.tag)

    def all(self) -> tuple[str, ...]:
        """Return the names by place."""
        return tuple(self._places)


class HolderNames(Names):
    """Names with the nodes and sessions of consumers."""

    def __init__(self) -> None:
        super().__init__()
        self._holders: dict[Holder, int] = {}

    def place(self, name: str) -> int:
        """See `Names`."""
        return self._place(Holder(name)) if name else -1

    def consumer(self, state: QueueState, consumer: Consumer) -> int:
        """See `Names`."""
        node = state.uplinks[consumer.uplink].node
        return self._place(Holder(consumer.tag, node, consumer.session))

    def _place(self, holder: Holder) -> int:
        return self._holders.setdefault(holder, len(self._holders))

    def holders(self) -> tuple[Holder, ...]:
        """Return the holders by place."""
        return tuple(self._holders)


class BrowsedRows(msgspec.Struct, frozen=True, array_like=True):
    """Some messages of a queue.

    keys         of each row: (name, key without the ordinal), see `BrowsePlace`
    more         there are others behind the last one
    annotations  of consumers: (log index, ordinal, annotations)
    """

    holders: tuple[Holder, ...]
    rows: tuple[ViewRow, ...]
    keys: tuple[tuple[str, Key], ...]
    more: bool
    annotations: tuple[tuple[int, int, Pairs], ...]

    @property
    def next(self) -> BrowsePlace | None:
        """Where the next page begins; None: there is none."""
        return place_in(self.rows[-1], self.keys[-1]) if self.more else None


def place_in(row: ViewRow, key: tuple[str, Key], ordinal: int = -1) -> BrowsePlace:
    """Return the place of a message of a row; ordinal -1: of its last one."""
    return BrowsePlace(row[0], key[0], (*key[1], row[4] if ordinal < 0 else ordinal))


def page_of(
    state: QueueState, wanted: frozenset[str], after: BrowsePlace | None, count: int, own: bool
) -> BrowsedRows:
    """Return the next messages in these states.

    after  None: from the beginning
    count  of messages, at most
    own    False: the place was given by another member, or before this one was restored: chunks
           have other numbers here
    """
    holders = HolderNames()
    rows: list[ViewRow] = []
    keys: list[tuple[str, Key]] = []
    left, more = count, False
    for owner, key, row in _walk(state, wanted, after, holders, own):
        more = left <= 0
        if more:
            break
        end = min(row[4], row[3] + left - 1)
        left -= end - row[3] + 1
        rows.append((*row[:4], end, *row[5:]))
        keys.append((owner, key))
        more = end < row[4]
        if more:
            break
    annotations = _annotations(state, rows)
    return BrowsedRows(holders.holders(), tuple(rows), tuple(keys), more, annotations)


def _walk(
    state: QueueState, wanted: frozenset[str], after: BrowsePlace | None, names: Names, own: bool
) -> Iterator[Found]:
    first = 0 if after is None else after.state
    for number, name in enumerate(STATES):
        if name in wanted and number >= first:
            seek = after if after is not None and number == first else None
            yield from SOURCES[name](state, names, seek, own)


def _annotations(state: QueueState, rows: list[ViewRow]) -> tuple[tuple[int, int, Pairs], ...]:
    if not state.annotations.blocks:
        return ()
    return tuple(
        (row[2], row[3] + offset, pairs)
        for row in rows
        for offset, pairs in state.annotations.of_run(*row[2:5])
    )


def _ready(
    state: QueueState, names: Names, after: BrowsePlace | None, own: bool
) -> Iterator[Found]:
    at = (1 << 62, *_START, -1, -1) if after is None else after.at
    for part in state.order.parts():
        if part > at[0]:
            continue
        seek = at[1:] if part == at[0] else None
        for place, run in state.order.runs_after(part, seek, own):
            index, first, last, failed, acquired = run
            acquired &= COUNT_MASK
            row = (0, -1, index, first, last, failed, acquired, 0, 0, 0)
            yield "", (part, *place, index), row


def _held(state: QueueState, names: Names, after: BrowsePlace | None, own: bool) -> Iterator[Found]:
    order, less, ordinal = _START if after is None else after.at
    name = "" if after is None else after.name
    found = [one for one in state.all_consumers() if one.held and one.order >= order and not name]
    for consumer in sorted(found, key=lambda each: each.order):
        place = names.consumer(state, consumer)
        passed = less + ordinal if consumer.order == order else -1
        held = consumer.held
        for at in range(bisect_right(held, passed, key=lambda each: each[1]), len(held)):
            first_id, last_id, index, first, failed, acquired, since_ms = held[at]
            key, last = (consumer.order, first_id - first), first + last_id - first_id
            first += max(0, passed + 1 - first_id)
            acquired &= COUNT_MASK
            row = (1, place, index, first, last, failed, acquired, since_ms, 0, 0)
            yield "", key, row
    for of in sorted(one for one in state.relays if one >= name):
        relay = state.relays[of]
        place = names.place(of)
        since_ms, until_ms = relay.idle_ms, relay.idle_ms and relay.idle_ms + KEPT_MS
        passed = less + ordinal if of == name else -1
        for number, _, index, first, last, failed, acquired in relay.kept:
            if number + last - first <= passed:
                continue
            key = (0, number - first)
            first += max(0, passed + 1 - number)
            acquired &= COUNT_MASK
            yield of, key, (1, place, index, first, last, failed, acquired, since_ms, until_ms, 0)


def _delayed(
    state: QueueState, names: Names, after: BrowsePlace | None, own: bool
) -> Iterator[Found]:
    waiting, *at = (0, *_START) if after is None else after.at
    for waits, ready_ms, index, first, last, failed, acquired in state.delayed.rows_after(
        waiting, (at[0], at[1], at[2])
    ):
        acquired &= COUNT_MASK
        row = (2, -1, index, first, last, failed, acquired, 0, ready_ms, 0)
        yield "", (waits, ready_ms, index), row


def _claimed(
    state: QueueState, names: Names, after: BrowsePlace | None, own: bool
) -> Iterator[Found]:
    phase, number, passed, ordinal = (0, 0, 0, -1) if after is None else after.at
    name = "" if after is None else after.name
    for of in sorted(one for one in state.readers if one >= name):
        reader = state.readers[of]
        place = names.place(of)
        claims = [((0, one), one, reader.claims[one]) for one in sorted(reader.claims)]
        claims += [((1, at), 0, part) for at, part in enumerate(reader.parts)]
        for key, claim_number, claim in claims:
            if of == name and key < (phase, number):
                continue
            same = of == name and key == (phase, number)
            for at in range(max(0, passed) if same else 0, len(claim.runs)):
                index, first, last, failed, acquired = unmarked(claim.runs[at])
                if same and at == passed:
                    first = max(first, ordinal + 1)
                if first <= last:
                    when = claim.expires_ms
                    row = (3, place, index, first, last, failed, acquired, 0, when, claim_number)
                    yield of, (*key, at), row


def _dead(state: QueueState, names: Names, after: BrowsePlace | None, own: bool) -> Iterator[Found]:
    at = _START if after is None else after.at
    for number, index, first, last, code, died_ms in state.letters.rows_after((at[0], *at[1:])):
        failed, reason = divmod(code, len(REASONS))
        row = (4, names.place(REASONS[reason]), index, first, last, failed, 0, died_ms, 0, 0)
        yield "", (number, index), row


def _kept(state: QueueState, names: Names, after: BrowsePlace | None, own: bool) -> Iterator[Found]:
    number, phase, passed, ordinal = (0, 0, 0, -1) if after is None else after.at
    for job in state.jobs:
        if job.number < number:
            continue
        same = job.number == number
        place = names.place(f"job {job.number}")
        behind = (passed, ordinal) if same and phase == 0 else (0, -1)
        for index, first, last, failed, acquired in job.held if job.owns else ():
            if (same and phase) or (index, last) <= behind:
                continue
            first = max(first, behind[1] + 1) if index == behind[0] else first
            row = (5, place, index, first, last, failed, acquired & COUNT_MASK, 0, 0, 0)
            yield "", (job.number, 0, index), row
        behind = (passed, ordinal) if same and phase else (0, -1)
        for _, index, first, last, failed, acquired in state.jobs.kept_rows(job, behind):
            until = job.kept_ms
            row = (5, place, index, first, last, failed, acquired & COUNT_MASK, 0, until, 0)
            yield "", (job.number, 1, index), row


SOURCES: Final[
    dict[str, Callable[[QueueState, Names, BrowsePlace | None, bool], Iterator[Found]]]
] = {
    READY: _ready,
    HELD: _held,
    DELAYED: _delayed,
    CLAIMED: _claimed,
    DEAD: _dead,
    IN_JOB: _kept,
}
"""What yields the messages of a state that are behind a place; None: all."""
