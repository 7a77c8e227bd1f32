"""Queues move to where mirror policies want them, whichever node dies on the way, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.cluster.membership.clusters import (
    anybody,
    ask,
    begun,
    declaration,
    declare,
    forget,
    gone,
    settled,
    wanted,
    with_a_death_at_every_step,
)
from broker.cluster.universe import Universe
from warren_machines.metadata.commands import AnyCommand, ChangeMembers, ClearPolicy, SetPolicy
from warren_machines.metadata.records import Policy, QueueRecord
from warren_wire import errors

CLASSIC = {"x-queue-type": "classic"}
IN_FLIGHT_STEPS = 5
LONG_STEPS = 250
"""Steps after which a queue that does not move has been looked at several times."""


def mirror(mode: str, params: Any = None, **more: Any) -> SetPolicy:
    """The command for a policy of queues whose names begin with q."""
    definition = {"ha-mode": mode, **({} if params is None else {"ha-params": params})}
    return SetPolicy(Policy("/", "p", "^q", definition, **more))


CLEAR = ClearPolicy("/", "p")


def define(universe: Universe, *some: AnyCommand) -> None:
    """Change the definitions; the node that is asked may die: then another one is asked."""
    for command in some:

        def answered(one: AnyCommand = command) -> Any:
            answer = universe.call(
                anybody(universe), lambda broker, done: broker.definitions.submit(one, done)
            )
            again = isinstance(answer, errors.Unavailable)
            return None if answer is None or again else answer

        universe.until(answered, "the definitions are changed")


def record(universe: Universe, name: str = "q") -> QueueRecord:
    """The queue as some node knows it."""
    found = universe.running[anybody(universe)].broker.definitions.state.queue("/", name)
    assert found is not None
    return found


def leader(universe: Universe, name: str = "q") -> str | None:
    """The queue's leader."""
    return universe.logs[record(universe, name).group].leader


def arrived(universe: Universe, nodes: str, mirrored: bool = True, name: str = "q") -> bool:
    """The queue is on these nodes, marked or not."""
    return settled(universe, nodes, name) and record(universe, name).mirrored == mirrored


@pytest.fixture
def five() -> Iterator[Universe]:
    made = begun("abcde")
    yield made
    made.close()


# ------------------------------------------------------------------ where queues go


@pytest.mark.specification(
    "mirrored-queues: Policies can change at any time",
    "mirrored-queues: all (none) Queue is mirrored across all nodes",
    "mirrored-queues: nodes node names Queue is mirrored",
)
def test_a_queue_follows_every_mode_and_returns_to_its_size(five: Universe) -> None:
    define(five, mirror("all"))
    five.until(lambda: arrived(five, "abcde"), "it is everywhere")
    define(five, mirror("nodes", ["d", "e", "rabbit@elsewhere"]))
    five.until(lambda: arrived(five, "de"), "it is on the listed nodes that exist")
    assert leader(five) in ("d", "e")
    define(five, mirror("exactly", 4))
    five.until(lambda: len(wanted(five)) == 4 and settled(five, wanted(five)), "it is on four")
    assert {"d", "e"} <= set(wanted(five)), "members that fit stay"
    define(five, mirror("exactly", 99))
    five.until(lambda: arrived(five, "abcde"), "more than there are is all")
    define(five, CLEAR)
    five.until(
        lambda: len(wanted(five)) == 3 and arrived(five, "".join(wanted(five)), mirrored=False),
        "the default size, without the mark",
    )


@pytest.mark.specification(
    "mirrored-queues: Queues can optionally be made mirrored",
    "mirrored-queues: Policies can change at any time",
)
def test_a_classic_queue_is_mirrored_and_becomes_an_ordinary_one_again(five: Universe) -> None:
    declare(five, "qc", arguments=CLASSIC)
    assert arrived(five, "a", mirrored=False, name="qc")
    assert not record(five, "qc").replicated and record(five, "qc").home == "a"
    define(five, mirror("nodes", ["b", "c"]))
    five.until(lambda: arrived(five, "bc", name="qc"), "it has moved")
    assert record(five, "qc").replicated and record(five, "qc").home == ""
    define(five, CLEAR)
    last = five.until(lambda: wanted(five, "qc") in (("b",), ("c",)) and wanted(five, "qc"), "one")
    five.until(lambda: arrived(five, last[0], mirrored=False, name="qc"), "it is alone")
    assert not record(five, "qc").replicated and record(five, "qc").home == last[0]


