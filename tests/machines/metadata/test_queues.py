"""Queues as definitions: which exist, their owners, their end."""

from __future__ import annotations

import msgspec
import pytest

from machines.metadata.world import UPLINK, World
from warren_machines.metadata import commands
from warren_machines.metadata.changes import NodeRenewed, QueueChanged
from warren_machines.metadata.records import NUMBERS_PER_GROUP, numbered_above
from warren_wire.arguments import QueueDefaults, queue_declaration
from warren_wire.errors import (
    AccessRefused,
    PreconditionFailed,
    ResourceLocked,
    Unavailable,
)


@pytest.fixture
def world() -> World:
    return World()


def names(world: World) -> list[str]:
    return [queue.name for queue in world.state.queues()]


def test_groups_are_given_out_once(world: World) -> None:
    first = world.declare("q")
    assert QueueChanged(first) in world.changes
    assert world.declare("q") == first
    assert world.changes == []
    world.do(commands.DeleteQueue("/", "q"))
    assert QueueChanged(first) in world.changes
    assert world.declare("q").group > first.group


def test_a_queue_declared_again_numbers_its_claims_above_those_of_the_one_before(
    world: World,
) -> None:
    first = world.declare("q")
    assert numbered_above(first.group) >= NUMBERS_PER_GROUP
    world.do(commands.DeleteQueue("/", "q"))
    again = world.declare("q").group
    assert numbered_above(again) >= numbered_above(first.group) + NUMBERS_PER_GROUP


def test_several_in_one_submission_get_groups_of_their_own(world: World) -> None:
    one, other = world.declare("tmp-1"), world.declare("tmp-2")
    again = [commands.DeclareQueue(q.config, {}, ("a",), "a") for q in (one, other)]
    fresh = [commands.DeleteQueue("/", "tmp-1"), commands.DeleteQueue("/", "tmp-2"), *again]
    replies = world.submit(*fresh).replies
    assert replies[2].queue.group != replies[3].queue.group  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changed, text",
    [
        (
            {"durable": False},
            "inequivalent arg 'durable' for queue 'q' in vhost '/': "
            "received 'false' but current is 'true'",
        ),
        ({"auto_delete": True}, "inequivalent arg 'auto_delete'"),
        (
            {"arguments": {"x-max-length": 1}},
            "inequivalent arg 'x-max-length' for queue 'q' in vhost '/': "
            "received the value '1' of type 'signedint' but current is none",
        ),
        ({"arguments": {"x-queue-type": "quorum"}}, "inequivalent arg 'x-queue-type'"),
    ],
)
def test_declaring_twice_must_be_equivalent(world: World, changed: dict, text: str) -> None:
    world.declare("q")
    with pytest.raises(PreconditionFailed) as caught:
        world.declare("q", **changed)
    assert caught.value.detail.startswith(text)


def test_reserved_names(world: World) -> None:
    with pytest.raises(AccessRefused, match="queue name 'amq.x' contains reserved prefix"):
        world.declare("amq.x")
    world.declare("amq.gen-1", server_named=True)


def test_a_queue_needs_a_node(world: World) -> None:
    made = world.declare("q")
    with pytest.raises(Unavailable):
        world.do(commands.DeclareQueue(made.config.__class__("/", "r"), {}, (), ""))


def test_exclusive_queues_belong_to_their_connection(world: World) -> None:
    queue = world.declare("mine", exclusive=True, connection=5)
    assert world.declare("mine", exclusive=True, connection=5) == queue
    for who in ({"connection": 6}, {"connection": 5, "uplink": 72, "node": "b"}):
        with pytest.raises(ResourceLocked) as caught:
            world.declare("mine", exclusive=True, **who)  # type: ignore[arg-type]
        assert caught.value.detail.startswith("cannot obtain exclusive access to locked queue")
    with pytest.raises(ResourceLocked):
        world.do(commands.DeleteQueue("/", "mine", connection=6))
    with pytest.raises(ResourceLocked):  # its owner, which declares it as shared now
        world.declare("mine", connection=5)
    world.declare("shared")
    with pytest.raises(ResourceLocked):
        world.declare("shared", exclusive=True, connection=5)
    assert world.state.queue("/", "mine") == queue


def test_exclusive_queues_go_with_their_connection(world: World) -> None:
    for number in range(3):
        world.declare(f"mine-{number}", exclusive=True, connection=5)
    world.declare("other", exclusive=True, connection=6)
    world.exchange("x", "fanout", auto_delete=True)
    world.bind("x", "mine-1")
    gone = world.do(commands.OwnerGone(UPLINK, 5)).queues
    assert [queue.name for queue in gone] == ["mine-0", "mine-1", "mine-2"]
    assert names(world) == ["other"] and "x" not in world.state.scopes["/"].exchanges
    assert world.do(commands.OwnerGone(UPLINK, 5)).queues == ()


def test_a_nodes_new_life_ends_what_was_bound_to_the_old_one(world: World) -> None:
    world.declare("durable", arguments={"x-queue-type": "classic"})
    world.declare("quorum", nodes=("a", "b", "c"))
    world.declare("transient", durable=False)
    world.declare("transient-on-b", durable=False, nodes=("b",))
    world.declare("exclusive-on-b", exclusive=True, connection=9, nodes=("b",))
    world.submit(commands.NodeStarted("a", 99, 101, "a:1"), uplink=99, node="a")
    assert NodeRenewed("a", 99, UPLINK) in world.changes
    assert names(world) == ["durable", "quorum", "transient-on-b"]


