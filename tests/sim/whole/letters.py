"""Dead letters that are kept: a check from outside the machine, entry by entry.

It sees which letters a queue has after every entry, and what has arrived in their target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sim.checkers import require
from sim.whole.profile import TARGET
from warren_machines.queue import commands
from warren_machines.queue.commands import Submission
from warren_machines.queue.state import QueueState

if TYPE_CHECKING:
    from sim.whole.ledger import Book
    from sim.whole.world import World

Place: TypeAlias = tuple[int, int]
"""(index, ordinal)."""
SWEEPS = (commands.Purge, commands.Delete)


class AppliedEntry(NamedTuple):
    """An entry of a queue's log when a member applies it; now: the log's time in ms."""

    group: int
    index: int
    now: int
    submission: Submission


class Letters:
    """The letters of every queue, after the entry that was applied last.

    known    group -> place -> (number, reason, when it died)
    arrived  bodies that their target has taken
    settled  letters that have left, in all; again: those that had come to their target before
    purged   letters that have left with a purge or deletion
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.known: dict[int, dict[Place, tuple[int, int, int]]] = {}
        self.arrived: dict[bytes, int] = {}
        self.settled = self.purged = 0

    @property
    def again(self) -> int:
        """Return how many letters came more often than once."""
        return sum(count - 1 for count in self.arrived.values())

    def applied(self, entry: AppliedEntry, replies: Any, state: QueueState) -> None:
        """Compare the state after an entry with the one before it."""
        group, index, now, submission = entry
        book = self.book(group)
        if book is not None and book.plan.name == TARGET:
            self.arrive(book, index, submission, replies)
        before = self.known.get(group, {})
        after: dict[Place, tuple[int, int, int]] = {}
        for number, entry, first, last, reason, died_ms in state.letters:
            for at in range(first, last + 1):
                after[entry, at] = (number, reason, died_ms)
        if not before and not after:
            return
        self.known[group] = after
        times = [died_ms for _, _, died_ms in after.values()]
        require(times == sorted(times), "letters in another order", group, times)
        for place, known in after.items():
            if place not in before:
                require(known[2] == now, "a letter died at another time", group, place, known, now)
            else:
                require(before[place] == known, "a letter changed", group, place, known)
        asked = [one for one in submission.commands if isinstance(one, commands.SettleLetters)]
        swept = any(isinstance(one, SWEEPS) for one in submission.commands)
        for place in before:
            if place in after:
                continue
            number, ordinal = before[place][0], place[1]
            named = any(
                number == n and first <= ordinal <= last
                for one in asked
                for n, first, last in one.letters
            )
            if swept and not named:
                kept = [one for one in after if one in before]
                require(not kept, "a letter outlives a purge", group, place, kept)
                self.purged += 1
                continue
            require(named, "a letter is gone that nobody settled", group, place)
            entry, at = place
            body = self.world.checkers.states.bodies[group, entry][at]
            require(body in self.arrived, "a letter is settled that never arrived", group, body)
            self.settled += 1

    def book(self, group: int) -> Book | None:
        """Return the book of a queue; of a new one also before its declarer has an answer."""
        book = self.world.ledger.books.get(group)
        plan = self.world.plans.get(TARGET)
        if book is not None or plan is None or not self.world.profile.vanishing:
            return book
        for machine in self.world.processes.values():
            if machine.running is not None:
                queue = machine.running.broker.definitions.state.groups.get(group)
                if queue is not None and queue.name == TARGET:
                    return self.world.ledger.of(group, plan)
        return None

    def arrive(self, book: Book, index: int, submission: Submission, replies: Any) -> None:
        """Record what the target took of an entry's block."""
        for body in taken(self.world, book.group, index, submission, replies):
            book.take_letter(body)
            self.arrived[body] = self.arrived.get(body, 0) + 1


def taken(
    world: World, group: int, index: int, submission: Submission, replies: Any
) -> list[bytes]:
    """Return what a queue took of an entry's block."""
    bodies = world.checkers.states.bodies.get((group, index))
    for command, reply in zip(submission.commands, replies, strict=False):
        if isinstance(command, commands.Enqueue) and bodies is not None:
            return bodies[: reply.accepted] if isinstance(reply, commands.Refused) else bodies
    return []