def test_a_new_queue_begins_where_its_policy_wants_it(five: Universe) -> None:
    define(five, mirror("nodes", ["c", "e", "none"]))
    for arguments in (CLASSIC, {"x-queue-type": "quorum"}):
        name = "q" + arguments["x-queue-type"]
        made = declare(five, name, arguments=arguments).queue
        assert (made.nodes, made.mirrored) == (("c", "e"), True) and made.leader in ("c", "e")
        five.until(lambda n=name: arrived(five, "ce", name=n), "both are founders")
    assert not any(entry[0].name == "CONFIG" for entry in five.logs[made.group].entries)


def test_a_new_queue_has_all_listed_nodes_if_a_majority_of_them_runs(five: Universe) -> None:
    define(five, mirror("nodes", ["c", "d", "e"]))
    placement = five.running["a"].broker.placement
    for down, members in (("e", ("c", "d", "e")), ("d", ("c",))):
        five.kill(down)
        five.until(lambda node=down: not placement.running(node), "it is suspected")
        made = declare(five, f"q-{down}").queue
        assert made.nodes == members
        five.until(lambda q=made: leader(five, q.name) is not None, "it can be used")
    five.start("d")
    five.start("e")
    for name in ("q-e", "q-d"):
        five.until(lambda n=name: arrived(five, "cde", name=n), "all three are members")


@pytest.mark.specification("mirrored-queues: If none of the nodes in the list are online")
def test_a_queue_whose_listed_nodes_are_down_begins_on_the_client_s_node(five: Universe) -> None:
    define(five, mirror("nodes", ["d", "e"]))
    five.until(lambda: arrived(five, "de"), "the older queue is there")
    for name in "de":
        five.kill(name)
    placement = five.running["a"].broker.placement
    five.until(lambda: not any(map(placement.running, "de")), "both are suspected")
    for arguments in (CLASSIC, {"x-queue-type": "quorum"}):
        name = "q" + arguments["x-queue-type"]
        made = declare(five, name, arguments=arguments).queue
        assert (made.nodes, made.leader) == (("a",), "a")
        five.until(lambda n=name: leader(five, n) == "a", "it can be used")
    for name in "de":
        five.start(name)
    for name in ("qclassic", "qquorum"):
        five.until(lambda n=name: arrived(five, "de", name=n), "it moves when they are back")


@pytest.mark.specification("mirrored-queues: If any of those node names are not a part")
def test_a_list_of_unknown_nodes_leaves_queues_where_they_are(five: Universe) -> None:
    """The source: "If none of the nodes in the list are online at the time when the queue"."""
    define(five, mirror("nodes", ["x", "y"]))
    five.until(lambda: arrived(five, "abc"), "an old queue is marked, and stays")
    assert declare(five, "q2", arguments=CLASSIC).queue.nodes == ("a",), "the client's node"
    five.start("x")
    five.until(five.ready, "x has joined")
    five.until(lambda: arrived(five, "x") and arrived(five, "x", name="q2"), "x is there now")


@pytest.mark.parametrize("how", ["exclusive", "transient"])
@pytest.mark.specification("mirrored-queues: exclusive queues are never mirrored")
def test_what_belongs_to_one_node_is_never_mirrored(five: Universe, how: str) -> None:
    """The source: "For this reason, exclusive queues are never mirrored"."""
    define(five, mirror("all"))
    made = five.call(
        "b",
        lambda broker, done: broker.declare_queue(
            "/",
            "qx",
            durable=how == "exclusive",
            exclusive=how == "exclusive",
            arguments=CLASSIC,
            connection=1,
            done=done,
        ),
    ).queue
    assert (made.nodes, made.mirrored) == (("b",), False)
    for _ in range(LONG_STEPS):
        five.step()
    assert wanted(five, "qx") == ("b",)


