"""In which order messages leave a queue, and what is said of them: a look from outside the machine.

It sees the state before an entry that gives messages back, and after every entry the state and the
effects; it knows the rules, and none of the machine's code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from sim.checkers import require
from sim.whole.delays import Delays, delay_of
from sim.whole.disconnects import Disconnects
from sim.whole.due import Due
from sim.whole.letters import AppliedEntry, Letters
from sim.whole.sieves import SIEVES, passes
from warren_machines.message_filter.definition import decode_filter
from warren_machines.queue import commands
from warren_machines.queue.commands import Submission
from warren_machines.queue.effects import Deliver
from warren_machines.queue.ready import limits
from warren_machines.queue.ready.ranges import COUNT_MASK, LANE_SHIFT, Held, unmarked
from warren_machines.queue.state import Consumer, QueueState
from warren_raft.machine import Applied
from warren_raft.versions import READ_AHEAD
from warren_wire.block.block import Block
from warren_wire.queue_values.config import QueueConfig

if TYPE_CHECKING:
    from sim.whole.ledger import Book
    from sim.whole.world import World

Message = tuple[int, int, int, int]
"""(index, ordinal, failed, acquired)."""
PLAIN = (
    commands.Return,
    commands.Settle,
    commands.Discard,
    commands.SessionDown,
    commands.NodeDown,
    commands.Enqueue,
    commands.ReleaseClaim,
)
"""After these alone messages are handed out once, at the end of the entry."""
GIVE_BACK = (commands.Return, commands.SessionDown, commands.NodeDown, commands.ReleaseClaim)


def expanded(runs: Any) -> list[Message]:
    """The messages of runs (index, first, last, failed, acquired)."""
    return [
        (index, at, failed, acquired)
        for index, first, last, failed, acquired in runs
        for at in range(first, last + 1)
    ]


@dataclass(slots=True)
class Before:
    """What matters of a queue's state before an entry that gives messages back.

    holds  (uplink, consumer) -> msg_id -> what it holds
    no_ack those without acknowledgements: a Return of theirs gives back what never left for the
           client; what they hold when they end may have been seen, and counts as settled
    ages   (uplink, consumer) -> its age, its session
    lives  uplink -> the node whose life it is, its number
    """

    returned: list[Message]
    holds: dict[tuple[int, int], dict[int, Message]]
    no_ack: frozenset[tuple[int, int]]
    ages: dict[tuple[int, int], tuple[int, int]]
    claims: dict[tuple[str, int], list[Message]]
    lives: dict[int, tuple[str, int]]
    config: QueueConfig


def _held(held: Iterable[Held], mask: int = -1) -> dict[int, Message]:
    return {
        first_id + at: (index, first + at, failed, acquired & mask)
        for first_id, last_id, index, first, failed, acquired, _ in held
        for at in range(last_id - first_id + 1)
    }


def before(state: QueueState, submission: Submission, now: int) -> Before | None:
    """The state, if the entry gives something back and does nothing that would blur it."""
    if state.deleted or (state.timer_ms and state.timer_ms <= now):
        return None
    kinds = [type(command) for command in submission.commands]
    if not any(kind in GIVE_BACK for kind in kinds) or any(kind not in PLAIN for kind in kinds):
        return None
    uplink = state.uplinks.get(submission.uplink)
    if submission.uplink and (uplink is None or submission.seq != uplink.last_seq + 1):
        return None
    every = [one for one in state.all_consumers() if not one.relay]
    return Before(
        expanded(state.order.returned),
        {one.key: _held(one.held) for one in every},
        frozenset(one.key for one in every if one.no_ack),
        {one.key: (one.order, one.session) for one in every},
        {
            (reader.name, number): expanded(claim.runs)
            for reader in state.readers.values()
            for number, claim in reader.claims.items()
            if claim.binding is None
        },
        {uplink.id: (uplink.node, uplink.incarnation) for uplink in state.uplinks.values()},
        state.config,
    )


def could_be_served(consumer: Consumer) -> bool:
    """It wants messages, and may hold more than it does."""
    if consumer.cancelled or consumer.suspended or consumer.getter:
        return False
    if consumer.windowed and consumer.held_bytes >= limits.WINDOW_BYTES:
        return False
    if consumer.explicit:
        free = consumer.credit
        if consumer.no_ack:
            free = min(free, limits.NO_ACK_WINDOW - consumer.held_count)
        return free > 0
    return consumer.limit > consumer.held_count


class Order:
    """Returned messages first, in the order they came back; then strictly by priority.

    A message that was taken for the first time has been acquired zero times, then once, and so on.
    taken   (group, index, ordinal) -> how often it was given to a consumer
    said    (group, uplink, consumer, msg_id) -> what was delivered under that id
    claims  (group, reader, number): those that were answered
    effects (group, index) -> what the entry has the leader do, on whatever member
    unsent  what the entry gives back that no client was sent, its consumer, since when it had it
    first_again     those of them that leave ahead of all lanes, though they count as never acquired
    ahead_of_lanes  (group, index, ordinal) of all such
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.pending: Before | None = None
        self.unsent: list[tuple[Message, tuple[int, int], int]] = []
        self.first_again: list[Message] = []
        self.ahead_of_lanes: set[tuple[int, int, int]] = set()
        self.takers: dict[int, tuple[tuple[int, int], int]] = {}
        self.taken: dict[tuple[int, int, int], int] = {}
        self.said: dict[tuple[int, int, int, int], Message] = {}
        self.claims: dict[tuple[int, str, int], bool] = {}
        self.effects: dict[tuple[int, int], bytes] = {}
        self.staged: dict[tuple[int, int], bool] = {}
        self.lanes: dict[tuple[int, int], list[int]] = {}
        self.checked = self.sifted = 0
        self.delays = Delays()
        self.letters = Letters(world)
        self.due = Due(world)
        self.disconnects = Disconnects()

    def begins(self, state: QueueState, submission: Submission, now: int) -> None:
        """A member is about to apply an entry."""
        self.pending = before(state, submission, now)
        self.unsent, self.first_again = [], []
        for command in submission.commands:
            if isinstance(command, commands.Return) and command.unseen:
                consumer = state.find(submission.uplink, command.consumer)
                if consumer is not None:
                    one_lane = state.config.kind == "classic" and not state.config.priority_max
                    self._goes_back(consumer, command.msg_ids, one_lane)

    def applied(
        self,
        group: int,
        index: int,
        submission: Submission,
        block: Any,
        applied: Applied,
        state: QueueState,
    ) -> None:
        """It has."""
        pending, self.pending = self.pending, None
        said = msgspec.msgpack.encode(applied.effects)
        known = self.effects.get((group, index))
        if known is not None:
            require(known == said, "effects differ", group, index, applied.effects)
            return
        self.effects[group, index] = said
        now = self.world.checkers.states.entries[group, index][1]
        self.delays.applied(group, index, now, submission, state)
        replies = getattr(applied.reply, "replies", ())
        entry = AppliedEntry(group, index, now, submission)
        self.disconnects.applied(entry, state)
        self.due.applied(entry, applied, state)
        self.letters.applied(entry, replies, state)
        if block is not None:
            self._came(group, index, submission, block, state)
        given, fresh, takers = self._delivered(group, applied)
        if state.order.count and state.consumer_count:
            self._nobody_waits(group, state)
        for command, reply in zip(submission.commands, replies, strict=False):
            answered = self._answered(group, submission, command, reply)
            got = isinstance(reply, commands.GetReply)
            takers |= (
                {(submission.uplink, command.consumer) if got else (0, 0)} if answered else set()
            )
            given += answered
        self._unsent(group, given, pending is not None, state)
        if not all(self._alone(group, key, since) for _, key, since in self.unsent):
            pending = None  # they count as acquired, or do not
        # The machine has not noted which was given messages before the version.
        self._taken_by(group, takers if submission.version >= READ_AHEAD else {(0, 0)}, now)
        # One submission may get a message, return it, and give it to a consumer: the reply to the
        # first and the effect of the last are apart, so they are put in order here.
        for message in sorted(given):
            self._take(group, message)
        plain = all(type(command) in PLAIN for command in submission.commands)
        kept = group in self.due.live  # what was delayed is among what has returned
        if (
            fresh
            and plain
            and not (kept or state.filters)
            and state.config.overflow != "reject-publish"
        ):
            self._strict(group, fresh, state)
        if pending is not None and not state.filters:
            self._came_back(group, index, pending, submission, replies, applied, state)

    # ------------------------------------------------------------ what comes

    def _came(
        self, group: int, index: int, submission: Submission, block: Any, state: QueueState
    ) -> None:
        decoded, config = Block.decode(block), state.config
        highest = min(config.priority_max, 31)
        lanes = [min(decoded.priority(at), highest) for at in range(len(decoded))]
        self.lanes[group, index] = lanes
        if any(type(command) is commands.SinkStage for command in submission.commands):
            self.staged[group, index] = True

    def _goes_back(self, consumer: Consumer, msg_ids: commands.MsgIds, one_lane: bool) -> None:
        """Note what is about to go back without having been sent.

        A classic queue without priorities has what came back in the order of arrival, ahead of all
        else, whether it was sent or not; so has any queue what it gave before the version.
        """
        for held in consumer.held:
            for msg_id, message in _held((held,), COUNT_MASK).items():
                if any(first <= msg_id <= last for first, last in msg_ids):
                    self.unsent.append((message, consumer.key, held[6]))
                    if one_lane or held[5] <= COUNT_MASK:
                        self.first_again.append(message)

    def _unsent(self, group: int, given: list[Message], plain: bool, state: QueueState) -> None:
        """Note what is ready, or was given, as if its consumer had never been given it."""
        now = {*given, *expanded(map(unmarked, state.order))} if self.unsent else set()
        self.ahead_of_lanes.update([(group, *message[:2]) for message in self.first_again])
        for message, key, since in self.unsent:
            index, ordinal, failed, acquired = message
            if message in now:
                self.taken[group, index, ordinal] -= 1
            counted = (index, ordinal, failed, acquired + 1) in now
            counted &= plain and self._alone(group, key, since)
            require(not counted, "counted though it was not sent", group, message)

    def _alone(self, group: int, key: tuple[int, int], since: int) -> bool:
        """Return whether no other consumer than that was given messages since a time."""
        taker, began = self.takers.get(group, (None, 0))
        return taker == key and since > began

    def _taken_by(self, group: int, takers: set[tuple[int, int]], now: int) -> None:
        """Note which consumer was given messages; (0, 0): several were, or none."""
        for taker in takers if len(takers) == 1 else {(0, 0)} if takers else ():
            known = self.takers.get(group)
            if known is None or known[0] != taker:
                self.takers[group] = taker, -1 if known is None and taker[0] else now

    # ------------------------------------------------------------ what leaves

    def _take(self, group: int, message: Message) -> None:
        index, ordinal, failed, acquired = message
        before = self.taken.get((group, index, ordinal), 0)
        require(acquired == before, "acquired otherwise", group, message, before)
        require(0 <= failed <= acquired, "failed more often than delivered", group, message)
        self.taken[group, index, ordinal] = before + 1

    def _say(self, group: int, uplink: int, consumer: int, msg_id: int, message: Message) -> bool:
        """Return whether it is given to a consumer now, and not only sent again."""
        known = self.said.setdefault((group, uplink, consumer, msg_id), message)
        require(known == message, "a delivery changed", group, consumer, msg_id, known, message)
        return known is message

    def received(
        self,
        book: Book,
        taker: tuple[int, int],
        msg_id: int,
        delivery: commands.Delivery,
        body: bytes,
    ) -> None:
        """Check that a client gets the message that the log gave to its consumer under that id.

        taker  its process, its consumer
        """
        if book.plan.volatile:
            return
        said = self.said.get((book.group, *taker, msg_id))
        require(said is not None, "no such delivery", book.group, taker, msg_id, delivery)
        assert said is not None
        index, ordinal, *counts = said
        known = (index, *counts, self.world.checkers.bodies[book.group, index][ordinal])
        found = (delivery.index, delivery.delivery_count, delivery.acquired_count, body)
        require(known == found, "another delivery", book.group, taker, msg_id, known, found)

    def _delivered(
        self, group: int, applied: Applied
    ) -> tuple[list[Message], list[tuple[int, int]], set[tuple[int, int]]]:
        """Return what was given, the places of what had never been, and the consumers."""
        given, fresh, takers = [], [], set()
        for effect in applied.effects:
            if not isinstance(effect, Deliver):
                continue
            for one in effect.deliveries:
                for at in range(one.first, one.last + 1):
                    message = (one.index, at, one.delivery_count, one.acquired_count)
                    msg_id = one.first_msg_id + at - one.first
                    if self._say(group, effect.uplink, effect.consumer, msg_id, message):
                        given.append(message)
                        takers.add((effect.uplink, effect.consumer))
                        if not one.acquired_count:
                            fresh.append((one.index, at))
        return given, fresh, takers

    def _answered(
        self, group: int, submission: Submission, command: Any, reply: Any
    ) -> list[Message]:
        """Return what a reply gives to its client."""
        if isinstance(reply, commands.GetReply) and reply.delivery is not None:
            one = reply.delivery
            message = (one.index, one.first, one.delivery_count, one.acquired_count)
            if self._say(group, submission.uplink, command.consumer, one.first_msg_id, message):
                return [message]
        elif isinstance(reply, commands.ClaimReply) and reply.messages:
            name = (group, command.reader, reply.number)
            if name not in self.claims:
                self.claims[name] = True
                return list(expanded(reply.runs))
        return []

    def _nobody_waits(self, group: int, state: QueueState) -> None:
        """Check that nothing is ready while a consumer could be served.

        With a single active consumer: while the active one can get nothing, and holds nothing that
        it might be working on. With a filter: while nothing that it matches is ready, once all
        has been judged.
        """
        active = state.active
        if state.config.single_active_consumer and active is not None:
            lost = active.suspended and not active.held_count
            if not (lost and state.uplinks[active.uplink].yields):
                return
        waiting = [
            one.key
            for one in state.all_consumers()
            if could_be_served(one) and (one.filter is None or self._finds(group, one, state))
        ]
        require(not waiting, "messages wait, and consumers", group, waiting, state.order.count)

    def _finds(self, group: int, consumer: Consumer, state: QueueState) -> bool:
        """Return whether a ready message matches the filter of a consumer, as its body says."""
        wanted, bodies = consumer.filter, self.world.checkers.bodies
        if wanted is None or wanted.judged < state.filters.newest:
            return False
        sieve = SIEVES.index(decode_filter(wanted.text).sql[0])
        self.sifted += 1
        return any(
            passes(sieve, bodies[group, index][at]) for index, at, *_ in expanded(state.order)
        )

    def _strict(self, group: int, fresh: list[tuple[int, int]], state: QueueState) -> None:
        """Check that each consumer that was served got the first in the queue."""
        order = state.order
        came_back = {one for one in fresh if (group, *one) in self.ahead_of_lanes}
        self.ahead_of_lanes.difference_update([(group, *one) for one in came_back])
        if came_back != set(fresh):
            require(not order.returned, "returned messages wait", group, fresh, order.returned)
        for index, at in fresh:
            if (index, at) in came_back:
                continue
            lane = self.lanes[group, index][at]
            require(not order.mask >> lane + 1, "a higher priority waits", group, index, at, lane)
            for above, back in order.back.items():
                older = (above, *back.head()[:2]) if above == lane else (above,)
                require(
                    above < lane or (above == lane and (lane, index, at) < older),
                    "what came back to its lane waits",
                    group,
                    index,
                    at,
                    older,
                )
            if order.mask >> lane & 1:
                head = order.lanes[lane].head()
                staged = (group, head[0]) in self.staged or (group, index) in self.staged
                require(
                    staged or (index, at) < head[:2],
                    "an older message waits",
                    group,
                    index,
                    at,
                    head,
                )

    # ------------------------------------------------------------ what comes back

    def _came_back(
        self,
        group: int,
        index: int,
        pending: Before,
        submission: Submission,
        replies: Any,
        applied: Applied,
        state: QueueState,
    ) -> None:
        self.checked += 1
        expected = list(pending.returned)
        for command, reply in zip(submission.commands, replies, strict=False):
            if isinstance(reply, commands.Refused):
                continue
            if isinstance(command, commands.Return) and command.unseen:
                if submission.version >= READ_AHEAD:
                    expected[:0] = _unsent(pending, submission.uplink, command)
                    continue
            expected += _given_back(pending, submission.uplink, command)
        if state.config.kind == "classic" and not state.config.priority_max:
            expected.sort()
        left = expanded(state.order.returned)
        first = len(expected) - len(left)
        require(
            first >= 0 and expected[first:] == left,
            "given back in another order",
            group,
            index,
            expected,
            left,
        )
        places = {message: at for at, message in enumerate(expected[:first])}
        for effect in applied.effects:
            if isinstance(effect, Deliver):
                last = -1
                for one in effect.deliveries:
                    counts = (one.delivery_count, one.acquired_count)
                    for at in range(one.first, one.last + 1):
                        place = places.get((one.index, at, *counts), -1)
                        require(
                            place < 0 or place > last,
                            "delivered again in another order",
                            group,
                            index,
                            one,
                            expected,
                        )
                        last = max(last, place)


