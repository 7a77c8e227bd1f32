"""The ledger from delivery tags to deliveries, as ranges.

A channel numbers its deliveries 1, 2, 3 …; a queue numbers those to one consumer 0, 1, 2 …. Both
are without gaps, so a run of deliveries to one consumer is one entry however long it is, and the
acknowledgement of a hundred of them is an operation on one or two entries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias

from warren_machines.queue.commands import ConsumerId, MsgIds
from warren_wire.errors import PreconditionFailed

Held: TypeAlias = "tuple[HeldRun, ...]"
"""Runs removed from the ledger, ascending by tag."""


@dataclass(slots=True)
class HeldRun:
    """Tags first … last (closed) of one consumer; the msg_id of tag t is t + offset.

    consumer  the consumer's number
    counted   False for basic.get: a channel-wide prefetch does not count it
    """

    first: int
    last: int
    offset: int
    consumer: ConsumerId
    counted: bool = True

    def __len__(self) -> int:
        return self.last - self.first + 1


_LAST = attrgetter("last")


class DeliveryLedger:
    """The unacknowledged deliveries of one channel.

    next_tag  the tag of the next delivery
    runs      ascending, disjoint; neighbours that fit together are joined at delivery
    counted   messages in the runs that a channel-wide prefetch counts
    holding   consumer to the messages that it holds: those in the runs, and those that were removed
              and are not settled (a transaction)

    Invariants: every run has first <= last < next_tag; counted is the sum over counted runs; no
    consumer in `holding` holds nothing.
    """

    __slots__ = ("counted", "holding", "next_tag", "runs")

    def __init__(self) -> None:
        self.next_tag = 1
        self.runs: list[HeldRun] = []
        self.counted = 0
        self.holding: dict[ConsumerId, int] = {}

    def check(self) -> None:
        """Assert the invariants."""
        before = 0
        for run in self.runs:
            assert before < run.first <= run.last < self.next_tag, (before, run, self.next_tag)
            before = run.last
            assert self.holding[run.consumer] >= len(run), (run, self.holding)
        assert self.counted == sum(len(run) for run in self.runs if run.counted), self.counted
        assert sum(self.holding.values()) >= len(self) and 0 not in self.holding.values()

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def delivered(
        self,
        consumer: ConsumerId,
        first_msg_id: int,
        count: int,
        keep: bool,
        counted: bool = True,
    ) -> int:
        """Assign tags to `count` deliveries; return the first tag.

        keep  they are to be acknowledged (not no_ack)
        """
        assert count > 0, count
        tag = self.next_tag
        self.next_tag = tag + count
        if not keep:
            return tag
        offset = first_msg_id - tag
        self.holding[consumer] = self.holding.get(consumer, 0) + count
        if counted:
            self.counted += count
        last = self.runs[-1] if self.runs else None
        if (
            last is not None
            and last.last == tag - 1
            and last.consumer == consumer
            and last.offset == offset
            and last.counted is counted
        ):
            last.last = tag + count - 1
        else:
            self.runs.append(HeldRun(tag, tag + count - 1, offset, consumer, counted))
        return tag

    def take_up_to(self, tag: int) -> Held:
        """Remove and return everything up to `tag`; 0: everything.

        fails  PreconditionFailed: that tag itself is not outstanding
        """
        if tag == 0:
            taken = self.runs
            self.runs = []
            return self._taken(taken)
        at = bisect_left(self.runs, tag, key=_LAST)
        if at == len(self.runs) or self.runs[at].first > tag:
            raise unknown_tag(tag)
        whole = at + 1 if self.runs[at].last == tag else at
        taken = self.runs[:whole]
        del self.runs[:whole]
        if whole == at:
            rest = self.runs[0]
            taken.append(_part(rest, rest.first, tag))
            rest.first = tag + 1
        return self._taken(taken)

    def take(self, first: int, last: int) -> tuple[Held, PreconditionFailed | None]:
        """Remove first … last (closed), as if one by one.

        returns  what was taken up to the first tag that is not outstanding, and that tag's refusal
        """
        at = bisect_left(self.runs, first, key=_LAST)
        taken: list[HeldRun] = []
        expected = first
        while expected <= last:
            if at == len(self.runs) or self.runs[at].first > expected:
                return self._taken(taken), unknown_tag(expected)
            run = self.runs[at]
            end = min(last, run.last)
            taken.append(_part(run, expected, end))
            at += self._cut(at, expected, end)
            expected = end + 1
        return self._taken(taken), None

    def _cut(self, at: int, first: int, last: int) -> int:
        """Remove first … last from run `at`; return the offset of the next run."""
        run = self.runs[at]
        if run.first == first and run.last == last:
            del self.runs[at]
            return 0
        if run.first == first:
            run.first = last + 1
            return 0
        if run.last != last:
            self.runs.insert(at + 1, _part(run, last + 1, run.last))
        run.last = first - 1
        return 1

    def settled(self, consumer: ConsumerId, msg_ids: MsgIds) -> None:
        """Count messages that were removed as settled."""
        left = self.holding[consumer] - sum([last - first + 1 for first, last in msg_ids])
        assert left >= 0, (consumer, left)
        if left:
            self.holding[consumer] = left
        else:
            del self.holding[consumer]

    def put_back(self, held: Sequence[HeldRun]) -> None:
        """Restore removed runs (tx.rollback)."""
        self.runs = sorted([*self.runs, *held], key=_LAST)
        self.counted += sum(len(run) for run in held if run.counted)

    def _taken(self, taken: list[HeldRun]) -> Held:
        for run in taken:
            if run.counted:
                self.counted -= run.last - run.first + 1
        return tuple(taken)


def _part(run: HeldRun, first: int, last: int) -> HeldRun:
    return HeldRun(first, last, run.offset, run.consumer, run.counted)


def unknown_tag(tag: int) -> PreconditionFailed:
    """Return the refusal of a tag that was never assigned, or is settled already."""
    return PreconditionFailed(f"unknown delivery tag {tag}")


def by_consumer(held: Held) -> list[tuple[ConsumerId, MsgIds]]:
    """Return the msg_id ranges per consumer, consumers in the order of their first tag."""
    if len(held) == 1:
        run = held[0]
        return [(run.consumer, ((run.first + run.offset, run.last + run.offset),))]
    grouped: dict[ConsumerId, list[tuple[int, int]]] = {}
    for run in held:
        ranges = grouped.setdefault(run.consumer, [])
        first, last = run.first + run.offset, run.last + run.offset
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
    return [(consumer, tuple(sorted(ranges))) for consumer, ranges in grouped.items()]
