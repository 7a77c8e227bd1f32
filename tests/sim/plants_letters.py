"""Bugs to plant in dead lettering at least once; see `plants`."""

from __future__ import annotations

from copy import copy
from itertools import count
from typing import Any

from sim.planting import Replacement, by_name
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.client.routed_runs import PublishedRun, QueuePart
from warren_broker.cluster.leader import letter_forwarder
from warren_broker.cluster.leader.letter_forwarder import LetterForwarder
from warren_machines.queue import ack
from warren_machines.queue.effects import LettersDue
from warren_machines.queue.letters import dead_letter
from warren_machines.queue.letters.letter_queue import LetterQueue
from warren_machines.queue.machine import QueueMachine


def letters_are_settled_before_their_confirms() -> list[Replacement]:
    """The forwarder takes what was sent for what was confirmed."""
    send = Publisher.send

    def hasty(self: Publisher, vhost: str, parts: list[QueuePart], run: PublishedRun) -> Any:
        if not run.strict:
            return send(self, vhost, parts, run)
        untold = copy(run)
        untold.confirms = False
        clients = send(self, vhost, parts, untold)
        for number, part in enumerate(parts):
            run.confirmed(number, part, True, None)
        return clients

    return [(Publisher, "send", hasty)]


def a_refused_letter_counts_as_confirmed() -> list[Replacement]:
    """The forwarder does not look whether its target has taken a letter."""
    confirmed = letter_forwarder._Attempt.confirmed

    def blind(self: PublishedRun, number: int, part: QueuePart, ok: bool, refused: Any) -> None:
        confirmed(self, number, part, True, None)  # type: ignore[arg-type]

    return [(letter_forwarder._Attempt, "confirmed", blind)]


def a_deleted_target_has_confirmed() -> list[Replacement]:
    """For the forwarder, too, letters on their way to a deleted queue were never routed there."""
    return [(letter_forwarder._Attempt, "strict", False)]


def a_letter_without_a_route_is_settled() -> list[Replacement]:
    """The forwarder settles what no queue is to have."""
    sends = letter_forwarder._Attempt.sends

    def careless(self: Any, parts: Any) -> None:
        sends(self, parts)
        for one in self._rows:
            one.waits = one.waits and bool(one.confirmed)

    return [(letter_forwarder._Attempt, "sends", careless)]


def a_new_leader_forwards_no_older_letters() -> list[Replacement]:
    """A leader is told of letters that die, and not of those that wait."""
    leader_effects = QueueMachine.leader_effects

    def silent(self: QueueMachine, state: Any) -> Any:
        return tuple(one for one in leader_effects(self, state) if not isinstance(one, LettersDue))

    return [(QueueMachine, "leader_effects", silent)]


def what_waits_is_not_tried_again() -> list[Replacement]:
    """The forwarder arms no timer."""

    def idle(self: LetterForwarder) -> None:
        self._timer = None

    return [(LetterForwarder, "retry", idle)]


def letters_are_not_in_the_snapshot() -> list[Replacement]:
    """A member that begins with a snapshot has no letters."""
    return [(LetterQueue, "load", lambda self, counts, leaves: None)]


def the_count_of_a_letter_depends_on_the_member() -> list[Replacement]:
    """Members count the failed deliveries of a rejected message each for itself."""
    bury = dead_letter.dead_letter_or_drop
    buried = count()

    def uncertain(context: Any, reason: Any, run: Any) -> None:
        index, first, last, failures, acquired = run
        bury(context, reason, (index, first, last, failures + next(buried) % 2, acquired))

    return [(ack, "dead_letter_or_drop", uncertain)]


def letters_are_forwarded_from_the_last() -> list[Replacement]:
    """The forwarder begins with the letter that died last, and continues after it."""
    after = LetterQueue.after

    def backwards(self: LetterQueue, place: Any, count: int) -> Any:
        return after(self, place, 1 << 30)[-count:]

    return [(LetterQueue, "after", backwards)]


def what_dies_with_its_consumer_is_dropped() -> list[Replacement]:
    """A message beyond its delivery limit is dropped although the queue keeps its letters."""
    bury = dead_letter.dead_letter_or_drop

    def gone(context: Any, reason: Any, run: Any) -> None:
        if reason != "delivery_limit":
            bury(context, reason, run)
            return
        context.dead_letter(reason, *run[:4])
        context.state.contents.drop(run[0], run[2] - run[1] + 1)

    return [(dead_letter, "dead_letter_or_drop", gone)]


PLANTS = by_name(
    letters_are_settled_before_their_confirms,
    a_refused_letter_counts_as_confirmed,
    a_deleted_target_has_confirmed,
    a_letter_without_a_route_is_settled,
    a_new_leader_forwards_no_older_letters,
    what_waits_is_not_tried_again,
    letters_are_not_in_the_snapshot,
    the_count_of_a_letter_depends_on_the_member,
    letters_are_forwarded_from_the_last,
    what_dies_with_its_consumer_is_dropped,
)