def _unsent(pending: Before, uplink: int, command: commands.Return) -> list[Message]:
    """What goes back uncounted ahead of the returned ones, where it came from."""
    one_lane = pending.config.kind == "classic" and not pending.config.priority_max
    ahead: list[Message] = []
    for index, at, failed, marked in _cut(pending, uplink, command):
        if one_lane or not marked >> LANE_SHIFT:
            ahead.append((index, at, failed, marked & COUNT_MASK))
    return ahead


def _cut(pending: Before, uplink: int, command: Any) -> list[Message]:
    """Take out of what was held, and return, what a command names."""
    held = pending.holds.get((uplink, command.consumer), {})
    return [
        held.pop(msg_id)
        for first, last in command.msg_ids
        for msg_id in sorted(held)
        if first <= msg_id <= last
    ]


def _given_back(pending: Before, uplink: int, command: Any) -> list[Message]:
    """What a command gives back, in the order of the rules, and takes out of what was held."""
    back: list[Message] = []
    failed = 0
    if isinstance(command, commands.ReleaseClaim):
        failed = int(command.failed)
        for name in sorted(pending.claims):
            if name[0] == command.reader and command.number in (0, name[1]):
                back += pending.claims.pop(name)
    elif isinstance(command, commands.SessionDown | commands.NodeDown):
        failed, session = 1, None
        over = [uplink]
        if isinstance(command, commands.SessionDown):
            failed, session = int(command.failed), command.session
        else:
            over = [
                life
                for life, (node, number) in pending.lives.items()
                if life == command.uplink
                or (node == command.node and 0 < number <= command.incarnation)
            ]
        for life in over:
            gone = [
                key
                for key in pending.holds
                if key[0] == life and session in (None, pending.ages[key][1])
            ]
            for key in sorted(gone, key=lambda key: pending.ages[key]):
                held = pending.holds.pop(key)
                if key not in pending.no_ack:
                    back += [held[msg_id] for msg_id in sorted(held)]
    elif isinstance(command, commands.Return | commands.Settle | commands.Discard):
        cut = _cut(pending, uplink, command)
        if isinstance(command, commands.Return):
            back, failed = cut, int(command.failed)
    in_place = pending.config.kind == "classic" and pending.config.priority_max
    mask = -1 if in_place else COUNT_MASK
    again = [
        (index, at, fails + failed, (acquired & mask) + 1) for index, at, fails, acquired in back
    ]
    limit = pending.config.delivery_limit
    return [
        one
        for one in again
        if not 0 <= limit < one[2] and not delay_of(pending.config, one[2], bool(failed))
    ]