@pytest.mark.specification(
    "mirrored-queues: When a new node is added to the cluster, the queue will be"
)
def test_all_follows_the_nodes_that_join(five: Universe) -> None:
    """The source: "When a new node is added to the cluster, the queue will be mirrored to that"."""
    define(five, mirror("all"))
    five.until(lambda: arrived(five, "abcde"), "it is everywhere")
    five.start("f")
    five.until(lambda: five.ready() and arrived(five, "abcdef"), "f has it")


# ------------------------------------------------------------------ nodes that fail


def test_a_listed_node_that_is_down_leaves_a_former_member_in_its_place(five: Universe) -> None:
    five.kill("e")
    define(five, mirror("nodes", ["d", "e"]))
    five.until(lambda: leader(five) == "d", "the listed one that is up leads")
    five.until(lambda: len(wanted(five)) == 3, "one former member is wanted for e")
    for _ in range(LONG_STEPS):
        five.step()
    voters = five.logs[record(five).group].membership().voters
    assert len(voters) >= 2 and "d" in voters and {"d", "e"} < set(wanted(five))
    assert leader(five) == "d", "it is not handed to a node that the policy does not name"
    five.start("e")
    five.until(lambda: arrived(five, "de"), "e is back")


@pytest.mark.specification("mirrored-queues: If there are more than count nodes")
def test_a_member_that_is_down_is_replaced_when_its_node_is_forgotten(five: Universe) -> None:
    define(five, mirror("exactly", 3))
    five.until(lambda: arrived(five, "abc"), "it is marked")
    five.kill("c")
    for _ in range(LONG_STEPS):
        five.step()
    assert wanted(five) == ("a", "b", "c"), "its log comes back with it"
    forget(five, "c")
    five.until(lambda: gone(five, "c"), "c is forgotten")
    five.until(lambda: len(wanted(five)) == 3 and settled(five, wanted(five)), "another has it")


@pytest.mark.parametrize("steps", range(0, 40, 4))
def test_forgetting_the_goal_amid_a_move_loses_nothing(steps: int) -> None:
    """At some moment of a move from a to d: d is lost, and forgotten."""
    universe = begun("abcd")
    declare(universe, "q2", size=1)
    define(universe, mirror("nodes", ["d"]))
    for _ in range(steps):
        universe.step()
    universe.kill("d")
    for _ in range(IN_FLIGHT_STEPS):  # d may have said that a has left
        universe.step()
    moved = universe.running["a"].broker.definitions.state.queue("/", "q2")
    only_there = moved is not None and moved.carriers == ("d",)
    forget(universe, "d")
    for _ in range(LONG_STEPS):
        universe.step()
    found = universe.running["a"].broker.definitions.state.queue("/", "q2")
    assert (found is None) == only_there, "else its messages are on a"
    universe.close()


# ------------------------------------------------------------------ with deaths


@pytest.mark.specification("mirrored-queues: if a queue is on [A B]")
def test_moving_survives_a_death_at_every_step() -> None:
    with_a_death_at_every_step(
        lambda: begun("abcde"),
        lambda u: define(u, mirror("nodes", ["d", "e"])),
        lambda u: arrived(u, "de"),
        at_least=8,
    )


def test_a_classic_queue_moves_with_a_death_at_every_step() -> None:
    def make() -> Universe:
        universe = begun("abc", queue=("a",))
        declare(universe, "qc", arguments=CLASSIC)
        return universe

    with_a_death_at_every_step(
        make,
        lambda u: define(u, mirror("nodes", ["c"])),
        lambda u: arrived(u, "c", name="qc") and arrived(u, "c"),
        at_least=8,
    )


def test_clearing_survives_a_death_at_every_step() -> None:
    def make() -> Universe:
        universe = begun("abcd")
        define(universe, mirror("all"))
        universe.until(lambda: arrived(universe, "abcd"), "it is everywhere")
        return universe

    with_a_death_at_every_step(
        make,
        lambda u: define(u, CLEAR),
        lambda u: len(wanted(u)) == 3 and arrived(u, "".join(wanted(u)), mirrored=False),
        at_least=2,
    )


def test_a_policy_is_changed_back_at_every_moment(five: Universe) -> None:
    for steps in range(0, 36, 3):
        define(five, mirror("nodes", ["d", "e"]))
        for _ in range(steps):
            five.step()
        define(five, mirror("nodes", ["a", "b", "c"]))
        five.until(lambda: arrived(five, "abc"), f"back after {steps} steps")


