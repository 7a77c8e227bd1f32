"""The sums of a scrape, which are kept: what has not changed is not read again."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.cluster.led_queues import MemberCounts
from warren_broker.metrics import readings
from warren_broker.metrics.readings import NO_WORK, GroupTotals, QueueTotals
from warren_raft.runtime.host import UnknownGroup

QUEUE = SimpleNamespace(store_of=None, vhost="/", name="q", config=SimpleNamespace(kind="quorum"))


class Groups:
    """A host of groups with a number each, `ready`, of messages in their queues."""

    def __init__(self) -> None:
        self.known: dict[int, SimpleNamespace] = {}
        self.changed: set[int] | None = None
        self.read = 0

    def put(self, group: int, ready: int = 0, leads: bool = True, **more: Any) -> None:
        found = {"leader": "a", "lags": {"b": 0, "c": 0}, "term": 1, **more}
        self.known[group] = SimpleNamespace(ready=ready, leads=leads, **found)
        self.note(group)

    def end(self, group: int) -> None:
        del self.known[group]
        self.note(group)

    def note(self, group: int) -> None:
        if self.changed is not None:
            self.changed.add(group)

    def take_changed(self, who: str) -> set[int] | None:
        found, self.changed = self.changed, set()
        return found

    def groups(self) -> tuple[int, ...]:
        return tuple(self.known)

    def state(self, group: int) -> SimpleNamespace:
        self.read += 1
        if group not in self.known:
            raise UnknownGroup(group, "a")
        return self.known[group]

    def is_leader(self, group: int) -> bool:
        return self.known[group].leads

    def leader(self, group: int) -> str | None:
        return self.known[group].leader

    def term(self, group: int) -> int:
        return self.known[group].term

    def lags(self, group: int) -> dict[str, int]:
        return self.known[group].lags


class Counts(MemberCounts):
    """Of a queue with nothing but ready messages."""

    @classmethod
    def of(cls, state: Any) -> MemberCounts:
        return MemberCounts(state.ready, 0, state.ready, 0, 0, 0, 0, 0)


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readings, "MemberCounts", Counts)
        monkeypatch.setattr(readings.QueueWork, "of", lambda *_: NO_WORK)
        self.host = Groups()
        groups = SimpleNamespace(get=lambda group: QUEUE)
        definitions = SimpleNamespace(state=SimpleNamespace(groups=groups))
        cluster = SimpleNamespace(host=self.host)
        broker: Any = SimpleNamespace(cluster=cluster, definitions=definitions)
        self.totals = QueueTotals(broker)

    def shown(self, whole: bool = False) -> SimpleNamespace:
        """Scrape; `read` is how many groups were looked at."""
        before = self.host.read
        for group in self.totals.due(whole):
            self.totals.read(group)
        made = SimpleNamespace(queues=[])
        self.totals.show(made)  # type: ignore[arg-type]
        made.read = self.host.read - before
        return made


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_what_has_not_changed_is_not_read_again(scene: Scene) -> None:
    for group in range(1000):
        scene.host.put(group, ready=2, leads=group % 2 == 0)
    first = scene.shown()
    assert (first.read, first.led, first.total.ready) == (1000, 500, 1000)
    scene.host.put(4, ready=7, term=9)
    second = scene.shown()
    assert (second.read, second.total.ready, second.groups.term_max) == (1, 1005, 9)
    assert scene.shown().read == 0
    scene.host.end(4)
    third = scene.shown()
    assert (third.read, third.led, third.total.ready) == (1, 499, 998)
    assert third.groups.members == 999 and third.oldest == {4: None}


def test_what_changes_without_a_note_is_read_each_time(scene: Scene) -> None:
    for group in range(10):
        scene.host.put(group)
    scene.host.put(1, lags={"b": 5, "c": 0})
    scene.host.put(2, leads=False, leader=None)
    first = scene.shown()
    assert first.groups == GroupTotals(10, 9, 1, 1, {"b": 5, "c": 0}, {"b": 5, "c": 0})
    scene.host.known[1].lags = {"b": 0, "c": 0}
    scene.host.known[2].leader = "c"
    second = scene.shown()
    assert second.read == 2
    assert second.groups == GroupTotals(10, 9, 0, 1, {"b": 0, "c": 0}, {"b": 0, "c": 0})
    assert scene.shown().read == 0


def test_a_scrape_that_was_given_up_is_read_again(scene: Scene) -> None:
    for group in range(10):
        scene.host.put(group, ready=1)
    given_up, life = scene.totals.due(False), scene.totals.life
    scene.totals.read(given_up[0])
    due = scene.totals.due(True)
    assert len(due) == 10 and scene.totals.life is not life
    for group in [*given_up, *due]:  # the first one ends after all
        scene.totals.read(group)
    made = SimpleNamespace(queues=[])
    scene.totals.show(made)  # type: ignore[arg-type]
    assert made.total.ready == 10 and made.whole


def test_sums_are_those_of_reading_everything(scene: Scene) -> None:
    chance = random.Random(7)
    for _ in range(300):
        group = chance.randrange(40)
        if group in scene.host.known and chance.random() < 0.3:
            scene.host.end(group)
        else:
            leads = chance.random() < 0.5
            scene.host.put(group, chance.randrange(9), leads, term=chance.randrange(5))
        if chance.random() < 0.2:
            kept = scene.shown(whole=chance.random() < 0.1)
            known = scene.host.known.values()
            assert kept.total.ready == sum(one.ready for one in known if one.leads)
            assert kept.groups.members == len(known)
            assert kept.groups.led == kept.led == sum(one.leads for one in known)
            assert kept.groups.term_max == max([one.term for one in known], default=0)
