"""What needs a message that is being fetched waits, in order; nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warren_broker.cluster.leader.effect_order import EffectOrder
from warren_raft.storage.errors import EntryDamaged

GROUP = 7


@dataclass(frozen=True)
class Reply:
    """needs: the entry of the message that a get got; 0: none."""

    number: int
    uplink: int = 1
    needs: int = 0


@dataclass(frozen=True)
class Send:
    """A message to a consumer."""

    index: int
    consumer: int = 1
    uplink: int = 1


@dataclass(frozen=True)
class Timer:
    """For no consumer."""

    at_ms: int


class Leader:
    """Writes down what is done; what needs an index in `damaged` cannot be, `gone` is not here."""

    def __init__(self) -> None:
        self.did: list[object] = []
        self.damaged: set[int] = set()
        self.gone: set[int] = set()
        self.missing: list[object] = []
        self.waiting: list[tuple[int, int, Callable[[], None]]] = []
        self.effects = EffectOrder(
            lambda group, index, call: self.waiting.append((group, index, call)),
            self.answer,
            self.run,
            lambda group, effect: self.missing.append(effect),
        )

    def _need(self, index: int) -> None:
        if index in self.damaged:
            raise EntryDamaged(Path("x.seg"), 40, "rot", GROUP, index, 1, 1)
        if index in self.gone:
            raise KeyError(index)

    def answer(self, group: int, index: int, reply: Reply) -> None:
        self._need(reply.needs)
        self.did.append(reply)

    def run(self, group: int, effect: Send | Timer) -> None:
        if isinstance(effect, Send):
            self._need(effect.index)
        self.did.append(effect)

    def carry_out(self, index: int, reply: Reply | None, *effects: Send | Timer) -> None:
        self.effects.carry_out(GROUP, index, reply, effects)

    def heal(self, *indexes: int) -> None:
        self.damaged.difference_update(indexes)
        ripe = [each for each in self.waiting if each[1] in indexes]
        self.waiting = [each for each in self.waiting if each[1] not in indexes]
        for _, _, call in ripe:
            call()

    def since(self, mark: int) -> list[object]:
        return self.did[mark:]


def test_effects_stay_in_order_and_answers_go_on() -> None:
    leader = Leader()
    leader.damaged = {12, 14}
    leader.carry_out(1, Reply(100), Send(11), Send(12), Send(13))
    leader.carry_out(2, Reply(101), Send(14))
    leader.carry_out(3, Reply(102))
    leader.carry_out(4, None, Send(15))
    assert leader.did == [Reply(100), Send(11), Reply(101), Reply(102)]
    assert [index for _, index, _ in leader.waiting] == [12]
    leader.heal(12)
    assert leader.since(4) == [Send(12), Send(13)]
    leader.heal(14)
    assert leader.since(6) == [Send(14), Send(15)]
    leader.carry_out(5, Reply(103), Send(16))
    assert leader.since(8) == [Reply(103), Send(16)]


def test_an_answer_that_needs_the_message_holds_those_behind_it() -> None:
    leader = Leader()
    leader.damaged = {12}
    leader.carry_out(1, Reply(100, needs=12))  # a get
    leader.carry_out(2, Reply(101), Send(13))
    assert leader.did == []
    leader.heal(12)
    assert leader.did == [Reply(100, needs=12), Reply(101), Send(13)]


def test_what_is_for_others_does_not_wait() -> None:
    leader = Leader()
    leader.damaged = {12}
    leader.carry_out(1, None, Send(12, consumer=1), Send(13, consumer=2), Timer(5))
    leader.carry_out(2, None, Send(14, consumer=2), Send(15, consumer=1), Send(16, 1, uplink=2))
    leader.carry_out(3, Reply(100, needs=12))
    leader.carry_out(4, Reply(101), Timer(6), Send(17, consumer=2))
    leader.carry_out(5, Reply(102, uplink=2), Send(18, 1, uplink=2))
    others = [
        Send(13, 2),
        Timer(5),
        Send(14, 2),
        Send(16, 1, 2),
        Timer(6),
        Reply(102, uplink=2),
        Send(18, 1, 2),
    ]
    assert leader.did == others
    assert len(leader.waiting) == 1
    leader.heal(12)
    assert leader.since(len(others)) == [
        Send(12),
        Send(15),
        Reply(100, needs=12),
        Reply(101),
        Send(17, 2),
    ]


def test_what_was_let_go_of_while_it_waited_is_needed_no_longer() -> None:
    leader = Leader()
    leader.damaged = {12}
    leader.carry_out(1, None, Send(12), Send(13))
    leader.carry_out(2, None, Send(14))
    leader.gone = {12}
    leader.heal(12)
    assert leader.did == [Send(13), Send(14)]
    leader.gone = {15}
    assert leader.missing == []
    leader.carry_out(3, None, Send(15), Send(16))  # of what is applied now it is a fault
    assert leader.missing == [Send(15)]
    assert leader.did == [Send(13), Send(14), Send(16)], "the node continues"


def test_one_entry_is_waited_for_once() -> None:
    leader = Leader()
    leader.damaged = {12, 13}
    leader.carry_out(1, None, Send(12, 1), Send(12, 2), Send(13, 3), Send(12, 4))
    assert sorted(index for _, index, _ in leader.waiting) == [12, 13]
    leader.heal(13)
    assert [index for _, index, _ in leader.waiting] == [12]
    leader.heal(12)
    assert leader.did == [Send(13, 3), Send(12, 1), Send(12, 2), Send(12, 4)]
    assert not leader.waiting


def test_who_leads_no_more_does_nothing_of_it() -> None:
    leader = Leader()
    leader.damaged = {12}
    leader.carry_out(1, Reply(100), Send(12), Send(13))
    leader.effects.drop(GROUP)
    leader.heal(12)
    assert leader.did == [Reply(100)]
    leader.carry_out(2, Reply(101), Send(14))
    assert leader.since(1) == [Reply(101), Send(14)]
