"""What a new leader tells its queue about the nodes that its consumers are on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from tests.broker.cluster import callbacks
from warren_broker.cluster.leader.leader_effects import LeaderEffects
from warren_broker.cluster.leader.set_aside import SetAsideCounts
from warren_machines.metadata.node_registry import is_over
from warren_machines.metadata.state import MetadataState
from warren_machines.queue.codec import decode_submission
from warren_machines.queue.commands import NodeBack, NodeDown, NodeSuspected, SubmissionReply
from warren_machines.queue.effects import Deliver, SetTimer
from warren_raft.errors import NotLeader
from warren_raft.machine import Applied, Meta

GROUP = 7


@dataclass
class Entry:
    node: str
    suspected_ms: int = 0
    incarnation: int = 0


@dataclass
class State:
    uplinks: dict[int, Entry]


@dataclass
class Host:
    """A host of one group; keeps what is proposed."""

    held: State
    silent: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    node_id: str = "a"
    boot_id: int = 1
    version: int = 1
    proposed: list[object] = field(default_factory=list)
    leads: bool = True
    hands_over: bool = False

    def suspected(self, node):
        return node in self.silent

    def gone(self, node):
        return node in self.ended

    def state(self, group):
        return self.held

    def is_leader(self, group):
        return self.leads

    def propose(self, group, data):
        if self.hands_over or not self.leads:
            raise NotLeader(group, self.node_id, None)
        self.proposed += decode_submission(data)[0].commands


@dataclass
class Loop:
    """Keeps what is to be called."""

    later: list[object] = field(default_factory=list)
    ends: list[object] = field(default_factory=list)
    turn: int = 1

    def at_turn_end(self, stage, call):
        self.ends.append(call)

    def end_turn(self):
        calls, self.ends = self.ends, []
        for call in calls:
            call()
        self.turn += 1

    def call_later(self, delay_ms, call):
        self.later.append(call)

    def pass_time(self):
        calls, self.later = self.later, []
        for call in calls:
            call()


class Cluster:
    """What `LeaderEffects` asks of its cluster; `alive` are the lives that are connected."""

    def __init__(self, uplinks, silent=(), alive=()):
        self.host = Host(State(uplinks), set(silent))
        self.alive = set(alive)
        self.loop = Loop()
        self.handlers = {}
        self.on_peer_up, self.on_peer_down = [], []
        self.set_aside = SetAsideCounts(self)

    def reply_to(self, group, index, reply):
        return reply.uplink in self.alive


def new_effects(cluster, is_over=lambda node, uplink, number: False):
    return LeaderEffects(cluster, replace(callbacks.LEADER, is_over=is_over))


def started(cluster):
    effects = new_effects(cluster, lambda node, uplink, number: uplink >= 100)
    effects.start(GROUP, ())
    return cluster.host.proposed


def test_a_suspicion_of_the_leader_before_ends_when_this_one_hears_the_node():
    assert started(Cluster({1: Entry("b", suspected_ms=5)})) == [NodeBack("b")]


def test_a_new_leader_that_was_suspected_itself_serves_its_own_consumers():
    assert started(Cluster({1: Entry("a", suspected_ms=5)})) == [NodeBack("a")]


def test_a_node_that_is_silent_here_too_stays_suspected():
    cluster = Cluster({1: Entry("b", suspected_ms=5)}, silent="b")
    assert started(cluster) == [NodeSuspected("b", True)]


def test_nothing_is_said_of_a_node_that_is_well():
    assert started(Cluster({1: Entry("b")})) == []


def test_a_life_that_has_ended_goes_whatever_else_is_known():
    assert started(Cluster({100: Entry("b", suspected_ms=5)}, silent="b")) == [NodeDown(100, "b")]


@pytest.mark.parametrize("uplink, expected", [(100, [NodeDown(100, "b")]), (1, [])])
def test_the_first_submission_of_a_life_that_has_ended_does_not_revive_it(uplink, expected):
    """It was under way while the node restarted: the queue knew of no life that could be ended."""
    cluster = Cluster({})
    effects = new_effects(cluster, lambda node, life, number: life >= 100)
    effects.start(GROUP, ())
    cluster.host.held.uplinks[uplink] = Entry("b")
    reply = SubmissionReply(uplink, 1, ())
    effects.applied(GROUP, Meta(1, 1, 0), b"", Applied(reply, ()))
    assert cluster.host.proposed == expected


def handing_over():
    """Start a leader that hands over: its command NodeDown(5) was refused for that reason."""
    cluster = Cluster({})
    effects = new_effects(cluster)
    effects.start(GROUP, ())
    cluster.host.hands_over = True
    effects.command(GROUP, NodeDown(5))
    return cluster, effects


def test_effects_refused_during_a_failed_transfer_are_proposed_again():
    cluster, effects = handing_over()
    effects.command(GROUP, NodeSuspected("b"))
    effects.command(GROUP, NodeSuspected("b"))
    effects.command(GROUP, NodeBack("b"))
    cluster.loop.pass_time()
    assert cluster.host.proposed == []
    assert GROUP in effects.led
    cluster.host.hands_over = False
    cluster.loop.pass_time()
    assert cluster.host.proposed == [NodeDown(5), NodeSuspected("b"), NodeBack("b")]
    cluster.loop.pass_time()
    assert len(cluster.host.proposed) == 3


def test_what_waits_is_dropped_with_the_leadership():
    cluster, effects = handing_over()
    cluster.host.hands_over = cluster.host.leads = False
    effects.stop(GROUP)
    cluster.loop.pass_time()
    assert cluster.host.proposed == []


def test_lives_that_have_ended_are_found_when_the_definitions_come_as_a_snapshot():
    cluster = Cluster({1: Entry("b"), 100: Entry("b")})
    over = []
    effects = new_effects(cluster, lambda node, uplink, number: uplink in over)
    effects.start(GROUP, ())
    assert cluster.host.proposed == []
    over.append(100)
    effects.definitions_replaced()
    assert cluster.host.proposed == [NodeDown(100, "b")]


@pytest.mark.parametrize("silent, expected", [("b", [NodeSuspected("b", True)]), ("", [])])
def test_a_node_that_falls_silent_before_its_first_submission_is_applied_is_suspected(
    silent, expected
):
    cluster = Cluster({}, silent=silent, alive=[1])
    effects = new_effects(cluster)
    effects.start(GROUP, ())
    cluster.host.held.uplinks[1] = Entry("b")
    effects.applied(GROUP, Meta(1, 1, 0), b"", Applied(SubmissionReply(1, 1, ()), ()))
    effects.applied(GROUP, Meta(2, 1, 0), b"", Applied(SubmissionReply(1, 2, ()), ()))
    assert cluster.host.proposed == expected


def test_a_leader_that_comes_late_ends_a_life_that_many_others_have_followed():
    """The definitions know the node's present life only; seventeen came in between."""
    state = MetadataState(lives={"b": 18}, numbers={"b": 118})
    cluster = Cluster({1: Entry("b", incarnation=101), 18: Entry("b", incarnation=118)})
    effects = new_effects(
        cluster, lambda node, uplink, number: is_over(state, 120, node, uplink, number)
    )
    effects.start(GROUP, ())
    assert cluster.host.proposed == [NodeDown(1, "b", 101)]


