"""Sums of led queues by vhost, which are kept: what has not changed is not read again."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

from warren_broker.cluster.led_queues import SUMMED_GROUPS, VhostSums
from warren_broker.cluster.membership.status import UNCERTAIN_MS, LeaderQueries
from warren_raft.runtime.host import UnknownGroup
from warren_raft.types import METADATA_GROUP
from warren_wire.admin.overview import LedTotals


class Node:
    """A node with queues: vhost, messages ready, and whether it leads them, by group."""

    def __init__(self) -> None:
        self.queues: dict[int, tuple[str, int, bool]] = {}
        self.changed: dict[str, set[int]] = {}
        self.later: list[Any] = []
        self.reads = 0
        self.applied = 1
        loop = SimpleNamespace(call_later=lambda ms, call: self.later.append(call), now_ms=1 << 40)
        peers: dict[str, Any] = {
            f"on_peer_{what}": [] for what in ("up", "down", "suspected", "gone", "back")
        }
        peers["peers"] = tuple
        self.cluster: Any = SimpleNamespace(loop=loop, host=self, handlers={}, **peers)
        self.definitions: Any = SimpleNamespace(state=self)

    @property
    def groups(self) -> Any:
        """The groups of the host, and the queues of the definitions, by group."""
        named = {
            group: SimpleNamespace(vhost=vhost, store_of="")
            for group, (vhost, _, _) in self.queues.items()
        }

        class Both(dict[int, Any]):
            def __call__(self) -> list[int]:
                return list(self)

        return Both(named)

    def put(self, group: int, vhost: str, ready: int, leads: bool = True) -> None:
        self.queues[group] = vhost, ready, leads
        self.note(group)

    def end(self, group: int) -> None:
        self.queues.pop(group, None)
        self.note(group)

    def note(self, group: int) -> None:
        for changed in self.changed.values():
            changed.add(group)

    def take_changed(self, who: str) -> set[int] | None:
        found = self.changed.get(who)
        self.changed[who] = set()
        return found

    def is_leader(self, group: int) -> bool:
        if group == METADATA_GROUP:
            return True
        if group not in self.queues:
            raise UnknownGroup(group, "n1")
        return self.queues[group][2]

    def applied_index(self, group: int) -> int:
        return self.applied

    def state(self, group: int) -> Any:
        self.reads += 1
        none = SimpleNamespace(count=0)
        order = SimpleNamespace(count=self.queues[group][1])
        held = {"unacknowledged": 1, "claimed": 0, "consumer_count": 2}
        return SimpleNamespace(order=order, delayed=none, letters=none, **held)

    def run(self) -> None:
        while self.later:
            self.later.pop(0)()

    def wanted(self) -> dict[str, LedTotals]:
        found: dict[str, Counter[str]] = {}
        for vhost, ready, leads in self.queues.values():
            if leads:
                sums = found.setdefault(vhost, Counter())
                sums.update(ready=ready, queues=1)
        return {
            vhost: LedTotals(
                one["ready"] + one["queues"], one["ready"], one["queues"], 2 * one["queues"]
            )
            for vhost, one in found.items()
        }


def test_sums_are_those_of_reading_everything() -> None:
    node, chosen = Node(), random.Random(3)
    sums = VhostSums(node.cluster, node.definitions)
    for _ in range(400):
        group = chosen.randrange(1, 30)
        if chosen.random() < 0.7:
            vhost, leads = chosen.choice("abc"), chosen.random() < 0.7
            node.put(group, vhost, chosen.randrange(5), leads)
        else:
            node.end(group)
        told: list[Any] = []
        sums.read(told.append)
        assert told == [node.wanted()]


def test_only_queues_that_have_changed_are_read() -> None:
    node = Node()
    for group in range(1, 5_001):
        node.put(group, "/", 1)
    sums = VhostSums(node.cluster, node.definitions)
    sums.read(lambda found: None)
    node.run()
    assert node.reads == 5_000
    node.put(7, "/", 3)
    told: list[Any] = []
    sums.read(told.append)
    assert node.reads == 5_001 and told == [node.wanted()]


def test_a_reading_meanwhile_waits_for_the_whole_one() -> None:
    node = Node()
    for group in range(1, SUMMED_GROUPS + 10):
        node.put(group, "/", 1)
    sums, told = VhostSums(node.cluster, node.definitions), list[Any]()
    sums.read(told.append)
    node.put(1, "/", 100)
    sums.read(told.append)
    assert not told
    node.run()
    first, second = told
    assert second == node.wanted() and first["/"].messages == second["/"].messages - 99


def test_led_queues_are_counted_anew_when_they_change() -> None:
    node, replicated = Node(), {5, 6}
    queries = LeaderQueries(node.cluster, lambda group: group in replicated, tuple)
    node.cluster.loop.now_ms += UNCERTAIN_MS

    def leads() -> int:
        answers: list[Any] = []
        alone: Any = SimpleNamespace(ask=lambda peers, told, *asked: told({}))
        queries._survey = alone
        node.cluster.host.node_id = "n1"
        queries.ask_led(answers.append, brief=True)
        own = answers[0]["n1"]
        assert own.led == (METADATA_GROUP,)
        return int(own.leads)

    for group in range(5, 9):
        node.put(group, "/", 0)
    assert leads() == 2
    node.put(6, "/", 0, leads=False)
    node.end(7)
    assert leads() == 1
    replicated.add(8)
    assert leads() == 1, "nothing says so"
    node.applied += 1
    assert leads() == 2, "the definitions have changed"