def test_a_policy_that_is_set_and_cleared_at_once_moves_nothing(five: Universe) -> None:
    group = record(five).group
    before = len(five.logs[group].entries)
    for _ in range(3):
        one = five.running["a"].broker.definitions
        one.submit(mirror("nodes", ["d", "e"]), lambda reply: None)
        define(five, CLEAR)
    for _ in range(LONG_STEPS):
        five.step()
    assert arrived(five, "abc", mirrored=False)
    changes = five.logs[group].entries[before:]
    assert not any(entry[0].name == "CONFIG" for entry in changes)


def test_the_change_of_a_leader_that_was_away_is_not_made(five: Universe) -> None:
    """What followed from other members than the present ones is dropped."""
    queue = record(five)
    late = ChangeMembers(
        queue.group, add=("d",), remove=("a", "b", "c"), expected=("a", "c"), mirrored=True
    )
    define(five, late)
    for _ in range(LONG_STEPS):
        five.step()
    assert arrived(five, "abc", mirrored=False)


# ------------------------------------------------------------------ operators


def test_operators_change_the_policy_and_not_its_members(five: Universe) -> None:
    define(five, mirror("exactly", 3))
    five.until(lambda: arrived(five, "abc"), "it is marked")
    for call in (
        lambda m, done: m.add_member("/", "q", "d", done),
        lambda m, done: m.delete_member("/", "q", "a", done),
    ):
        answer = ask(five, call)
        assert isinstance(answer, errors.PreconditionFailed)
        assert "its members follow policy 'p' (ha-mode exactly 3)" in answer.detail
    for call in (
        lambda m, done: m.grow("d", "all", ".*", ".*", done),
        lambda m, done: m.shrink("a", False, done),
    ):
        (row,) = ask(five, call).queues
        assert (row.name, row.size) == ("q", 3) and "follow policy 'p'" in row.error
    assert wanted(five) == ("a", "b", "c")


@pytest.mark.specification(
    "mirrored-queues: It is possible to list queue master and mirrors",
    "mirrored-queues: To see mirror status (whether they are synchronised)",
)
def test_the_status_says_what_is_followed_and_who_holds_everything(five: Universe) -> None:
    define(five, mirror("nodes", ["d", "e"]))
    look = ask(five, lambda m, done: m.queue_status("/", "q", done))
    assert look.following == "policy 'p' (ha-mode nodes d, e)" and not look.settled
    five.until(lambda: arrived(five, "de"), "it has moved")
    look = ask(five, lambda m, done: m.queue_status("/", "q", done))
    assert look.settled and look.online == look.synchronised == ("d", "e")
    five.kill("e" if leader(five) == "d" else "d")
    look = ask(five, lambda m, done: m.queue_status("/", "q", done))
    assert (look.online, look.synchronised) == ((leader(five),),) * 2 and look.leader is not None
    define(five, mirror("nodes", ["none"]))
    look = ask(five, lambda m, done: m.queue_status("/", "q", done))
    assert look.following == "policy 'p' (ha-mode nodes none)" and look.settled


def test_a_policy_goes_before_the_size_of_continuous_reconciliation() -> None:
    growing = {
        "enabled": True,
        "target_group_size": 5,
        "interval": 1_000,
        "trigger_interval": 1_000,
    }
    universe = begun(settings={"queues": {"continuous_membership_reconciliation": growing}})
    define(universe, mirror("exactly", 3))
    universe.until(lambda: arrived(universe, "abc"), "three")
    for name in "de":
        universe.start(name)
        universe.until(universe.ready, f"{name} has joined")
    for _ in range(LONG_STEPS):
        universe.step()
    assert len(wanted(universe)) == 3
    define(universe, CLEAR)
    universe.until(lambda: arrived(universe, "abcde", mirrored=False), "it grows again")
    universe.close()


def test_declaring_again_is_no_change(five: Universe) -> None:
    define(five, mirror("nodes", ["d", "e"]))
    five.until(lambda: arrived(five, "de"), "it has moved")
    again = five.call(
        "b", declaration("q", {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3})
    )
    assert again.created is False and again.queue.nodes == ("d", "e")
