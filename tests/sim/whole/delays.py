"""Delayed messages: a check of delayed retry and delayed publishes from outside the machine.

It sees the delayed messages and the returned ones after every entry, and knows the rules, none of
the machine's code.
"""

from __future__ import annotations

from typing import TypeAlias

from sim.checkers import require
from warren_machines.queue import commands
from warren_machines.queue.commands import Modify, Submission
from warren_machines.queue.delayed.delay_commands import EndDelay, EnqueueDelayed
from warren_machines.queue.state import QueueState
from warren_wire.queue_values.config import QueueConfig

Place: TypeAlias = tuple[int, int]
"""(index, ordinal)."""
SWEEPS = (commands.Purge, commands.Delete)


def delay_of(config: QueueConfig, failures: int, failed: bool) -> int:
    """The delay of a message that comes back with that delivery count; 0: none."""
    kinds = {"all": (True, False), "failed": (True,), "returned": (False,)}
    if failed not in kinds.get(config.delayed_retry_type, ()):
        return 0
    shortest = config.delayed_retry_min_ms or 0
    delays = [shortest * failures if failures else shortest]
    delays.append(config.delayed_retry_max_ms or shortest)
    return min(delays)


def said(submission: Submission, now: int) -> tuple[set[int], bool]:
    """Return the times that consumers say, and whether nothing else returns a message."""
    told = [one.ready_ms for one in submission.commands if isinstance(one, Modify)]
    kinds = {type(command) for command in submission.commands}
    alone = kinds <= {Modify, commands.Settle, commands.Enqueue}
    return set(told), bool(told) and alone and min(told) > now


def published(submission: Submission) -> list[int]:
    """The delay of each message of the entry's block; []: it delays none."""
    return [
        delay
        for command in submission.commands
        if isinstance(command, EnqueueDelayed)
        for count, delay in command.delays
        for _ in range(count)
    ]


def ended(submission: Submission) -> dict[Place, bool]:
    """The messages whose delays the entry ends, and whether it drops them."""
    return {
        (one.index, one.ordinal): one.drop
        for one in submission.commands
        if isinstance(one, EndDelay)
    }


class Delays:
    """The delayed messages of every queue, after the entry that was applied last.

    known  group -> place -> when it is ready
    seen   messages that were delayed, in all
    """

    def __init__(self) -> None:
        self.known: dict[int, dict[Place, int]] = {}
        self.seen = 0

    def applied(
        self, group: int, entry: int, now: int, submission: Submission, state: QueueState
    ) -> None:
        """Compare the state after an entry with the one before it."""
        asked = published(submission)
        told, only_told = said(submission, now)
        before = self.known.get(group, {})
        after: dict[Place, int] = {}
        for ready_ms, index, first, last, failures, _ in state.delayed:
            for at in range(first, last + 1):
                after[index, at] = ready_ms
                if index == entry and any(asked[at : at + 1]):
                    self.seen += 1
                    delay_ms = ready_ms - now
                    require(delay_ms == asked[at], "published otherwise", group, index, at)
                elif before.get((index, at)) != ready_ms:
                    if ready_ms not in told:
                        require(not only_told, "not when its consumer said", group, index, at)
                        self.begins(group, (index, at), ready_ms - now, failures, state.config)
        if not before and not after:
            return
        self.known[group] = after
        kinds = {type(command) for command in submission.commands}
        at_once = commands.RetryDelayed in kinds or bool(kinds & {*SWEEPS})
        named = ended(submission)
        back = []
        for place, ready_ms in before.items():
            if after.get(place) == ready_ms:
                require(ready_ms > now, "a delayed message is late", group, place, ready_ms, now)
            elif place not in named:
                early = ready_ms > now and not at_once
                require(not early, "a delayed message is early", group, place, ready_ms, now)
                back.append((ready_ms, *place))
        self.in_order(group, sorted(back), state)

    def begins(
        self, group: int, place: Place, delay_ms: int, failures: int, config: QueueConfig
    ) -> None:
        """A message came back and is delayed: for how long follows from its delivery count."""
        self.seen += 1
        allowed = {delay_of(config, failures, failed) for failed in (True, False)} - {0}
        require(delay_ms in allowed, "another delay", group, place, delay_ms, failures, allowed)

    def in_order(self, group: int, back: list[tuple[int, int, int]], state: QueueState) -> None:
        """Those that are ready and were not taken stand in the order of their times."""
        places = [place for _, *place in back]
        left = [
            [index, at]
            for index, first, last, _, _ in state.order.returned
            for at in range(first, last + 1)
            if [index, at] in places
        ]
        expected = [place for place in places if place in left]
        require(left == expected, "delayed messages are ready in another order", group, left)
