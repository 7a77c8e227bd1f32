"""A leader's effects wait, in order, for a message that is being fetched; answers go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from warren_broker.cluster.held_effects import HeldEffects
from warren_raft.storage.errors import EntryDamaged

GROUP = 7


class Leader:
    """Writes down what is done; what needs an index in `damaged` cannot be."""

    def __init__(self) -> None:
        self.did: list[object] = []
        self.damaged: set[int] = set()
        self.waiting: list[tuple[int, int, Callable[[], None]]] = []
        self.effects = HeldEffects(
            lambda group, index, call: self.waiting.append((group, index, call)),
            self.answer,
            self.run,
        )

    def _need(self, index: int) -> None:
        if index in self.damaged:
            raise EntryDamaged(Path("x.seg"), 40, "rot", GROUP, index, 1, 1)

    def answer(self, group: int, index: int, reply: int) -> None:
        self._need(reply)
        self.did.append(("answer", reply))

    def run(self, group: int, effect: int) -> None:
        self._need(effect)
        self.did.append(effect)

    def carry_out(self, index: int, reply: int | None, *effects: int) -> None:
        self.effects.carry_out(GROUP, index, reply, effects)

    def heal(self, index: int) -> None:
        self.damaged.discard(index)
        waiting, self.waiting = self.waiting, []
        for _, _, call in waiting:
            call()


def test_effects_stay_in_order_and_answers_go_on() -> None:
    leader = Leader()
    leader.damaged = {12, 14}
    leader.carry_out(1, 100, 11, 12, 13)
    leader.carry_out(2, 101, 14)
    leader.carry_out(3, 102)
    leader.carry_out(4, None, 15)
    assert leader.did == [("answer", 100), 11, ("answer", 101), ("answer", 102)]
    assert [index for _, index, _ in leader.waiting] == [12]
    leader.heal(12)
    assert leader.did[4:] == [12, 13]
    leader.heal(14)
    assert leader.did[6:] == [14, 15]
    leader.carry_out(5, 103, 16)
    assert leader.did[8:] == [("answer", 103), 16]


def test_an_answer_that_needs_the_message_holds_those_behind_it() -> None:
    leader = Leader()
    leader.damaged = {12}
    leader.carry_out(1, 12)  # a get
    leader.carry_out(2, 101, 13)
    assert leader.did == []
    leader.heal(12)
    assert leader.did == [("answer", 12), ("answer", 101), 13]


def test_who_leads_no_more_does_nothing_of_it() -> None:
    leader = Leader()
    leader.damaged = {12}
    leader.carry_out(1, 100, 12, 13)
    leader.effects.drop(GROUP)
    leader.heal(12)
    assert leader.did == [("answer", 100)]
    leader.carry_out(2, 101, 14)
    assert leader.did[1:] == [("answer", 101), 14]
