"""Forwards the dead letters that the queues led here keep, at least once.

A letter stays in its queue's replicated state (`queue.letter_queue`) until every queue that it was
routed to has confirmed it; then its leader proposes to remove it. A leader that fails in between
leaves the letters to the next one, which forwards them again: what was confirmed and not removed
is then in its target twice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from warren_broker.cluster.client.dead_letters import TABLE_BYTES_MAX, Letters
from warren_broker.cluster.client.forwarding import Fate, Forwarding
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.client.routed_runs import QueuePart, kept_parts
from warren_broker.config import Queues
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.commands import SettleLetters
from warren_machines.queue.effects import LettersDue, LettersGone
from warren_machines.queue.letters.letter_queue import Letter
from warren_raft.runtime.host import UnknownGroup
from warren_raft.runtime.loop import LoopTimer
from warren_raft.storage.errors import EntryDamaged
from warren_wire.amqp091.fitting import HEADER_FRAME_BYTES
from warren_wire.block.block import Block, BlockError
from warren_wire.queue_values.config import QueueConfig

log = logging.getLogger(__name__)
FORWARDED_BYTES_MAX: Final = 32 << 20
"""Bytes of a queue's letters that are under way at once; one letter may be larger."""
PROBE_MS: Final = 1_000
PROBE_MS_MAX: Final = 10_000
RESUME_MS: Final = 5_000
"""A leadership that is still here so long after it should have gone stays for now."""
LOGGED_MAX: Final = 100
"""Different reasons for which letters wait that are logged per queue and leader."""


@dataclass(slots=True, eq=False, kw_only=True)
class Underway(Fate):
    """A letter that was taken from its queue and is not settled.

    size_bytes  of its body and properties
    waits       it was refused or not routed: it is tried again, see `LetterForwarder`
    why         for which it waits: letters with the same reason wait for the same thing
    routing     it is being routed, perhaps for several turns
    faulty      it cannot be made into a letter: it stays in its queue, set aside once
    """

    letter: Letter
    size_bytes: int = 0
    waits: bool = False
    why: tuple[str, ...] = ()
    routing: bool = False
    faulty: bool = False


