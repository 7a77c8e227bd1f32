"""The publish ledger of ranges against a model of single messages."""

from __future__ import annotations

from array import array
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from warren_broker.clients091.confirms import PublishLedger
from warren_wire.kernel import MessageTable, Selection


@st.composite
def publications(draw: st.DrawFn) -> list[tuple[int, list[list[int]]]]:
    """Batches: (messages, one list of positions per queue)."""
    batches = []
    for _ in range(draw(st.integers(1, 6))):
        count = draw(st.integers(1, 5))
        parts = draw(
            st.lists(
                st.one_of(
                    st.just(list(range(count))),
                    st.sets(st.integers(0, count - 1), min_size=1).map(sorted),
                ),
                max_size=3,
            )
        )
        batches.append((count, parts))
    return batches


def selections(offset: int, count: int, parts: list[list[int]]) -> list[Selection]:
    """The parts of a batch that starts at `offset` of its table."""
    table = MessageTable()
    table.count = 100
    return [
        Selection(
            table,
            offset,
            offset + count,
            None if len(part) == count else array("I", [offset + at for at in part]),
        )
        for part in parts
    ]


@given(publications(), st.randoms(use_true_random=False), st.floats(0, 1))
def test_confirms(batches: list[tuple[int, list[list[int]]]], chance: Any, fail: float) -> None:
    """Whatever the order of routes and answers: each message is told once, and told right."""
    ledger = PublishLedger()
    publisher = Publisher()
    waiting: dict[int, set[tuple[int, int]]] = {}
    todo: list[Any] = []
    base = 1
    for count, parts in batches:
        todo.append(("publish", count, parts))
    answers: list[Any] = []
    first_of = []
    while todo or answers:
        if todo and (not answers or chance.random() < 0.5):
            _, count, parts = todo.pop(0)
            first = ledger.published(count)
            assert first == base
            base += count
            first_of.append(first)
            publisher.outstanding.update(range(first, first + count))
            answers.append(("route", first, count, parts))
        else:
            step = answers.pop(chance.randrange(len(answers)))
            if step[0] == "route":
                _, first, count, parts = step
                offset = chance.randrange(50)
                nowhere = ledger.routed(first, selections(offset, count, parts), offset)
                reached = {at for part in parts for at in part}
                assert nowhere == [at for at in range(count) if at not in reached]
                for at in range(count):
                    waiting[first + at] = {
                        (first, number) for number, part in enumerate(parts) if at in part
                    }
                answers.extend(("answer", first, number, part) for number, part in enumerate(parts))
            else:
                _, first, number, part = step
                ok = chance.random() >= fail
                some = (
                    None
                    if ok or chance.random() < 0.5
                    else sorted(chance.sample(part, chance.randint(1, len(part))))
                )
                ledger.answered(first, number, ok, some)
                for at in part:
                    if not ok and (some is None or at in some):
                        publisher.refused.add(first + at)
                    waiting[first + at].discard((first, number))
        publisher.hear(ledger.take(), waiting)
    assert not publisher.outstanding
    assert ledger.idle
    assert ledger.take() is None


class Publisher:
    """What a client library does with what it is told."""

    def __init__(self) -> None:
        self.outstanding: set[int] = set()
        self.refused: set[int] = set()

    def hear(self, told: Any, waiting: dict[int, set[tuple[int, int]]]) -> None:
        if told is None:
            return
        acked: set[int] = set()
        nacked: set[int] = set()
        if told.up_to:
            acked |= self._take({number for number in self.outstanding if number <= told.up_to})
        for first, last in told.singles:
            acked |= self._take(set(range(first, last + 1)))
        if told.nack_up_to:
            nacked |= self._take(
                {number for number in self.outstanding if number <= told.nack_up_to}
            )
        for first, last in told.nacks:
            nacked |= self._take(set(range(first, last + 1)))
        assert acked or nacked
        for number in acked:
            assert number in waiting, "confirmed before it was routed"
            assert not waiting[number], "confirmed before all queues had it"
            assert number not in self.refused
        assert nacked <= self.refused

    def _take(self, numbers: set[int]) -> set[int]:
        assert numbers <= self.outstanding, "told twice"
        self.outstanding -= numbers
        return numbers