def test_a_late_submission_of_an_older_life_is_refused(world: World) -> None:
    world.submit(commands.NodeStarted("a", 99, 101, "a:1"), uplink=99, node="a")
    for seq in (1, 2):
        reply = world.submit(commands.AddVhost(world.state.scopes["/"].vhost), seq=seq)
        assert reply.retired and reply.replies == ()
    assert world.state.lives["a"] == 99


def test_a_repeat_gets_the_first_answer(world: World) -> None:
    queue = world.declare("q")
    seq = world.seqs[UPLINK]
    command = commands.DeclareQueue(queue.config, {}, ("a",), "a")
    again = world.submit(command, seq=seq)
    assert again.replies == (commands.QueueIs(queue, created=True),) and world.changes == []
    world.do(commands.DeleteQueue("/", "q"))
    assert world.submit(command, seq=seq).replies == again.replies
    assert names(world) == []


def test_a_gap_is_refused_with_the_number_to_go_on_from(world: World) -> None:
    at = world.seqs[UPLINK]
    reply = world.submit(commands.Barrier(), seq=at + 2)
    assert (reply.expected_seq, reply.replies) == (at + 1, ())
    reply = world.submit(commands.Barrier(), uplink=500, node="b", seq=3)
    assert reply.expected_seq == 1


def test_answers_kept_are_bounded(world: World) -> None:
    for _ in range(40):
        world.submit(*([commands.Barrier()] * 100))
    own = world.state.uplinks[UPLINK]
    assert own.kept <= 1024 and len(own.answers) <= 11
    assert world.submit(commands.Barrier(), seq=1).replies == ()


def test_deleting_another_queue_of_that_name_does_nothing(world: World) -> None:
    old = world.declare("q")
    world.do(commands.DeleteQueue("/", "q"))
    new = world.declare("q")
    assert world.do(commands.DeleteQueue("/", "q", group=old.group)).queues == ()
    assert world.do(commands.DeleteQueue("/", "q", group=new.group)).queues == (new,)


def test_a_refused_command_does_not_stop_its_submission(world: World) -> None:
    bad = commands.DeclareExchange("/", "amq.no", "direct")
    good = commands.DeclareExchange("/", "yes", "direct")
    refused, done = world.submit(bad, good).replies
    assert isinstance(refused, commands.MetadataRefused) and refused.error == "AccessRefused"
    assert isinstance(done, commands.MetadataDone) and "yes" in world.state.scopes["/"].exchanges


def test_bytes_that_are_no_submission_are_ignored(world: World) -> None:
    before = world.machine.snapshot(world.state)
    for data in (b"", b"\xc1", b"\x94\x01\xa1a\x01\x91\x92\xa9something\x01"):
        assert world.entry(data) is None
    assert world.machine.snapshot(world.state) == before


RELAXED = {"x-queue-type": "classic"}


def declare_relaxed(world: World, relaxed: bool, /, **more: object) -> commands.QueueIs:
    """Declare "q" as a classic queue, as a node with that setting does."""
    declaration = queue_declaration(
        "/",
        "q",
        durable=bool(more.pop("durable", True)),
        exclusive=False,
        auto_delete=False,
        arguments={**RELAXED, **more},
        defaults=QueueDefaults(),
    )
    reply = world.do(
        commands.DeclareQueue(
            declaration.config, declaration.arguments, ("a",), "a", 1, relaxed=relaxed
        )
    )
    assert isinstance(reply, commands.QueueIs)
    return reply


@pytest.mark.parametrize("by", ["x-queue-type", "x-dead-letter-strategy"])
@pytest.mark.specification("quorum-queues: the equivalence check for x-queue-type can be ignored")
def test_a_relaxed_check_lets_a_classic_declaration_find_a_quorum_queue(
    world: World, by: str
) -> None:
    asked = {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-most-once"}[by]
    there = world.declare("q", arguments={by: asked, "x-max-length": 5, "x-delivery-limit": 3})
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-queue-type'"):
        declare_relaxed(world, False, **{"x-max-length": 5})
    assert declare_relaxed(world, True, **{"x-max-length": 5}) == commands.QueueIs(there, False)
    assert declare_relaxed(world, True, durable=False, **{"x-max-length": 5}).queue == there
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-max-length'"):
        declare_relaxed(world, True, **{"x-max-length": 6})
    assert names(world) == ["q"]


@pytest.mark.specification("quorum-queues: the equivalence check for x-queue-type can be ignored")
def test_a_relaxed_check_does_not_let_a_quorum_declaration_find_a_classic_queue(
    world: World,
) -> None:
    there = world.declare("q", arguments={"x-queue-type": "classic"})
    command = commands.DeclareQueue(
        msgspec.structs.replace(there.config, kind="quorum"),
        {"x-queue-type": "quorum"},
        ("a",),
        "a",
        1,
        relaxed=True,
    )
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-queue-type'"):
        world.do(command)
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'durable'"):
        declare_relaxed(world, True, durable=False)