class LetterForwarder:
    """The forwarder of one queue, for as long as this node leads it in one term.

    It takes letters in their order, at most `prefetch` at once. It keeps no bodies: a letter is
    made again from the log for each attempt, with the same properties, since reason and time of the
    death are in the queue's state.

    Of the letters that wait, one for each reason is tried after PROBE_MS, then ever later up to
    PROBE_MS_MAX: 1. A queue that has refused has room again, or an exchange, queue or binding that
    was missing appears.  2. The next probe is confirmed.  3. All that wait for the same are tried
    at once. All others are tried after the retry interval.

    Before its leadership is handed over it takes no more letters, and `_finished` is called when
    all that are under way are confirmed and removed: the next leader would forward them again.

    Invariants: letters up to `_cursor` were taken; of these, `underway` has those that are not
    settled, and `_proposed` the numbers of letters in the proposals to remove letters that were not
    applied yet; a timer runs exactly while a letter waits and `_finished` is None.
    """

    def __init__(self, owner: LetterForwarders, group: int, term: int) -> None:
        self.term = term
        self.ended = False
        self._owner = owner
        self._group = group
        self._cursor = (0, 0)
        self.underway: dict[tuple[int, int], Underway] = {}
        self._proposed: deque[int] = deque()
        self._bytes = 0
        self._timer: LoopTimer | None = None
        self._probe_ms = PROBE_MS
        self._waited_ms = 0
        self._finished: Callable[[], None] | None = None
        self._logged: set[tuple[str, ...]] = set()

    # ------------------------------------------------------------ events

    def wake(self) -> None:
        """Forward what is new, as far as there is room."""
        if self._finished is not None:
            if not self.busy:
                self._finished()
            return
        if not self._leads():
            return
        room = self._owner.prefetch - len(self.underway) - sum(self._proposed)
        state = self._owner.queues.cluster.host.state(self._group)
        taken: list[Underway] = []
        for letter in state.letters.after(self._cursor, room) if room > 0 else ():
            if self._bytes >= FORWARDED_BYTES_MAX:
                break
            self._cursor = letter.place
            one = self.underway[letter.place] = Underway(letter=letter)
            taken.append(one)
            block = self._block(one)
            if block is not None:
                at = letter.ordinal
                one.size_bytes = len(block.body(at)) + len(block.properties(at))
                self._bytes += one.size_bytes
        self._forward(taken)

    def retry(self) -> None:
        """Forward again what waits, and what is new."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waited_ms = 0
        if self._leads() and self._finished is None:
            self._forward([one for one in self.underway.values() if one.waits])
            self.wake()

    def _due(self, waited_ms: int) -> None:
        """Forward one letter for each reason to wait; all of them after the retry interval."""
        self._timer = None
        self._waited_ms += waited_ms
        self._probe_ms = min(2 * self._probe_ms, PROBE_MS_MAX)
        if self._waited_ms >= self._owner.retry_ms:
            self.retry()
        elif self._leads() and self._finished is None:
            waiting = [one for one in self.underway.values() if one.waits]
            self._forward(list({one.why: one for one in reversed(waiting)}.values()))

    def gone(self, effect: LettersGone) -> None:
        """Note that letters were removed from the queue's state."""
        if effect.dropped:
            self.underway.clear()
            self._bytes = 0
        elif self._proposed:
            self._proposed.popleft()
        self.wake()

    @property
    def busy(self) -> bool:
        """Whether a letter is on its way to a queue, or is about to be removed."""
        underway = self.underway.values()
        return bool(self._proposed) or any(one.unsettled or one.routing for one in underway)

    def finish(self, finished: Callable[[], None]) -> None:
        """Forward nothing more; call `finished` when no letter is under way, at any event then."""
        self._finished = finished

    def resume(self) -> None:
        """Forward again: the leadership stayed here."""
        self._finished = None
        self.retry()

    def end(self) -> None:
        """Stop: this node does not lead the queue in that term any more."""
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()

    def _leads(self) -> bool:
        host = self._owner.queues.cluster.host
        return (
            not self.ended
            and host.is_leader(self._group)
            and host.term(self._group) == self.term
            and self._group in self._owner.queues.definitions.state.groups
        )

    # ------------------------------------------------------------ an attempt

    def _block(self, one: Underway) -> Block | None:
        """Return the block of a letter, with areas that can be read; None: it cannot be read."""
        cluster, letter = self._owner.queues.cluster, one.letter
        if one.faulty:
            return None
        try:
            block = cluster.stored.get(self._group, letter.entry, letter.ordinal)
            block.body(letter.ordinal)
            return block
        except BlockError as error:
            one.faulty = True
            cluster.set_aside.note(self._group, _where(letter), str(error))
        except EntryDamaged:
            cluster.host.repair.when(self._group, letter.entry, self._healed)
        except KeyError:
            self.log_once(
                ("missing", str(letter.entry)), "entry %s is not in the log", letter.entry
            )
        return None

    def _healed(self) -> None:
        self._owner.queues.cluster.loop.call_later(0, self.retry)

    def _forward(self, attempted: list[Underway]) -> None:
        if not attempted:
            return
        definitions = self._owner.queues.definitions
        queue = definitions.state.groups[self._group]
        config: QueueConfig = self._owner.queues.cluster.host.state(self._group).config
        exchange = config.dead_letter_exchange
        for one in attempted:
            one.waits = True
        if not config.keeps_letters or exchange is None:
            return
        if exchange and definitions.exchange(queue.vhost, exchange) is None:
            for one in attempted:
                one.why = ("exchange", exchange)
            self.log_once(("exchange", exchange), "exchange %r does not exist", exchange)
        else:
            self._make(queue, config, attempted)
        self.settle_and_arm(attempted)

    def _forward_waiting(self, attempted: list[Underway]) -> None:
        if self._leads() and self._finished is None:
            known = self.underway
            self._forward(
                [one for one in attempted if known.get(one.letter.place) is one and one.waits]
            )

    def _make(self, queue: QueueRecord, config: QueueConfig, attempted: list[Underway]) -> None:
        """Make the letters and publish them, in tables of bounded size."""
        cluster = self._owner.queues.cluster
        state = cluster.host.state(self._group)
        letters, rows = Letters(queue, config, self._owner.properties_max), list[Underway]()
        for one in attempted:
            letter = one.letter
            block = self._block(one)
            if block is None:
                continue
            notes = state.annotations.blocks.get(letter.entry, {}).get(letter.ordinal, ())
            died = (letter.died_ms // 1000, letter.delivery_count, notes)
            said = (block, letter.ordinal, letter.reason, *died)
            if cluster.set_aside.attempt(self._group, _where(letter), letters.add, *said):
                rows.append(one)
            else:
                one.faulty = True
            if letters.table.size_bytes(0, letters.table.count) > TABLE_BYTES_MAX:
                self._publish_guarded(letters, rows)
                letters, rows = Letters(queue, config, self._owner.properties_max), []
        self._publish_guarded(letters, rows)

    def _publish_guarded(self, letters: Letters, rows: list[Underway]) -> None:
        """Publish them; after a fault all of them wait, though some may have been sent."""
        if not rows:
            return
        for one in rows:
            one.waits, one.routing = False, True
        policy, publishing = _Attempt(self, letters, rows), self._owner.publishing
        share, table = publishing.shares.of(("kept letters", self._group)), letters.table
        run = (letters.queue.vhost, table, 0, table.count, policy, letters.flags, share)
        self.attempt(rows, publishing.publish, *run)

    def attempt(self, rows: list[Underway], call: Callable[..., object], *args: object) -> None:
        """Call it; after a fault all of these letters wait, though some may have been sent."""
        aside = self._owner.queues.cluster.set_aside
        if not aside.attempt(self._group, "dead letters", call, *args, count=len(rows)):
            for one in rows:
                one.unsettled.clear()
                one.waits, one.routing = True, False

    def sending(self, rows: list[Underway], send: Callable[[], object]) -> None:
        """Send letters that were routed, in the turn in which they were."""
        for one in rows:
            one.routing = False
        if self._leads():
            self.attempt(rows, send)
            self.settle_and_arm(rows)

    def is_underway(self, one: Underway) -> bool:
        """Return whether a letter is still to be forwarded: it may have been purged."""
        return self.underway.get(one.letter.place) is one

    def is_history(self, queue: QueueRecord, part: QueuePart) -> bool:
        """Return whether a part is kept by an exchange that does not route it on later."""
        store = self._owner.queues.definitions.state.queue(queue.vhost, part.name)
        return part.kept and not (store is not None and self._owner.publishing.delays(store))

    # ------------------------------------------------------------ its end

    def settle_and_arm(self, attempted: Iterable[Underway]) -> None:
        """Propose to remove what is confirmed; arm the timer for what waits."""
        if not self._leads():
            return
        loop = self._owner.queues.cluster.loop
        done: list[Letter] = []
        ended: set[tuple[str, ...]] = set()
        for one in attempted:
            place = one.letter.place
            if one.unsettled or self.underway.get(place) is not one:
                continue
            if one.waits or one.routing:
                continue
            del self.underway[place]
            self._bytes -= one.size_bytes
            done.append(one.letter)
            ended.add(one.why)
        if done:
            self._proposed.append(len(done))
            command = SettleLetters(_ranges(done))
            self._owner.queues.cluster.effects.command(self._group, command)
        waiting = [one for one in self.underway.values() if one.waits]
        again = [one for one in waiting if one.why and one.why in ended]
        if again:
            self._probe_ms = PROBE_MS
            loop.call_soon(lambda: self._forward_waiting(again))
        if self._timer is None and waiting:
            delay_ms = min(self._probe_ms, self._owner.retry_ms)
            self._timer = loop.call_later(delay_ms, lambda: self._due(delay_ms))
        if self._finished is not None:
            self.wake()

    # ------------------------------------------------------------ what an operator should know

    def log_once(self, key: tuple[str, ...], text: str, *args: object) -> None:
        """Log why letters wait, once for each reason."""
        if key in self._logged or len(self._logged) >= LOGGED_MAX:
            return
        self._logged.add(key)
        log.warning(
            "dead letters of queue %s wait, and are tried again until they are taken: %s; this is "
            "not logged again",
            self._owner.queues.cluster.set_aside.name(self._group),
            text % args,
        )


class _Attempt(Forwarding):
    """The policy of letters that are published together; rows: which they are."""

    strict = at_once = True

    def __init__(self, owner: LetterForwarder, letters: Letters, rows: list[Underway]) -> None:
        self._owner, self._letters, self._rows = owner, letters, rows
        self._cycles: dict[int, str] = {}

    def guarded(self, call: Callable[[], object]) -> None:
        self._owner.sending(self._rows, call)

    def wants(self, queue: str, i: int) -> bool:
        if not self._letters.wants(queue, i):
            self._cycles[i] = queue
            return False
        return self._owner.is_underway(self._rows[i]) and self._rows[i].lacks(queue)

    def chosen(self, parts: list[QueuePart]) -> list[QueuePart]:
        """See Forwarding; a letter with no other way does not go to a history again and again."""
        ways: list[QueuePart] = []
        histories: list[QueuePart] = []
        for part in parts:
            kept = self._owner.is_history(self._letters.queue, part)
            (histories if kept else ways).append(part)
        found = kept_parts(ways, self.wants)
        going = {i for part in found for i in part.selection}
        return found + kept_parts(histories, lambda name, i: i in going and self.wants(name, i))

    def sends(self, parts: list[QueuePart]) -> None:
        for part in parts:
            for i in part.selection:
                self._rows[i].unsettled.add(part.name)
        for i, one in enumerate(self._rows):
            one.waits = not one.unsettled and not one.confirmed
            if one.waits:
                to, again = self._to(i), self._cycles.get(i)
                why = "no queue is bound" if again is None else f"it would die in {again!r} again"
                one.why = ("route", *to, why)
                self._owner.log_once(one.why, "exchange %r with routing key %r: %s", *to, why)

    def answered(self, queue: str, positions: list[int], denied: set[int]) -> None:
        answered = [self._rows[i] for i in positions]
        for i, one in zip(positions, answered, strict=True):
            one.answer(queue, i not in denied)
            if i in denied:
                one.waits, one.why = True, ("queue", queue)
        if denied:
            to = self._to(min(denied))
            said = "exchange %r with routing key %r: queue %r has not taken them"
            self._owner.log_once(("refused", *to, queue), said, *to, queue)
        self._owner.settle_and_arm(answered)

    def _to(self, i: int) -> tuple[str, str]:
        route = self._letters.table.route(i)
        return route.exchange.decode(), route.routing_key.decode("utf-8", "replace")


class LetterForwarders:
    """The forwarders of all queues that are led here, made when a queue has letters.

    Nothing is forwarded before this node knows the definitions and its own incarnation, for the
    reasons that `DeadLetters` has.

    prefetch  letters of a queue that are under way at once
    retry_ms  until a letter that was refused or not routed is tried again
    """

    def __init__(
        self, queues: QueueClients, publishing: Publisher, frame_max: int, settings: Queues
    ) -> None:
        """frame_max: of content headers, in bytes; the properties of dead letters fit into one."""
        self.queues = queues
        self.publishing = publishing
        self.properties_max = frame_max - HEADER_FRAME_BYTES
        self.prefetch = settings.dead_letter_worker_consumer_prefetch
        self.retry_ms = settings.dead_letter_worker_publisher_confirm_timeout_ms
        self._forwarders: dict[int, LetterForwarder] = {}
        queues.cluster.on_leader.append(self._leader_changed)
        queues.cluster.on_hand_over.append(self.finish)

    def under_way(self, group: int) -> int:
        """Return how many letters of a queue that is led here were published, and not settled."""
        forwarder = self._forwarders.get(group)
        return 0 if forwarder is None else len(forwarder.underway)

    def carry_out(self, group: int, effect: LettersDue | LettersGone) -> None:
        """Carry out an effect of a queue that is led here."""
        self._count(group, effect)
        if isinstance(effect, LettersGone):
            if effect.dropped:
                log.info(
                    "dropped %d dead letters, %d bytes, of queue %s: it was purged, or its "
                    "settings keep none any more",
                    effect.messages,
                    effect.size_bytes,
                    self.queues.cluster.set_aside.name(group),
                )
            self._later(group, lambda forwarder: forwarder.gone(effect))
        elif effect.changed:
            self._later(group, LetterForwarder.retry)
        else:
            self._later(group, LetterForwarder.wake)

    def _count(self, group: int, effect: LettersDue | LettersGone) -> None:
        counters = self.queues.cluster.counters
        if isinstance(effect, LettersDue):
            for reason, count in effect.died:
                counters.died(reason, "quorum", "at_least_once", count)
        elif not effect.dropped:
            counters.letters_confirmed(effect.messages)

    def _later(self, group: int, call: Callable[[LetterForwarder], None]) -> None:
        """Call with the queue's forwarder once this node knows the definitions."""
        definitions = self.queues.definitions

        def ready() -> None:
            try:
                forwarder = self._forwarder(group)
            except UnknownGroup:
                return
            if forwarder is not None:
                call(forwarder)

        definitions.call_at_ready(ready)

    def _forwarder(self, group: int) -> LetterForwarder | None:
        """Return the forwarder of this node's present term; None: it does not lead."""
        host = self.queues.cluster.host
        known = self._forwarders.get(group)
        if not host.is_leader(group):
            return None
        term = host.term(group)
        if known is None or known.term != term:
            if known is not None:
                known.end()
            known = self._forwarders[group] = LetterForwarder(self, group, term)
        return known

    def finish(self, group: int, wait_ms: int, done: Callable[[], None]) -> bool:
        """Call `done`, once, when no letter of the queue is under way, or after `wait_ms`.

        returns  False: none is, and `done` is not called

        Then the leadership is transferred. If it stays here, letters are forwarded again after
        RESUME_MS. 1. A letter is confirmed by its target, and not removed yet.  2. The leadership
        is handed over, for a rebalance.  3. The next leader forwards the letter again.
        Replayed by tests/broker/cluster/leader/test_letter_forwarder.py
        """
        known = self._forwarders.get(group)
        if known is None or not known.busy:
            return False
        loop = self.queues.cluster.loop

        def finished() -> None:
            timer.cancel()
            known.finish(lambda: None)
            loop.call_later(RESUME_MS, known.resume)
            done()

        timer = loop.call_later(wait_ms, finished)
        known.finish(finished)
        return True

    def _leader_changed(self, group: int) -> None:
        known = self._forwarders.get(group)
        host = self.queues.cluster.host
        if known is not None and not (host.is_leader(group) and host.term(group) == known.term):
            known.end()
            del self._forwarders[group]


def warn_of_fallback(config: QueueConfig) -> None:
    """Log why a queue that asks for at least once does not get it, in RabbitMQ's words."""
    if config.dead_letter_strategy == "at-most-once" or config.keeps_letters:
        return
    name = f"queue {config.name!r} in vhost {config.vhost!r}"
    if config.dead_letter_exchange is None:
        log.warning(
            "Disabling dead-lettering for %s despite configured dead-letter-strategy "
            "'at-least-once' because dead-letter-exchange is not configured.",
            name,
        )
        return
    log.warning(
        "Falling back to dead-letter-strategy at-most-once for %s because configured "
        "dead-letter-strategy at-least-once is incompatible with effective overflow strategy "
        "drop-head. To enable dead-letter-strategy at-least-once, set overflow strategy to "
        "reject-publish.",
        name,
    )


def _where(letter: Letter) -> str:
    return f"dead letter {letter.ordinal} of entry {letter.entry}"


def _ranges(letters: Iterable[Letter]) -> tuple[tuple[int, int, int], ...]:
    """Return letters as (number, first, last), neighbours joined."""
    ranges: list[tuple[int, int, int]] = []
    for number, ordinal, *_ in sorted(letters):
        if ranges and ranges[-1][0] == number and ranges[-1][2] + 1 == ordinal:
            ranges[-1] = (number, ranges[-1][1], ordinal)
        else:
            ranges.append((number, ordinal, ordinal))
    return tuple(ranges)
