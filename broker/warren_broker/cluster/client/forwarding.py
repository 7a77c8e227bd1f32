"""Messages that a node publishes itself: one way (`Publisher.forward`) with a policy for each.

at most once   dead letters: no answer is waited for (`dead_letters`)
best effort    events, log lines, traces: what exceeds a bound of bytes without an answer is dropped
               (`node_messages`)
at least once  kept dead letters and due messages: each is done when every queue has it; what one
               queue has taken is not given to it again (`letter_forwarder`, `due_messages`)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from warren_broker.cluster.client.routed_runs import Keep, QueuePart, kept_parts
from warren_wire.errors import Refusal


class Forwarding:
    """A policy; as it is, all queues get their messages, and nothing is done with the answers.

    confirms  whether answers are waited for
    strict    a queue that is deleted meanwhile refuses its messages
    at_once   all queues are sent theirs in the turn of `routed`, where a fault is contained
    """

    confirms = True
    strict = at_once = False

    def guarded(self, call: Callable[[], None]) -> None:
        """Choose and send, perhaps in a later turn than the one in which routing began."""
        call()

    def chosen(self, parts: list[QueuePart]) -> list[QueuePart]:
        """Return what is sent of what was routed."""
        return kept_parts(parts, self.wants)

    def wants(self, queue: str, i: int) -> bool:
        """Return whether a queue is to get the message of that table position."""
        return True

    def routed(self, parts: list[QueuePart]) -> None:
        """Note what is sent next; a message in no part goes nowhere."""

    def refused(self, refusal: Refusal) -> None:
        """Note that nothing is routed: the exchange is gone."""
        self.guarded(lambda: self.routed([]))

    def answered(self, queue: str, positions: list[int], denied: set[int]) -> None:
        """Note that a queue has taken these positions of the table, but for the denied ones."""


class AllAnswered(Forwarding):
    """Calls `done` when every queue has answered, whatever it was."""

    def __init__(self, done: Callable[[], None], wants: Keep | None = None) -> None:
        self._done, self._wants, self._waiting = done, wants, 1

    def wants(self, queue: str, i: int) -> bool:
        """See Forwarding."""
        return self._wants is None or self._wants(queue, i)

    def routed(self, parts: list[QueuePart]) -> None:
        """See Forwarding."""
        self._waiting += len(parts)
        self.answered("", [], set())

    def answered(self, queue: str, positions: list[int], denied: set[int]) -> None:
        """See Forwarding."""
        self._waiting -= 1
        if not self._waiting:
            self._done()


@dataclass(slots=True, eq=False)
class Fate:
    """Which queues have a message that is to reach all of its queues.

    unsettled  queues that have it and have not answered
    confirmed  queues that have confirmed it, in this attempt or an earlier one
    """

    unsettled: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)

    def lacks(self, queue: str) -> bool:
        """Return whether the queue neither has it nor may have it."""
        return queue not in self.confirmed and queue not in self.unsettled

    def answer(self, queue: str, ok: bool) -> None:
        """Note a queue's answer."""
        self.unsettled.discard(queue)
        if ok:
            self.confirmed.add(queue)
