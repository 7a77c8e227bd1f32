"""What a new leader tells its queue about the nodes that its consumers are on."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from warren_broker.cluster.leading import Leading
from warren_broker.queue.codec import decode_submission
from warren_broker.queue.commands import (
    NodeBack,
    NodeDown,
    NodeSuspected,
    SubmissionReply,
)
from warren_raft.errors import NotLeader
from warren_raft.machine import Applied, Meta

GROUP = 7


@dataclass
class Entry:
    node: str
    suspected_ms: int = 0


@dataclass
class State:
    uplinks: dict[int, Entry]


@dataclass
class Host:
    """A host of one group; keeps what is proposed."""

    held: State
    silent: set[str] = field(default_factory=set)
    node_id: str = "a"
    proposed: list[object] = field(default_factory=list)
    leads: bool = True
    hands_over: bool = False

    def suspected(self, node):
        return node in self.silent

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

    def call_later(self, delay_ms, call):
        self.later.append(call)

    def pass_time(self):
        calls, self.later = self.later, []
        for call in calls:
            call()


class Cluster:
    """What `Leading` asks of its cluster; `alive` are the lives that are connected."""

    def __init__(self, uplinks, silent=(), alive=()):
        self.host = Host(State(uplinks), set(silent))
        self.alive = set(alive)
        self.loop = Loop()

    def reply_to(self, group, index, reply):
        return reply.uplink in self.alive


def started(cluster):
    leading = Leading(cluster)
    leading.is_retired = lambda node, uplink: uplink >= 100
    leading.start(GROUP, ())
    return cluster.host.proposed


def test_a_suspicion_of_the_leader_before_ends_when_this_one_hears_the_node():
    assert started(Cluster({1: Entry("b", suspected_ms=5)})) == [NodeBack("b")]


def test_a_new_leader_that_was_suspected_itself_serves_its_own_consumers():
    assert started(Cluster({1: Entry("a", suspected_ms=5)})) == [NodeBack("a")]


def test_a_node_that_is_silent_here_too_stays_suspected():
    assert started(Cluster({1: Entry("b", suspected_ms=5)}, silent="b")) == [NodeSuspected("b")]


def test_nothing_is_said_of_a_node_that_is_well():
    assert started(Cluster({1: Entry("b")})) == []


def test_a_life_that_has_ended_goes_whatever_else_is_known():
    assert started(Cluster({100: Entry("b", suspected_ms=5)}, silent="b")) == [NodeDown(100)]


@pytest.mark.parametrize("uplink, expected", [(100, [NodeDown(100)]), (1, [])])
def test_the_first_submission_of_a_life_that_has_ended_does_not_revive_it(uplink, expected):
    """It was under way while the node restarted: the queue knew of no life that could be ended."""
    cluster = Cluster({})
    leading = Leading(cluster)
    leading.is_retired = lambda node, life: life >= 100
    leading.start(GROUP, ())
    cluster.host.held.uplinks[uplink] = Entry("b")
    reply = SubmissionReply(uplink, 1, ())
    leading.applied(GROUP, Meta(1, 1, 0), b"", Applied(reply, ()))
    assert cluster.host.proposed == expected


def test_what_is_refused_while_the_leadership_is_handed_over_is_said_when_it_was_not_taken():
    cluster = Cluster({})
    leading = Leading(cluster)
    leading.start(GROUP, ())
    cluster.host.hands_over = True
    leading.command(GROUP, NodeDown(5))
    leading.command(GROUP, NodeSuspected("b"))
    leading.command(GROUP, NodeSuspected("b"))
    leading.command(GROUP, NodeBack("b"))
    cluster.loop.pass_time()
    assert cluster.host.proposed == []
    assert GROUP in leading.led
    cluster.host.hands_over = False
    cluster.loop.pass_time()
    assert cluster.host.proposed == [NodeDown(5), NodeSuspected("b"), NodeBack("b")]
    cluster.loop.pass_time()
    assert len(cluster.host.proposed) == 3


def test_what_waits_is_dropped_with_the_leadership():
    cluster = Cluster({})
    leading = Leading(cluster)
    leading.start(GROUP, ())
    cluster.host.hands_over = True
    leading.command(GROUP, NodeDown(5))
    cluster.host.hands_over = cluster.host.leads = False
    leading.stop(GROUP)
    cluster.loop.pass_time()
    assert cluster.host.proposed == []


def test_lives_that_have_ended_are_found_when_the_definitions_come_as_a_snapshot():
    cluster = Cluster({1: Entry("b"), 100: Entry("b")})
    leading = Leading(cluster)
    leading.start(GROUP, ())
    assert cluster.host.proposed == []
    leading.is_retired = lambda node, uplink: uplink >= 100
    leading.definitions_replaced()
    assert cluster.host.proposed == [NodeDown(100)]


@pytest.mark.parametrize("silent, expected", [("b", [NodeSuspected("b")]), ("", [])])
def test_a_node_that_falls_silent_before_its_first_submission_is_applied_is_suspected(
    silent, expected
):
    cluster = Cluster({}, silent=silent, alive=[1])
    leading = Leading(cluster)
    leading.start(GROUP, ())
    cluster.host.held.uplinks[1] = Entry("b")
    leading.applied(GROUP, Meta(1, 1, 0), b"", Applied(SubmissionReply(1, 1, ()), ()))
    leading.applied(GROUP, Meta(2, 1, 0), b"", Applied(SubmissionReply(1, 2, ()), ()))
    assert cluster.host.proposed == expected
