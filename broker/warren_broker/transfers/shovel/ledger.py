"""The messages that a shovel has received and not yet acknowledged to the source."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Held = TypeVar("Held")


class ShovelLedger(Generic[Held]):
    """Deliveries of the source's channel by tag, and publishes of the destination's by number.

    A delivery is acknowledged when the destination has confirmed it, and never before. A publish
    that was refused is published again under another number.

    in_order  a delivery is acknowledged after all that came before it
    last      the number of the last publish

    Invariant: each number of `_published` stands for one tag of `_held`, and no two for the same
    """

    def __init__(self, in_order: bool = False) -> None:
        self._in_order = in_order
        self._done: set[int] = set()
        self._held: OrderedDict[int, Held] = OrderedDict()
        self._published: OrderedDict[int, int] = OrderedDict()
        self.last = 0

    def __len__(self) -> int:
        return len(self._held)

    def delivered(self, tag: int, held: Held) -> None:
        """Record a delivery; the next publish is of it."""
        self._held[tag] = held

    def published(self, tag: int) -> int:
        """Return the number of the publish of that delivery on a channel with confirms."""
        self.last += 1
        self._published[self.last] = tag
        return self.last

    def held(self, tag: int) -> Held:
        """Return what was recorded with a delivery."""
        return self._held[tag]

    def only(self) -> Held:
        """Return what was recorded with the only delivery."""
        (held,) = self._held.values()
        return held

    def first(self) -> Held:
        """Return what was recorded with the first delivery that is not acknowledged."""
        return next(iter(self._held.values()))

    def confirmed(self, number: int, multiple: bool) -> list[int]:
        """Forget publishes that are confirmed, and their deliveries; return the tags, sorted.

        In order, deliveries that others come before are kept until those are confirmed.
        """
        tags = sorted(self._taken(number, multiple))
        if self._in_order:
            self._done.update(tags)
            return self._in_turn()
        for tag in tags:
            del self._held[tag]
        return tags

    def _in_turn(self) -> list[int]:
        tags = []
        for tag in self._held:
            if tag not in self._done:
                break
            tags.append(tag)
        self._done.difference_update(tags)
        for tag in tags:
            del self._held[tag]
        return tags

    def returned(self, tag: int) -> list[int]:
        """Forget a delivery that goes back to the source, and of which no publish is open.

        Return the tags of those that have waited for it, and are acknowledged now.
        """
        del self._held[tag]
        return self._in_turn()

    def refused(self, number: int, multiple: bool) -> list[int]:
        """Forget publishes that are refused; return the tags to be published again, sorted."""
        return sorted(self._taken(number, multiple))

    def _taken(self, number: int, multiple: bool) -> list[int]:
        if not multiple:
            tag = self._published.pop(number, None)
            return [] if tag is None else [tag]
        numbers = []
        for each in self._published:  # in the order of the numbers
            if each > number:
                break
            numbers.append(each)
        return [self._published.pop(each) for each in numbers]

    def acknowledgements(self, tags: list[int]) -> list[tuple[int, bool]]:
        """Return the acknowledgements, each (tag, multiple), of deliveries that are confirmed.

        What is below the first delivery still held needs one for all. tags: sorted
        """
        first = next(iter(self._held), None)
        below = [tag for tag in tags if first is None or tag < first]
        made = [(below[-1], True)] if below else []
        return [*made, *((tag, False) for tag in tags[len(below) :])]