def test_an_ended_incarnation_is_named_by_number_and_ignored():
    cluster = Cluster({5: Entry("b", incarnation=40), 6: Entry("c", incarnation=41)})
    effects = new_effects(cluster)
    effects.start(GROUP, ())
    effects.node_down(5)
    assert cluster.host.proposed == [NodeDown(5, "b", 40)]


def test_a_node_that_was_renewed_ends_its_older_lives_only():
    cluster = Cluster({5: Entry("b", incarnation=40), 7: Entry("b", incarnation=50), 6: Entry("c")})
    over = []
    effects = new_effects(cluster, lambda node, uplink, number: uplink in over)
    effects.start(GROUP, ())
    over += [5, 6]
    effects.node_renewed("b")
    assert cluster.host.proposed == [NodeDown(5, "b", 40)]


def test_a_new_life_that_submits_ends_the_older_ones_before_the_definitions_say_so():
    cluster = Cluster({5: Entry("b", incarnation=40), 4: Entry("b"), 6: Entry("c")}, alive=[7])
    effects = new_effects(cluster)
    effects.start(GROUP, ())
    cluster.host.held.uplinks[7] = Entry("b", incarnation=50)
    effects.applied(GROUP, Meta(1, 1, 0), b"", Applied(SubmissionReply(7, 1, ()), ()))
    assert cluster.host.proposed == [NodeDown(4, "b"), NodeDown(5, "b", 40)]


