"""The state of a queue that its log builds, with its invariants."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import TypeAlias

from warren_machines.queue.annotations import Annotations
from warren_machines.queue.claims.reader_state import ReaderState
from warren_machines.queue.commands import AnyReply
from warren_machines.queue.deduplication import SeenIds
from warren_machines.queue.delayed.delayed_queue import Delayed
from warren_machines.queue.filters.filters import Filter, Filters
from warren_machines.queue.jobs.job_state import Jobs
from warren_machines.queue.letters.letter_queue import LetterQueue
from warren_machines.queue.ready.block_index import LIVE, SIZE_SHIFT, BlockIndex, Detail
from warren_machines.queue.ready.ranges import LANE_SHIFT, Held, length
from warren_machines.queue.ready.ready_queue import PRIORITIES, Order
from warren_machines.queue.relays.relay_state import Numbering, Origins, Relay, name_of
from warren_machines.queue.sinks.sink_state import SinkRun
from warren_raft.versions import OLDEST
from warren_wire.queue_values.config import QueueConfig

ConsumerKey: TypeAlias = tuple[int, int]
"""(uplink, consumer)."""
Lane: TypeAlias = tuple[bool, int]
"""(whether its own window has room, priority): a higher one is served before a lower one."""
_NO_LANE: Lane = (True, 0)


@dataclass(slots=True, eq=False)
class Consumer:
    """A consumer of the queue; a getter is one that takes messages by `Get` only.

    order        of attachment, unique in a queue
    limit        unsettled messages it may hold; not for explicit credit
    ahead        beyond the limit, those that its node keeps until its client has settled others
    windowed     the limit is the machine's, so bytes are bounded too
    credit       explicit credit that is left
    held         messages not settled; for no_ack: those that may not have left for the client
    held_bytes   of `held`; counted for windowed ones only
    cancelled    gets nothing more; removed when it holds nothing
    suspended    its node is suspected: gets nothing until the node is back
    quiescing    it is the single active one, and one of higher priority waits for it to settle
    queued       is in the service queue
    lane         the lane in which it is queued
    relay        name of the relay that it is of; "": none
    numbering    with a relay: the names of what it holds
    filter       it gets only what this matches; None: everything, or it is cancelled
    drain_at     the newest block when a drain was asked for that waits for its filter; 0: none is

    Invariants: held_count is the messages in `held`; ids in `held` ascend and are < next_msg_id;
    queued implies that it may be served, in its lane; one with a filter that may be served is
    queued or parked
    """

    uplink: int
    id: int
    session: int
    tag: str
    order: int
    limit: int = 0
    windowed: bool = False
    explicit: bool = False
    priority: int = 0
    no_ack: bool = False
    exclusive: bool = False
    getter: bool = False
    timeout_ms: int | None = None
    next_msg_id: int = 0
    credit: int = 0
    held: list[Held] = field(default_factory=list)
    held_count: int = 0
    held_bytes: int = 0
    cancelled: bool = False
    suspended: bool = False
    quiescing: bool = False
    queued: bool = False
    lane: Lane = _NO_LANE
    relay: str = ""
    numbering: Numbering = field(default_factory=list)
    filter: Filter | None = None
    drain_at: int = 0
    ahead: int = 0

    @property
    def key(self) -> ConsumerKey:
        """Its identity in the queue."""
        return self.uplink, self.id

    @property
    def lane_now(self) -> Lane:
        """The lane in which it is to be served."""
        return not self.ahead or self.held_count < self.limit, self.priority


class Service:
    """The consumers that may be served: a lane for each priority, in turn within it.

    Those that are only given messages ahead have lanes of their own, below all others: they get
    what no consumer has room for.
    A client may have any number of them, of as many priorities: none of these steps visits them.

    Invariant: no lane is empty; `order` are the lanes, ascending
    """

    __slots__ = ("lanes", "order")

    def __init__(self) -> None:
        self.lanes: dict[Lane, OrderedDict[ConsumerKey, Consumer]] = {}
        self.order: list[Lane] = []

    def add(self, consumer: Consumer) -> None:
        """Put a consumer at the end of its lane."""
        at = consumer.lane = consumer.lane_now if consumer.ahead else (True, consumer.priority)
        lane = self.lanes.get(at)
        if lane is None:
            lane = self.lanes[at] = OrderedDict()
            insort(self.order, at)
        lane[consumer.key] = consumer
        consumer.queued = True

    def remove(self, consumer: Consumer) -> None:
        """Take a consumer out of its lane."""
        consumer.queued = False
        at, consumer.lane = consumer.lane, _NO_LANE
        lane = self.lanes[at]
        del lane[consumer.key]
        if not lane:
            del self.lanes[at]
            del self.order[bisect_left(self.order, at)]

    def clear(self) -> None:
        """Take all out: the queue is deleted."""
        self.lanes.clear()
        self.order.clear()

    def check(self) -> None:
        """Assert the invariant."""
        assert sorted(self.lanes) == self.order, self.order
        assert all(self.lanes.values()), "an empty lane of consumers"


class Standby:
    """The consumers of which one becomes the single active one: a heap, the best one first.

    What has changed since a consumer was added is found out when it is the first one.

    Invariants: each consumer that may become active, and is not, is in it once under its priority;
    `_known` are the ranks in the heap
    """

    __slots__ = ("_heap", "_known")

    def __init__(self, consumers: Iterable[Consumer] = ()) -> None:
        self._heap: list[tuple[tuple[int, int], Consumer]] = []
        self._known: set[tuple[int, int]] = set()
        for consumer in consumers:
            self.add(consumer)

    def add(self, consumer: Consumer) -> None:
        """Add a consumer that may become active; a repeat changes nothing."""
        rank = _rank(consumer)
        if rank not in self._known:
            self._known.add(rank)
            heappush(self._heap, (rank, consumer))

    def best(self, active: Consumer | None) -> Consumer | None:
        """Return the consumer of the highest priority, the oldest of these, but the active one."""
        heap = self._heap
        while heap:
            rank, consumer = heap[0]
            away = consumer.cancelled or consumer.suspended or consumer.getter
            if not away and consumer is not active and rank == _rank(consumer):
                return consumer
            heappop(heap)
            self._known.discard(rank)
        return None

    def has(self, consumer: Consumer) -> bool:
        """Return whether a consumer is in it."""
        return _rank(consumer) in self._known


def _rank(consumer: Consumer) -> tuple[int, int]:
    return -consumer.priority, consumer.order


@dataclass(slots=True, eq=False)
class SeenUplink:
    """One incarnation of a node, as far as this queue knows it.

    last_seq      highest submission applied
    kept          replies other than Done, by seq of their submission, ascending, at most
                  machine.REPLIES_KEPT back
    suspected_ms  since when its node is suspected; 0: it is not
    incarnation   its number
    yields        while suspected: its single active consumer makes way (`NodeSuspected.hand_over`)
    sessions      the consumers by session; none is empty
    """

    id: int
    node: str
    last_seq: int = 0
    kept: dict[int, tuple[AnyReply, ...]] = field(default_factory=dict)
    suspected_ms: int = 0
    incarnation: int = 0
    yields: bool = False
    consumers: dict[int, Consumer] = field(default_factory=dict)
    sessions: dict[int, dict[int, Consumer]] = field(default_factory=dict)

    def add(self, consumer: Consumer) -> None:
        """Add a consumer."""
        self.consumers[consumer.id] = consumer
        self.sessions.setdefault(consumer.session, {})[consumer.id] = consumer

    def remove(self, consumer: Consumer) -> None:
        """Forget a consumer; a repeat changes nothing."""
        if self.consumers.pop(consumer.id, None) is not None:
            of_session = self.sessions[consumer.session]
            del of_session[consumer.id]
            if not of_session:
                del self.sessions[consumer.session]

    def clear(self) -> None:
        """Forget all consumers: the queue is deleted."""
        self.consumers.clear()
        self.sessions.clear()

    def check(self) -> None:
        """Assert that the consumers are known by session."""
        by_session = {(one.session, one.id): one for one in self.consumers.values()}
        known = {(at, key): one for at, of in self.sessions.items() for key, one in of.items()}
        assert known == by_session and all(self.sessions.values()), self.id


@dataclass(slots=True, eq=False, repr=False)
class QueueState:
    """The state of a queue; changed by `apply` only.

    service      consumers that may be served, by priority, in turn
    exclusive    the exclusive consumer, if there is one; it may have ended, or be so no more
    active       the consumer that is active, with single active consumer
    standby      those that may become active
    ever_used    it had a consumer once (auto-delete)
    unused_ms    since when there is no consumer, get or claim (x-expires), unless there is one now;
                 0: no command was applied yet
    timer_ms     when the requested timer is due; 0: none
    ready_bytes  bodies and properties of ready messages
    runs         sink to run; both in the order of their last publish or first stage, the latest
                 last
    claim_floor  claims of readers that are new here are numbered above it: above every claim of a
                 reader that was forgotten, and of the queues that had this one's name before
    next_epoch   of the next registration; no reader of a queue of this name had it before
    forgotten_epoch  the highest epoch of a run that was forgotten: what drivers up to this epoch
                 have published may not be known any more. 0: none was
    seen         ids of messages that were accepted, with x-deduplication
    relays       by name; those that have a session, or for which something is kept
    owned_relays    their names by (uplink, session) of their owners
    changed_relays  those of consumers that have changed: they may be given what is kept
    origins      names of messages that relays of other queues have brought
    over         node to the highest number of its incarnations that have ended; one entry per node,
                 whatever the number of its restarts
    version      of the newest submission applied
    taker        (uplink, consumer, time since which no other one was given messages; -1: always).
                 (0, 0): a claim. None: nothing was given since READ_AHEAD

    Every live message is in exactly one place: ready, returned, delayed, held by one consumer,
    kept for one relay, in one claim, in one stage, among the letters. `check()` asserts it.
    """

    config: QueueConfig
    contents: BlockIndex = field(default_factory=BlockIndex)
    annotations: Annotations = field(default_factory=Annotations)
    order: Order = field(default_factory=Order)
    filters: Filters = field(default_factory=Filters)
    delayed: Delayed = field(default_factory=Delayed)
    letters: LetterQueue = field(default_factory=LetterQueue)
    seen: SeenIds = field(default_factory=SeenIds)
    origins: Origins = field(default_factory=Origins)
    relays: dict[str, Relay] = field(default_factory=dict)
    owned_relays: dict[tuple[int, int], dict[str, None]] = field(default_factory=dict)
    changed_relays: dict[str, None] = field(default_factory=dict)
    ready_bytes: int = 0
    uplinks: dict[int, SeenUplink] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)
    service: Service = field(default_factory=Service)
    standby: Standby = field(default_factory=Standby)
    active: Consumer | None = None
    exclusive: Consumer | None = None
    consumer_count: int = 0
    unacked: int = 0
    claimed: int = 0
    staged: int = 0
    readers: dict[str, ReaderState] = field(default_factory=dict)
    jobs: Jobs = field(default_factory=Jobs)
    claim_floor: int = 0
    runs: dict[str, dict[str, SinkRun]] = field(default_factory=dict)
    forgotten_epoch: int = 0
    next_order: int = 0
    next_epoch: int = 1
    deleted: bool = False
    ever_used: bool = False
    unused_ms: int = 0
    timer_ms: int = 0
    version: int = OLDEST
    taker: tuple[int, int, int] | None = None

    def leave(self, index: int, first: int, last: int) -> None:
        """Forget a run that is in no place any more."""
        self.contents.drop(index, last - first + 1)
        if self.annotations.blocks:
            self.annotations.forget(index, first, last)

    def all_consumers(self) -> Iterator[Consumer]:
        """Yield every consumer and getter, by uplink in order of appearance."""
        for uplink in self.uplinks.values():
            yield from uplink.consumers.values()

    @property
    def unacknowledged(self) -> int:
        """The messages that consumers have not settled, and those that are kept for relays."""
        return self.unacked + sum(relay.kept_count for relay in self.relays.values())

    def size_of(self, held: Held) -> int:
        """Return the bytes of a run that a consumer holds."""
        first_id, last_id, index, first = held[:4]
        return self.contents.size(index, first, first + last_id - first_id)

    @property
    def unacknowledged_bytes(self) -> int:
        """The bytes of `unacknowledged`; visits each run."""
        held = sum(self.size_of(one) for of in self.all_consumers() for one in of.held)
        kept = (run for relay in self.relays.values() for run in relay.kept)
        return held + sum(self.contents.size(run[2], run[3], run[4]) for run in kept)

    @property
    def in_use(self) -> bool:
        """Whether there is a consumer, a claim, or a job that has not ended."""
        if self.consumer_count or (self.jobs and self.jobs.unfinished):
            return True
        return any(reader.holds_messages for reader in self.readers.values())

    def find(self, uplink: int, consumer: int) -> Consumer | None:
        """Return the consumer with that key."""
        owner = self.uplinks.get(uplink)
        return owner.consumers.get(consumer) if owner is not None else None

    def consumer(self, key: ConsumerKey) -> Consumer:
        """Return the consumer with that key, which must be there."""
        consumer = self.find(*key)
        assert consumer is not None, key
        return consumer

    def all_runs(self) -> Iterator[tuple[str, SinkRun]]:
        """Yield every run with the name of its sink."""
        for name, runs in self.runs.items():
            for run in runs.values():
                yield name, run

    def runs_in_use(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield (where, index, first, last) of every run that the state refers to."""
        for index, first, last, _, _ in self.order:
            yield "ready", index, first, last
        for _, index, first, last, _, _ in self.delayed:
            yield "delayed", index, first, last
        for _, index, first, last, _, _ in self.letters:
            yield "letters", index, first, last
        for consumer in self.all_consumers():
            for first_id, last_id, index, first, *_ in consumer.held:
                yield f"held {consumer.key}", index, first, first + last_id - first_id
        for relay in self.relays.values():
            for _, _, index, first, last, _, _ in relay.kept:
                yield f"relay {relay.name}", index, first, last
        for reader in self.readers.values():
            for claim in reader.all_claims():
                for index, first, last, _, _ in claim.runs:
                    yield f"claim {reader.name} {claim.number}", index, first, last
        yield from self.jobs.runs()
        for name, run in self.all_runs():
            for part in run.stages.values():
                for index, count, _ in part.blocks:
                    yield f"stage {name}", index, 0, count - 1

    def check(self) -> None:
        """Assert every invariant; for simulations and tests, as it reads the whole state."""
        rows = self.contents.check()
        self._check_places({index: block for index, block, _ in rows})
        self._check_counts({index: (block, detail) for index, block, detail in rows})
        self._check_consumers()
        self.jobs.check()
        for reader in self.readers.values():
            reader.check()
        for name, run in self.all_runs():
            run.check(name)

    def _check_places(self, blocks: Mapping[int, int]) -> None:
        """Assert that each live message is in one place, and that no other blocks are kept."""
        places: dict[int, list[tuple[int, int, str]]] = {}
        for where, index, first, last in self.runs_in_use():
            assert 0 <= first <= last, (where, index, first, last)
            places.setdefault(index, []).append((first, last, where))
        assert sorted(places) == list(blocks), "blocks without messages, or missing"
        assert places.keys() >= self.annotations.blocks.keys(), "annotations of blocks that left"
        for index, runs in places.items():
            runs.sort()
            for before, after in pairwise(runs):
                assert before[1] < after[0], (index, before, after)
            for ordinal in self.annotations.blocks.get(index, ()):
                assert any(first <= ordinal <= last for first, last, _ in runs), (index, ordinal)
            live = sum(last - first + 1 for first, last, _ in runs)
            assert live == blocks[index] & LIVE, (index, live, blocks[index] & LIVE)

    def _check_counts(self, sizes: Mapping[int, tuple[int, Detail | None]]) -> None:
        order = self.order
        assert all(lane in order.lanes for lane in range(PRIORITIES) if order.counts[lane])
        for lane, backlog in order.lanes.items():
            backlog.check()
            count = sum(last - first + 1 for _, first, last in backlog)
            assert count == order.counts[lane], (lane, count, order.counts[lane])
            assert bool(backlog) == bool(order.mask >> lane & 1), (lane, order.mask)
        assert order.returned_count == length(order.all_returned()), order.returned_count
        order.returned.check()
        if self.config.kind == "classic" and not self.config.priority_max:
            arrivals = [run[:2] for run in order.returned]
            assert arrivals == sorted(arrivals), arrivals
        for lane, back in order.back.items():
            back.check()
            runs = list(back)
            assert runs and all(run[4] >> LANE_SHIFT == lane + 1 for run in runs), (lane, runs)
            assert runs == sorted(runs), (lane, runs)
        assert order.count == sum(order.counts) + order.returned_count, order.count
        size = 0
        for index, first, last, _, _ in order:
            block, detail = sizes[index]
            each = block >> SIZE_SHIFT
            size += detail.size(first, last) if detail is not None else each * (last - first + 1)
        assert size == self.ready_bytes, (size, self.ready_bytes)
        self.delayed.check()
        self.seen.check()
        self.origins.check()
        self._check_relays()
        delayed_bytes = sum(
            self.contents.size(index, first, last) for _, index, first, last, _, _ in self.delayed
        )
        assert delayed_bytes == self.delayed.size_bytes, (delayed_bytes, self.delayed.size_bytes)
        self.letters.check()
        letter_bytes = sum(
            self.contents.size(index, first, last) for _, index, first, last, _, _ in self.letters
        )
        assert letter_bytes == self.letters.size_bytes, (letter_bytes, self.letters.size_bytes)
        assert self.config.keeps_letters or not self.letters.count, self.letters.count
        next_ms = self.delayed.next_ms
        assert not next_ms or 0 < self.timer_ms <= next_ms, (self.timer_ms, next_ms)
        claims = [claim for reader in self.readers.values() for claim in reader.all_claims()]
        assert self.claimed == sum(claim.messages for claim in claims), self.claimed
        staged = sum(
            part.messages
            for _, run in self.all_runs()
            for part in run.stages.values()
            if not part.repeat
        )
        assert self.staged == staged, (self.staged, staged)

    def _check_relays(self) -> None:
        """Assert that the names of a relay's messages are different, and that older ones go first.

        What a consumer that may be given more holds has lower numbers than what is kept.
        """
        numbers: dict[str, list[range]] = {}
        for consumer in self.all_consumers():
            if not consumer.relay:
                continue
            relay = self.relays[consumer.relay]
            assert consumer.key in relay.consumer_keys, consumer.key
            assert relay.owner == (consumer.uplink, consumer.session), (relay.name, consumer.key)
            assert not consumer.no_ack, consumer.key
            for first_id, last_id, *_ in consumer.held:
                number = name_of(consumer.numbering, first_id)[1]
                taken = range(number, number + last_id - first_id + 1)
                numbers.setdefault(relay.name, []).append(taken)
            if not consumer.cancelled and consumer.held and relay.kept:
                number = name_of(consumer.numbering, consumer.held[-1][1])[1]
                assert number < relay.kept[0][0], (relay.name, number, relay.kept[0])
        owned = {(owner, name) for owner, names in self.owned_relays.items() for name in names}
        assert owned == {(relay.owner, relay.name) for relay in self.relays.values()}, owned
        assert all(self.owned_relays.values()), self.owned_relays
        for name, relay in self.relays.items():
            relay.check()
            runs = numbers.get(name, [])
            runs += [range(run[0], run[0] + run[4] - run[3] + 1) for run in relay.kept]
            runs.sort(key=lambda run: run.start)
            for before, after in pairwise(runs):
                assert before.stop <= after.start, (name, before, after)
            assert not runs or runs[-1].stop <= relay.next_number, (name, runs[-1])

    def _check_consumers(self) -> None:
        unacked = consumers = 0
        for consumer in self.all_consumers():
            alone = consumer.exclusive and not consumer.cancelled
            assert not alone or consumer is self.exclusive, consumer.key
            count = sum(held[1] - held[0] + 1 for held in consumer.held)
            assert count == consumer.held_count, (consumer.key, count, consumer.held_count)
            for before, after in pairwise(consumer.held):
                assert before[1] < after[0] and before[6] <= after[6], (consumer.key, before, after)
            if consumer.held:
                assert consumer.held[-1][1] < consumer.next_msg_id, consumer.key
            assert count or not consumer.cancelled, consumer.key
            unacked += 0 if consumer.no_ack else count
            consumers += not consumer.cancelled and not consumer.getter
            if consumer.filter is not None:
                assert self.filters.get(consumer.filter.id) is consumer.filter, consumer.key
                assert not consumer.cancelled, consumer.key
                assert not (consumer.queued and consumer.key in consumer.filter.parked)
            queued = consumer.key in self.service.lanes.get(consumer.lane_now, ())
            assert queued == consumer.queued, (consumer.key, queued)
            assert consumer.uplink in self.uplinks, consumer.key
        assert not self.filters or self.filters.newest >= self.contents.newest()
        for one in self.filters:
            one.check()
            users = [c.key for c in self.all_consumers() if c.filter is one]
            assert len(users) == one.users > 0, (one.id, users)
            assert one.parked.keys() <= set(users), (one.id, one.parked)
        assert unacked == self.unacked, (unacked, self.unacked)
        assert consumers == self.consumer_count, (consumers, self.consumer_count)
        served = sum(len(lane) for lane in self.service.lanes.values())
        assert served == sum(consumer.queued for consumer in self.all_consumers()), served
        self.service.check()
        for consumer in self.all_consumers() if self.config.single_active_consumer else ():
            away = consumer.cancelled or consumer.suspended or consumer.getter
            assert away or consumer is self.active or self.standby.has(consumer), consumer.key
        if self.active is not None:
            assert self.find(*self.active.key) is self.active, self.active.key
        for key, uplink in self.uplinks.items():
            assert key == uplink.id, (key, uplink.id)
            uplink.check()
            number, over = uplink.incarnation, self.over.get(uplink.node, 0)
            assert not number or number > over, (uplink.node, number, over)
            assert uplink.suspected_ms or not uplink.yields, key
