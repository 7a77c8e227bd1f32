"""An exchange that delays messages: a check from outside its store and its router.

It sees what the store is given, hands out and lets go, entry by entry, and what the queues take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sim.checkers import require
from sim.whole.delays import Place, ended, published
from sim.whole.letters import AppliedEntry, taken
from sim.whole.profile import DUE, STORE
from warren_machines.queue.commands import RetryDelayed, Return, Submission
from warren_machines.queue.effects import Deliver
from warren_machines.queue.state import QueueState
from warren_raft.machine import Applied

if TYPE_CHECKING:
    from sim.whole.world import World

Router: TypeAlias = tuple[int, int]
"""(uplink, consumer) of a router, which there is for as long as one node leads the store."""


class Due:
    """What waits in stores, and what came of it.

    live     group -> place -> body, of what a store holds; it has the groups of stores only
    ready    body -> when it is due, by the log of its store
    routers  body -> those that it was handed to
    arrived  (queue, body) -> how often that queue has taken it
    settled  messages that have left a store, in all
    refused  messages that a router has given back
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.live: dict[int, dict[Place, bytes]] = {}
        self.ready: dict[bytes, int] = {}
        self.routers: dict[bytes, dict[Router, bool]] = {}
        self.arrived: dict[tuple[str, bytes], int] = {}
        self.settled = self.refused = 0

    def applied(self, entry: AppliedEntry, applied: Applied, state: QueueState) -> None:
        """Check an entry of a store, or of a queue that gets what is due."""
        group, index, now, submission = entry
        book = self.world.ledger.books.get(group)
        if book is None:
            return
        # A submission that is repeated leaves nothing at its own entry.
        new = state.contents.has(index)
        if book.plan.name in DUE and new:
            replies = getattr(applied.reply, "replies", ())
            for body in taken(self.world, group, index, submission, replies):
                self.arrive(book.plan.name, body)
        elif book.plan.name == STORE:
            if new:
                self.keep(group, index, now, submission)
            self.end(group, now, submission)
            self.hand_out(group, now, applied)
            self.refused += sum(isinstance(one, Return) for one in submission.commands)
            self.let_go(group, submission, state)

    def keep(self, group: int, index: int, now: int, submission: Submission) -> None:
        """The store takes the block of an entry."""
        live = self.live.setdefault(group, {})
        delays = published(submission)
        for at, body in enumerate(self.world.checkers.states.bodies[group, index]):
            wanted = self.world.ledger.delays[body]
            require(delays[at] == wanted, "delayed otherwise", body, delays[at], wanted)
            require(body not in self.ready, "kept twice", group, index, body)
            self.ready[body] = now + delays[at]
            live[index, at] = body

    def end(self, group: int, now: int, submission: Submission) -> None:
        """An operator does not wait for some, or for all."""
        live, named = self.live.get(group, {}), ended(submission)
        every = any(isinstance(one, RetryDelayed) for one in submission.commands)
        for place, body in live.items():
            if every or not named.get(place, True):
                self.ready[body] = min(now, self.ready[body])

    def hand_out(self, group: int, now: int, applied: Applied) -> None:
        """The store gives messages to its router."""
        for effect in applied.effects:
            if not isinstance(effect, Deliver):
                continue
            for one in effect.deliveries:
                for at in range(one.first, one.last + 1):
                    body = self.live[group][one.index, at]
                    require(now >= self.ready[body], "routed before it is due", body, now)
                    routers = self.routers.setdefault(body, {})
                    routers[effect.uplink, effect.consumer] = True

    def arrive(self, queue: str, body: bytes) -> None:
        """A queue takes a message: one that was handed out, from each router once."""
        routers = self.routers.get(body, {})
        count = self.arrived[queue, body] = self.arrived.get((queue, body), 0) + 1
        require(count <= len(routers), "routed more than once", queue, body, count, routers)

    def let_go(self, group: int, submission: Submission, state: QueueState) -> None:
        """What has left the store is in every queue, or was dropped by an operator."""
        live, named = self.live.get(group, {}), ended(submission)
        held = {
            (index, at)
            for _, index, first, last in state.runs_in_use()
            for at in range(first, last + 1)
        }
        for place in [place for place in live if place not in held]:
            body = live.pop(place)
            self.settled += 1
            lacking = [name for name in DUE if (name, body) not in self.arrived]
            if lacking:
                require(named.get(place, False), "settled before it is there", body, lacking)
                self.world.ledger.dropped[body] = True
