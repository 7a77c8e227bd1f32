"""The client's calls about nodes with members of queues, against a node that plays a script."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from python.fake_broker import FakeCluster, FakeNode
from tests.patience import PROMPTLY_S
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import (
    AccessRefused,
    Conflict,
    NoNodeReached,
    NotFound,
    PeerError,
    StillUnderWay,
    Unavailable,
    UsageError,
)
from warren_wire import errors
from warren_wire.admin import members as m
from warren_wire.admin import members as v
from warren_wire.admin import overview
from warren_wire.admin.requests import Listed

RUNNING = v.MemberInfo("w-1", "leader", "running", True, 90, 0)
LEARNING = v.MemberInfo("w-4", "learner", "snapshot", False, 5, 85, 1_000, 2_500)
VOTING = v.MemberInfo("w-4", "follower", "running", True, 90, 0)


def members(*found: v.MemberInfo, settled: bool, leader: str | None = "w-1") -> v.QueueMembers:
    return v.QueueMembers("/", "q", "quorum", leader, 3, 90, 90, found, ("w-1", "w-4"), settled)


def node(name: str = "w-4", **changed: object) -> v.NodeInfo:
    fields = {
        "name": name,
        "address": "h:1",
        "running": True,
        "drained": False,
        "forgetting": False,
        "metadata": "follower",
        "members": 3,
        "leaders": 0,
        "local_queues": 0,
        "moving": 0,
    }
    return v.NodeInfo(**{**fields, **changed})


@pytest.fixture
def world() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def admin(world: FakeCluster) -> Iterator[Admin]:
    made = FakeNode(world, seed=1)
    with Connection(f"amqp://guest:guest@{made.host}/?request_timeout=60") as connection:
        yield Admin(connection)
    made.kill()


def test_values_arrive_as_they_were_said(admin: Admin, world: FakeCluster) -> None:
    status = members(RUNNING, LEARNING, settled=False)
    resizing = v.Resizing(
        "w/4", (v.Resized("/", "q", 4), v.Resized("a", "r", 3, "is down")), count=2, failed=1
    )
    rebalanced = v.Rebalanced(
        (v.LeaderMove("/", "q", "w-1", "w-2"),), (v.NodeLeaders("w-1", 1),), count=1
    )
    world.script = {
        m.GetMembersRequest: [status],
        m.AddMemberRequest: [v.MembersChanged("/", "q", ("w-1", "w-4"), True)],
        m.DeleteMemberRequest: [v.MembersChanged("/", "q", ("w-1",), True)],
        m.TransferLeadershipRequest: [v.LeaderMoved("/", "q", "w-4", True)],
        m.GrowNodeRequest: [resizing],
        m.ShrinkNodeRequest: [resizing],
        m.RebalanceQueuesRequest: [rebalanced],
        m.ListNodesRequest: [Listed((node("w-1"), node("w-4")))],
        m.GetNodeRequest: [v.NodeStatus(node(), (v.Moving("/", "q", LEARNING),), False)],
        m.DrainNodeRequest: [v.NodeStatus(node(drained=True), (), True)],
        m.ReviveNodeRequest: [v.NodeStatus(node(), (), True)],
        m.ForgetNodeRequest: [v.Forgetting("w-4", 3, (("/", "c"),))],
    }
    assert admin.members.get("a/ü") == status
    assert admin.members.add("q", "w-4").wanted == ("w-1", "w-4")
    assert admin.members.delete("q", "w-4").wanted == ("w-1",)
    assert admin.members.transfer("q", "w-4") == v.LeaderMoved("/", "q", "w-4", True)
    assert admin.nodes.grow("w/4", "even", queue_pattern="^o") == resizing
    assert admin.nodes.shrink("w/4", errors_only=True) == resizing
    assert admin.members.rebalance(vhost_pattern="^p") == rebalanced
    assert [each.name for each in admin.nodes.list()] == ["w-1", "w-4"]
    assert admin.nodes.get("w-4").moving[0].member == LEARNING
    assert admin.nodes.drain("w-4").node.drained
    assert admin.nodes.revive("w-4").done
    assert admin.nodes.forget("w-4").lost == (("/", "c"),)
    asked = {type(each): each for each in world.seen}
    assert asked[m.GetMembersRequest].queue == "a/ü"
    grown = asked[m.GrowNodeRequest]
    assert (grown.node, grown.strategy, grown.vhost_pattern, grown.queue_pattern) == (
        "w/4",
        "even",
        ".*",
        "^o",
    )
    assert asked[m.ShrinkNodeRequest].errors_only
    assert asked[m.RebalanceQueuesRequest].vhost_pattern == "^p"


def test_waiting_ends_when_the_members_are_the_wanted_ones(
    admin: Admin, world: FakeCluster
) -> None:
    world.script = {
        m.AddMemberRequest: [v.MembersChanged("/", "q", ("w-1", "w-4"), True)],
        m.GetMembersRequest: [
            members(RUNNING, LEARNING, settled=False),
            errors.Unavailable("nobody leads it just now"),  # asked again, not given up
            members(RUNNING, VOTING, settled=True),
        ],
    }
    seen: list[v.QueueMembers] = []
    admin.waiting(20, seen.append).members.add("q", "w-4")
    assert [each.settled for each in seen] == [False, True]
    assert seen[0].members[1].sent_bytes == 1_000


def test_what_takes_too_long_says_what_is_missing_and_goes_on(
    admin: Admin, world: FakeCluster
) -> None:
    world.script = {
        m.AddMemberRequest: [v.MembersChanged("/", "q", ("w-1", "w-4"), True)],
        m.GetMembersRequest: [members(RUNNING, LEARNING, settled=False)],
    }
    with pytest.raises(StillUnderWay) as caught:
        admin.waiting(0.3).members.add("q", "w-4")
    assert "(1,000 of 2,500 bytes); it continues in the background" in str(caught.value)
    assert "w-1" not in str(caught.value)
    world.script[m.GetMembersRequest] = [members(RUNNING, settled=False, leader=None)]
    with pytest.raises(StillUnderWay, match="no leader"):
        admin.waiting(0.1).members.add("q", "w-4")
    world.script[m.DrainNodeRequest] = world.script[m.GetNodeRequest] = [
        v.NodeStatus(node(drained=True, leaders=7), (), False)
    ]
    with pytest.raises(StillUnderWay, match="it leads 7 queues"):
        admin.waiting(0.1).nodes.drain("w-4")


def test_when_nobody_can_say_how_far_it_is_it_is_still_under_way(
    admin: Admin, world: FakeCluster
) -> None:
    world.script = {
        m.AddMemberRequest: [v.MembersChanged("/", "q", ("w-1", "w-4"), True)],
        m.GetMembersRequest: [errors.Unavailable("most nodes are out of reach")],
    }
    with pytest.raises(StillUnderWay, match="out of reach.*continues in the background"):
        admin.waiting(0.2).members.add("q", "w-4")


def test_draining_the_only_node_one_knows_says_so(world: FakeCluster) -> None:
    made = FakeNode(world, seed=1)
    world.script = {m.DrainNodeRequest: [errors.Unavailable("it is going")]}
    with Connection(f"amqp://guest:guest@{made.host}/?request_timeout=0.5") as connection:
        with pytest.raises(Unavailable, match="'w-4' may be in maintenance.*serves no clients"):
            Admin(connection).nodes.drain("w-4")
        world.script = {
            m.DrainNodeRequest: [v.NodeStatus(node(drained=True), (), False)],
            m.GetNodeRequest: [errors.Unavailable("it is gone")],
        }
        for wait in (0.2, 600):  # it waited that long for a node that serves no clients
            with pytest.raises(Unavailable, match="'w-4' is in maintenance now.*no clients"):
                Admin(connection).waiting(wait).nodes.drain("w-4")
    made.kill()
    with Connection(f"amqp://guest:guest@{made.host}/?request_timeout=0.5") as connection:
        with pytest.raises(NoNodeReached, match="gave up after 0.5 s: cannot connect") as caught:
            Admin(connection).nodes.drain("w-4")
        assert "maintenance" not in str(caught.value)


def test_a_wait_that_cannot_be_begins_nothing(admin: Admin, world: FakeCluster) -> None:
    for wait in (0, -1, float("nan")):
        with pytest.raises(UsageError, match="more than 0"):
            admin.waiting(wait).nodes.grow("w-4", "all")
    assert not any(isinstance(each, m.GrowNodeRequest) for each in world.seen)
    with pytest.raises(UsageError, match="node's name"):
        admin.nodes.drain("")


def test_a_node_is_forgotten_when_it_is_shown_no_longer(admin: Admin, world: FakeCluster) -> None:
    leaving = v.NodeStatus(node(forgetting=True, moving=2), (), False)
    world.script = {
        m.ForgetNodeRequest: [v.Forgetting("w-4", 3, ())],
        m.GetNodeRequest: [leaving, errors.NotFound("no node 'w-4'")],
    }
    seen: list[v.NodeStatus] = []
    assert admin.waiting(20, seen.append).nodes.forget("w-4").queues == 3
    assert seen == [leaving]


def test_rebalancing_asks_until_nothing_is_left_to_move(admin: Admin, world: FakeCluster) -> None:
    moves = (v.LeaderMove("/", "q", "w-1", "w-2"), v.LeaderMove("/", "r", "w-1", "w-3"))
    world.script = {
        m.RebalanceQueuesRequest: [
            v.Rebalanced(moves, ()),
            v.Rebalanced(moves[1:], ()),
            errors.PreconditionFailed("1 leadership is being handed over already"),
            v.Rebalanced((), ()),
        ],
    }
    left: list[int] = []
    began = admin.waiting(20, lambda seen: left.append(len(seen.moves))).members.rebalance()
    assert (began.moves, left) == (moves, [1, 1, 0])


def test_a_critical_node_is_an_answer_and_no_reason_to_ask_elsewhere(
    admin: Admin, world: FakeCluster
) -> None:
    critical = v.QuorumCritical("w-4", True, (v.QueueName("/", "q"),), 5)
    world.script = {m.CheckQuorumCriticalRequest: [m.Criticality(critical)]}
    began = time.monotonic()
    assert admin.nodes.quorum_critical("w-4") == critical and not critical.safe
    assert time.monotonic() - began < PROMPTLY_S, "it was asked again and again"
    world.script[m.CheckQuorumCriticalRequest] = [
        errors.Unavailable("no majority"),
        m.Criticality(v.QuorumCritical("w-4", False, (), 0)),
    ]
    assert admin.nodes.quorum_critical().safe, "a node that cannot say is no answer"


def test_refusals_are_told_with_their_reason(admin: Admin, world: FakeCluster) -> None:
    world.refuse[m.DeleteMemberRequest] = [errors.PreconditionFailed("the majority would be lost")]
    with pytest.raises(Conflict, match="majority would be lost"):
        admin.waiting(5).members.delete("q", "w-1")
    world.refuse[m.GrowNodeRequest] = [errors.NotFound("no node 'w-9'")]
    with pytest.raises(NotFound, match="w-9"):
        admin.nodes.grow("w-9", "all")
    world.refuse[m.ListNodesRequest] = [errors.AccessRefused("the tag 'monitoring' is needed")]
    with pytest.raises(AccessRefused, match="monitoring"):
        admin.nodes.list()


def test_an_answer_of_another_version_is_told_as_such(admin: Admin, world: FakeCluster) -> None:
    world.script = {m.ListNodesRequest: [overview.Overview("fake-1", "fake", "0", ())]}
    with pytest.raises(PeerError, match="client of the cluster's version"):
        admin.nodes.list()
