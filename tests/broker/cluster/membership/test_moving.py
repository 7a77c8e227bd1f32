"""A learner that receives nothing for long does not hold up what other groups have to do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.cluster.membership import reconciler
from warren_broker.cluster.membership.reconciler import STALLED_MS, Reconciler
from warren_machines.metadata.commands import Barrier
from warren_raft.core.membership import AddLearner
from warren_raft.types import METADATA_GROUP, Membership
from warren_wire import errors

HANGS, COMES = "n4", "n5"


class Groups:
    """A leader's host, cluster and definitions: two queues are to move, and a node is to join."""

    def __init__(self) -> None:
        self.learners: dict[int, dict[str, int]] = {METADATA_GROUP: {}, 1: {HANGS: 5}, 2: {}}
        self.added: list[tuple[int, str]] = []
        self.timers: list[Callable[[], None]] = []
        self.asked: list[str] = []
        self.behind = False
        self.barriers: list[Callable[[object], None]] = []
        self.replays = False
        self.loop = SimpleNamespace(
            now_ms=1000,
            call_soon=lambda call: None,
            call_later=lambda ms, call: self.timers.append(call),
        )
        self.host: Any = SimpleNamespace(
            node_id="n1",
            is_leader=lambda group: True,
            members=self.members,
            member_states=self.states,
            connected=lambda node: True,
            change_members=self.change,
            applied_index=lambda group: 100,
        )
        queues = {
            group: SimpleNamespace(
                name=f"q{group}", vhost="/", nodes=nodes, leaving=(), replicated=True
            )
            for group, nodes in ((1, ("n1", "n2", "n3", HANGS)), (2, ("n1", "n2", "n3", COMES)))
        }
        names = ("n1", "n2", "n3", COMES)
        self.definitions: Any = SimpleNamespace(
            on_members=[],
            on_nodes=[],
            when_seen_by=self.ask,
            submit=self.submit,
            state=SimpleNamespace(
                groups=queues, nodes={name: SimpleNamespace(forgetting=False) for name in names}
            ),
        )
        self.cluster: Any = SimpleNamespace(
            loop=self.loop, host=self.host, on_led=[], on_members=[], on_peer_up=[]
        )
        self.reconciler = Reconciler(self.cluster, self.definitions)

    def members(self, group: int) -> Membership:
        return Membership(("n1", "n2", "n3"), tuple(self.learners[group]))

    def states(self, group: int) -> list[Any]:
        def state(node: str, voter: bool, match: int) -> Any:
            return SimpleNamespace(
                node=node, voter=voter, match=match, suspected=False, lost=False, changing=False
            )

        voters = [state(node, True, 9) for node in ("n1", "n2", "n3")]
        return voters + [state(*each) for each in self.learner_states(group)]

    def learner_states(self, group: int) -> list[tuple[str, bool, int]]:
        return [(node, False, match) for node, match in self.learners[group].items()]

    def change(self, group: int, change: AddLearner) -> int:
        self.added.append((group, change.node))
        self.learners[group][change.node] = 0
        return 50

    def submit(self, command: object, done: Callable[[object], None]) -> None:
        """Carry a barrier out, unless this node's definitions are behind."""
        assert isinstance(command, Barrier)
        self.barriers.append(done)
        if not self.replays:
            done(None)

    def ask(self, node: str, call: Callable[[int], None]) -> None:
        """Have the node say what it has applied of the definitions: all, unless it is behind."""
        self.asked.append(node)
        if not self.behind:
            call(100)

    def tick(self, ms: int) -> None:
        """Let time pass, and the periodic check run."""
        self.loop.now_ms += ms
        timers, self.timers[:] = list(self.timers), []
        for call in timers:
            call()


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    monkeypatch.setattr(reconciler, "MOVING_MAX", 1)
    groups = Groups()
    groups.reconciler.look(1)
    groups.reconciler.look(2)
    assert groups.added == [], "group 1 moves, group 2 waits for its turn"
    return groups


def test_a_node_joins_while_every_turn_is_taken(groups: Groups) -> None:
    groups.reconciler.look(METADATA_GROUP)
    assert groups.added == [(METADATA_GROUP, COMES)]


def test_the_turn_of_a_learner_whose_disk_hangs_goes_to_the_next_group(groups: Groups) -> None:
    groups.tick(STALLED_MS - 1)
    assert groups.added == []
    groups.tick(1)
    assert groups.added == [(2, COMES)]
    groups.tick(STALLED_MS)
    assert groups.added == [(2, COMES)] and groups.reconciler.unsettled() == (1, 2)


def test_a_learner_that_makes_progress_keeps_its_turn(groups: Groups) -> None:
    for match in range(6, 10):
        groups.tick(STALLED_MS - 1)
        groups.learners[1][HANGS] = match
        groups.tick(1)
    assert groups.added == []


def test_a_node_is_added_when_it_knows() -> None:
    """It could still delete, by older definitions, the log with which it has caught up."""
    groups = Groups()
    groups.behind = True
    groups.reconciler.look(2)
    assert groups.added == [] and groups.asked == [COMES]
    groups.reconciler._told_seen(COMES, 0)  # it has not answered
    groups.tick(reconciler.RECONCILE_INTERVAL_MS)
    assert groups.added == [] and groups.asked == [COMES, COMES]
    groups.reconciler._told_seen(COMES, 99)  # as of before
    assert groups.added == [] and groups.asked == [COMES, COMES, COMES]
    groups.reconciler._told_seen(COMES, 100)
    assert groups.added == [(2, COMES)]


def test_a_node_wanted_again_is_asked_again() -> None:
    groups = Groups()
    groups.reconciler.look(2)
    assert groups.added == [(2, COMES)] and groups.asked == [COMES]
    queues = groups.definitions.state.groups
    del groups.learners[2][COMES]
    queues[2] = SimpleNamespace(**vars(queues[2]))  # removed and added since
    groups.behind = True
    groups.host.applied_index = lambda group: 200
    groups.reconciler.look(2)
    assert groups.added == [(2, COMES)] and groups.asked == [COMES, COMES], "not added"
    groups.reconciler._told_seen(COMES, 200)
    groups.tick(reconciler.RECONCILE_INTERVAL_MS)
    assert groups.added == [(2, COMES), (2, COMES)]


def test_a_leader_adds_nobody_by_what_it_replays() -> None:
    """It may have removed that node itself, before it was started again."""
    groups = Groups()
    groups.replays = True
    groups.reconciler.look(2)
    assert groups.added == [] and len(groups.barriers) == 1
    groups.barriers[0](errors.Unavailable("no leader"))
    groups.tick(reconciler.RECONCILE_INTERVAL_MS)
    assert groups.added == [] and len(groups.barriers) == 2
    groups.reconciler._led(2)  # of a later term: what was asked before it says nothing
    groups.barriers[1](None)
    assert groups.added == [] and len(groups.barriers) == 3
    groups.barriers[2](None)
    assert groups.added == [(2, COMES)]
