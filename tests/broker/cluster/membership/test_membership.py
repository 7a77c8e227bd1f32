"""Members and nodes come and go; the node that acts may die before each of its steps."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest

from broker.cluster.membership.clusters import (
    QUORUM,
    ask,
    begun,
    declaration,
    declare,
    settled,
    wanted,
    with_a_death_at_every_step,
)
from broker.cluster.universe import Universe
from warren_wire import errors
from warren_wire.admin import members as values

# ------------------------------------------------------------------ members


def test_a_member_is_added(universe: Universe) -> None:
    universe.start("d")
    universe.until(universe.ready, "d has joined")
    assert universe.logs[0].membership().voters == ("a", "b", "c", "d")
    answer = ask(universe, lambda m, done: m.add_member("/", "q", "d", done))
    assert answer == values.MembersChanged("/", "q", ("a", "b", "c", "d"), True)
    universe.until(lambda: settled(universe, "abcd"), "d carries q")
    again = ask(universe, lambda m, done: m.add_member("/", "q", "d", done))
    assert again == values.MembersChanged("/", "q", ("a", "b", "c", "d"), False)


def test_a_removal_says_what_it_costs_where_no_member_may_fail_any_more() -> None:
    universe = begun("abcd")
    ask(universe, lambda m, done: m.add_member("/", "q", "d", done))
    universe.until(lambda: settled(universe, "abcd"), "d carries q")
    remarks = []
    for node, left in (("a", "bcd"), ("b", "cd"), ("c", "d")):
        answer = ask(universe, lambda m, done, n=node: m.delete_member("/", "q", n, done))
        assert answer.wanted == tuple(left)
        universe.until(lambda carriers=left: settled(universe, carriers), f"{left} carry q")
        remarks.append(answer.remark)
    three, two, one = remarks
    assert not three
    assert "with 2 members, on c and d, the queue stops while either is down" in two
    assert "its messages are lost with that disk" in one


def test_adding_survives_a_death_at_every_step() -> None:
    with_a_death_at_every_step(
        lambda: begun("abcd"),
        lambda u: ask(u, lambda m, done: m.add_member("/", "q", "d", done)),
        lambda u: settled(u, "abcd"),
        at_least=4,
    )


def test_replacing_the_leader_survives_a_death_at_every_step() -> None:
    def ordered(universe: Universe) -> None:
        ask(universe, lambda m, done: m.add_member("/", "q", "d", done))
        ask(universe, lambda m, done: m.delete_member("/", "q", "a", done))

    with_a_death_at_every_step(
        lambda: begun("abcd"), ordered, lambda u: settled(u, "bcd"), at_least=7
    )


def test_one_grows_to_three_and_shrinks_back_with_deaths() -> None:
    def grow(universe: Universe) -> None:
        for node in "bc":
            ask(universe, lambda m, done, n=node: m.add_member("/", "q", n, done))

    def shrink(universe: Universe) -> None:
        for node in "ab":
            while isinstance(
                ask(universe, lambda m, done, n=node: m.delete_member("/", "q", n, done)),
                errors.PreconditionFailed,
            ):
                universe.step()  # the one that died is not there yet: two are needed

    with_a_death_at_every_step(
        lambda: begun(queue=("a",)), grow, lambda u: settled(u, "abc"), at_least=5
    )
    with_a_death_at_every_step(begun, shrink, lambda u: settled(u, "c"), at_least=5)


def test_a_change_of_mind_on_the_way(universe: Universe) -> None:
    universe.start("d")
    universe.until(universe.ready, "d has joined")
    for steps in range(12):
        ask(universe, lambda m, done: m.add_member("/", "q", "d", done))
        for _ in range(steps):
            universe.step()
        ask(universe, lambda m, done: m.delete_member("/", "q", "d", done))
        for _ in range(11 - steps):
            universe.step()
        ask(universe, lambda m, done: m.add_member("/", "q", "d", done))
        universe.until(lambda: settled(universe, "abcd"), "the last word counts")
        ask(universe, lambda m, done: m.delete_member("/", "q", "d", done))
        universe.until(lambda: settled(universe, "abc"), "the last word counts")


def test_a_queue_that_is_deleted_on_the_way_leaves_nothing(universe: Universe) -> None:
    universe.start("d")
    universe.until(universe.ready, "d has joined")
    for steps in range(0, 14, 2):
        made = declare(universe, "r").queue
        ask(universe, lambda m, done: m.add_member("/", "r", "d", done))
        for _ in range(steps):
            universe.step()
        universe.call(
            "b", lambda broker, done: broker.delete_queue("/", "r", False, False, 0, done)
        )
        universe.until(
            lambda g=made.group: all(g not in disk for disk in universe.disks.values()),
            "it is gone everywhere",
        )


@pytest.mark.specification("quorum-queues: if a RabbitMQ node is unavailable during a declaration")
def test_a_member_whose_node_is_away_is_added_when_it_comes(universe: Universe) -> None:
    universe.start("d")
    universe.until(universe.ready, "d has joined")
    answers: list[Any] = []
    broker = universe.running["a"].broker
    broker.membership.add_member("/", "q", "d", answers.append)
    universe.until(lambda: wanted(universe) == ("a", "b", "c", "d"), "it is meant")
    universe.kill("d")
    for _ in range(50):
        universe.step()
    universe.start("d")
    universe.until(lambda: settled(universe, "abcd"), "d carries q")


def test_a_replay_makes_no_founder_of_what_had_left(universe: Universe) -> None:
    """1. c is a founder of q, and holds it.  2. It leaves, and forgets.  3. It is wanted again, and
    dies before it has begun.  4. It starts: its replay of the definitions passes through 1."""
    ask(universe, lambda m, done: m.delete_member("/", "q", "c", done))
    universe.until(lambda: settled(universe, "ab"), "c has left")
    universe.running["a"].broker.membership.add_member("/", "q", "c", lambda answer: None)
    universe.until(lambda: wanted(universe) == ("a", "b", "c"), "c is wanted")
    universe.kill("c")
    universe.start("c")  # the universe raises Violation if it founds
    universe.until(lambda: settled(universe, "abc"), "c carries q again")


def test_a_replay_ends_nothing_that_came_later(universe: Universe) -> None:
    """All start at once: the time before d carried q must not cost what it carries."""
    universe.start("d")
    universe.until(universe.ready, "d has joined")
    ask(universe, lambda m, done: m.add_member("/", "q", "d", done))
    universe.until(lambda: settled(universe, "abcd"), "d carries q")
    for name in "abcd":
        universe.kill(name)
    universe.arm(0)
    for name in "abcd":
        universe.start(name)
    universe.until(lambda: universe.ready() and settled(universe, "abcd"), "all are back")
    assert not [what for _, what in universe.acts if what in ("start_group", "delete_group")]


def test_a_member_has_left_only_when_its_removal_is_committed() -> None:
    universe = begun("abcde")
    group = universe.running["a"].broker.definitions.state.queue("/", "q").group
    ask(universe, lambda m, done: m.transfer_leadership("/", "q", "a", done))
    universe.running["a"].broker.membership.delete_member("/", "q", "c", lambda answer: None)
    universe.until(lambda: "c" not in universe.logs[group].membership(), "a lets c go")
    universe.kill("b")
    universe.kill("c")
    for _ in range(200):
        universe.step()
    queue = universe.running["d"].broker.definitions.state.groups[group]
    assert queue.leaving == ("c",), "its removal is on one disk of two"
    universe.start("b")
    universe.until(lambda: settled(universe, "ab"), "it is committed")
    universe.close()


REFUSED: dict[type[errors.Refusal], list[tuple[str, tuple[str, ...], str]]] = {
    errors.NotFound: [
        ("add_member", ("/", "none", "b"), "no queue 'none'"),
        ("add_member", ("/", "q", "x"), "no node 'x' in the cluster; its nodes are a, b, c"),
        ("nodes.drain", ("x",), "no node 'x'"),
    ],
    errors.PreconditionFailed: [
        ("add_member", ("/", "classic", "b"), "is a classic queue: it lives on node 'a' alone"),
        ("delete_member", ("/", "single", "a"), "node 'a' has its last member"),
        ("transfer_leadership", ("/", "single", "b"), "has no member on node 'b', only on a"),
        ("nodes.forget", ("b",), "node 'b' is running"),
    ],
    errors.InvalidArgument: [
        ("grow", ("b", "odd", ".*", ".*"), "strategy 'odd' is unknown"),
        ("grow", ("b", "all", "(", ".*"), "vhost pattern '\\(' should be regular expression"),
    ],
}


def test_a_change_that_cannot_be_made_is_refused(universe: Universe) -> None:
    declare(universe, "classic", arguments={"x-queue-type": "classic"})
    declare(universe, "single", 1)
    calls = [(kind, *call) for kind, calls in REFUSED.items() for call in calls]
    for kind, operation, arguments, text in calls:
        call = attrgetter(operation)
        answer = ask(universe, lambda m, done, c=call, given=arguments: c(m)(*given, done))
        assert isinstance(answer, kind), answer
        with pytest.raises(kind, match=text):
            raise answer


def test_a_majority_is_not_given_away(universe: Universe) -> None:
    universe.kill("b")
    answer = ask(universe, lambda m, done: m.delete_member("/", "q", "c", done))
    assert isinstance(answer, errors.PreconditionFailed)
    assert "would lose its majority: of the 2 members that it would have, 2 are needed" in (
        answer.detail
    )
    # A node that is down may leave.
    assert ask(universe, lambda m, done: m.delete_member("/", "q", "b", done)).changed
    universe.until(lambda: settled(universe, "ac"), "b is out")
    answer = ask(universe, lambda m, done: m.add_member("/", "q", "b", done))
    assert isinstance(answer, errors.PreconditionFailed) and "is not running" in answer.detail


# ------------------------------------------------------------------ many queues


def test_nodes_grow_and_shrink(universe: Universe) -> None:
    declare(universe, "even", 2)
    declare(universe, "other", 1)
    universe.start("d")
    universe.until(universe.ready, "d has joined")
    grown = ask(universe, lambda m, done: m.grow("d", "even", ".*", ".*", done))
    assert grown.queues == (values.Resized("/", "even", 3),)
    grown = ask(universe, lambda m, done: m.grow("d", "all", "^/$", "^q|other", done))
    assert [(one.name, one.size) for one in grown.queues] == [("other", 2), ("q", 4)]
    status = ask(universe, lambda m, done: m.nodes.node_status("d", done))
    assert status.node.members == 3 and status.done == (not status.node.moving)
    universe.until(
        lambda: ask(universe, lambda m, done: m.nodes.node_status("d", done)).done, "grown"
    )
    assert ask(universe, lambda m, done: m.nodes.node_status("d", done)).node.members == 3
    shrunk = ask(universe, lambda m, done: m.shrink("a", False, done))
    assert not any(one.error for one in shrunk.queues) and len(shrunk.queues) >= 2
    assert [(one.name, one.remark) for one in shrunk.queues if one.size == 2]
    assert all("the queue stops while" in one.remark for one in shrunk.queues if one.size == 2)
    universe.until(
        lambda: ask(universe, lambda m, done: m.nodes.node_status("a", done)).done, "shrunk"
    )
    assert ask(universe, lambda m, done: m.nodes.node_status("a", done)).node.members == 0
    single = declare(universe, "single", 1).queue
    assert single.nodes == ("a",)
    failed = ask(universe, lambda m, done: m.shrink("a", True, done))
    assert [one.name for one in failed.queues] == ["single"]
    assert "last member" in failed.queues[0].error and failed.queues[0].size == 1


@pytest.mark.specification("quorum-queues: To re-balance use")
def test_leaders_are_spread(universe: Universe) -> None:
    for number in range(8):
        declare(universe, f"r{number}")
    groups = [queue.group for queue in universe.running["a"].broker.definitions.state.queues()]
    for group in groups:
        universe.running["a"].broker.leader_transfer.move(group, "a")
    universe.until(lambda: all(universe.logs[g].leader == "a" for g in groups), "a leads all")
    done = ask(universe, lambda m, done: m.rebalance(".*", ".*", done))
    assert [(one.node, one.queues) for one in done.leaders] == [("a", 3), ("b", 3), ("c", 3)]
    assert len(done.moves) == 6
    universe.until(
        lambda: (
            sorted([universe.logs[group].leader for group in groups].count(name) for name in "abc")
            == [3, 3, 3]
        ),
        "they are spread",
    )


def test_a_leadership_is_handed_over(universe: Universe) -> None:
    group = universe.running["a"].broker.definitions.state.queue("/", "q").group
    for to in "cab":
        was = universe.logs[group].leader
        moved = ask(universe, lambda m, done, to=to: m.transfer_leadership("/", "q", to, done))
        assert moved == values.LeaderMoved("/", "q", to, moved=was != to)
        assert universe.logs[group].leader == to


# ------------------------------------------------------------------ nodes


def test_a_node_that_lost_its_disk_is_given_everything_again(universe: Universe) -> None:
    universe.kill("b")
    universe.wipe("b")
    universe.start("b")
    universe.until(lambda: universe.ready() and settled(universe, "abc"), "b is whole again")
    members = universe.logs[0].membership()
    assert members.voters == ("a", "b", "c") and members.id_of("b")


def test_what_lived_on_a_lost_disk_alone_comes_back_empty(universe: Universe) -> None:
    first = declare(universe, "classic", arguments={"x-queue-type": "classic"}).queue
    other = declare(universe, "single", 1).queue
    assert first.nodes == other.nodes == ("a",)
    universe.kill("a")
    universe.wipe("a")
    universe.start("a")
    universe.until(lambda: universe.ready() and settled(universe, "abc"), "a is whole again")
    for old in (first, other):
        universe.until(lambda q=old: settled(universe, "a", q.name), f"{old.name} is there")
        now = universe.running["b"].broker.definitions.state.queue("/", old.name)
        assert now.group > old.group and universe.logs[now.group].membership().ids == ()
        assert all(old.group not in disk for disk in universe.disks.values())


def test_a_lost_disk_survives_a_death_at_every_step() -> None:
    def make() -> Universe:
        universe = begun()
        universe.kill("b")
        universe.wipe("b")
        universe.start("b")
        return universe

    with_a_death_at_every_step(
        make, lambda u: None, lambda u: u.ready() and settled(u, "abc"), at_least=4
    )


@pytest.mark.specification("quorum-queues: nodes can be configured to automatically try to grow")
def test_queues_grow_by_themselves_when_a_node_joins() -> None:
    settings = {
        "queues": {
            "continuous_membership_reconciliation": {
                "enabled": True,
                "target_group_size": 3,
                "trigger_interval": 500,
            }
        }
    }
    universe = Universe(settings=settings)
    for _ in range(100):
        universe.step()
    declare(universe, "q", 1)
    declare(universe, "five", 3, {**QUORUM, "x-quorum-target-group-size": 5})
    for _ in range(100):
        universe.step()
    assert wanted(universe) == ("a",), "nothing joined: the interval is an hour"
    universe.start("d")
    universe.until(lambda: len(wanted(universe)) == 3, "q has its target size")
    nodes = wanted(universe)
    universe.until(lambda: settled(universe, nodes), "q has grown")
    assert len(wanted(universe, "five")) == 3, "one node more would make its size even"
    universe.start("e")
    universe.until(lambda: settled(universe, "abcde", "five"), "five has grown")
    assert len(wanted(universe)) == 3
    universe.close()


@pytest.mark.parametrize("size", [4, 2**62])
def test_a_group_larger_than_the_cluster_is_cut_to_its_nodes(universe: Universe, size: int) -> None:
    call = declaration("wide", {**QUORUM, "x-quorum-initial-group-size": size})
    assert not isinstance(universe.call("a", call), errors.Refusal)
    assert wanted(universe, "wide") == ("a", "b", "c")