def test_consumers_of_a_node_whose_process_is_gone_hold_nothing_more():
    cluster = Cluster({1: Entry("b"), 2: Entry("c")})
    effects = new_effects(cluster)
    effects.start(GROUP, ())
    effects.node_suspected("b")
    cluster.host.ended.add("b")
    effects.node_suspected("b")
    assert cluster.host.proposed == [NodeSuspected("b", True), NodeSuspected("b", True, gone=True)]


class Told:
    """Effects of a queue of which uplink 1 is this node's; notes what is done, in order."""

    def __init__(self):
        self.cluster = Cluster({1: Entry("a"), 2: Entry("b")}, alive=[1, 2])
        self.done = []
        self.cluster.reply_to = self._answer
        self.effects = new_effects(self.cluster)
        self.effects._run[Deliver] = lambda group, effect: self.done.append(
            ("give", effect.consumer)
        )
        self.effects._run[SetTimer] = lambda group, effect: self.done.append(("arm", effect.at_ms))
        self.effects.start(GROUP, ())

    def _answer(self, group, index, reply):
        self.done.append(("answer", index))
        return True

    def apply(self, index, *effects, uplink=1):
        reply = SubmissionReply(uplink, index, ())
        self.effects.applied(GROUP, Meta(index, 1, 0), b"", Applied(reply, effects))


def test_an_answer_leaves_before_the_deliveries_of_its_entry():
    told = Told()
    told.apply(5, Deliver(1, 10, ()), SetTimer(99))
    assert told.done == [("answer", 5)]
    told.cluster.loop.end_turn()
    assert told.done == [("answer", 5), ("give", 10), ("arm", 99)]
    told.apply(6, Deliver(2, 11, ()))
    assert told.done[3:] == [("answer", 6)]
    told.cluster.loop.end_turn()
    assert told.done[3:] == [("answer", 6), ("give", 11)]


def test_deliveries_come_before_the_next_answer():
    """Which may be that of the consumer's cancellation: after it nothing may come."""
    told = Told()
    for index in (5, 6, 7):
        told.apply(index, Deliver(1, index + 5, ()))
    in_order = [("answer", 5), ("give", 10), ("answer", 6), ("give", 11), ("answer", 7)]
    assert told.done == [*in_order, ("give", 12)]
    told.cluster.loop.end_turn()
    assert told.done == [*in_order, ("give", 12)]


def test_a_node_gets_its_answer_and_its_deliveries_together():
    told = Told()
    told.apply(5, Deliver(2, 10, ()), uplink=2)
    assert told.done == [("answer", 5), ("give", 10)]


def test_a_queue_that_is_led_no_more_delivers_nothing():
    """Perhaps it is deleted: what it would deliver cannot be read any more."""
    told = Told()
    told.apply(5, Deliver(1, 10, ()))
    told.effects.stop(GROUP)
    told.cluster.loop.end_turn()
    assert told.done == [("answer", 5)]


def test_what_a_lost_leadership_put_off_is_not_done_by_the_next_one():
    told = Told()
    told.apply(5, Deliver(1, 10, ()))
    told.effects.stop(GROUP)
    told.effects.start(GROUP, ())
    told.cluster.loop.end_turn()
    assert told.done == [("answer", 5)]
