"""The stream of submissions reaches a group once, in order, whatever its leaders and links do."""

from __future__ import annotations

import ast
import random

import pytest

from tests.wire.kernel.conftest import loaded
from warren_broker.cluster.client.uplink import UNANSWERED_MAX, InFlight, Uplink
from warren_machines.queue.codec import decode_submission, encode_submission
from warren_machines.queue.commands import Enqueue, Purge, Submission
from warren_raft.versions import NEWEST
from warren_wire.kernel import MessageTable, Route, Selection


def encode(seq, commands, block, answered):
    return repr((seq, commands, bytes(block) if block is not None else None, answered)).encode()


def assemble(parts, head):
    """Put the block into the entry that was encoded without one."""
    seq, commands, block, answered = ast.literal_eval(head.decode())
    assert block is None
    return encode(seq, commands, b"|".join(parts), answered)


def new_uplink() -> Uplink:
    return Uplink(encode, assemble, "ENQ", InFlight())


class Machine:
    """What a queue does with sequence numbers, and nothing else."""

    def __init__(self) -> None:
        self.last_seq = 0
        self.applied: list[object] = []
        self.kept: dict[int, tuple] = {}

    def apply(self, data: bytes):
        seq, commands, block, answered = ast.literal_eval(data.decode())
        if seq > self.last_seq + 1:
            return seq, (), self.last_seq + 1
        if seq == self.last_seq + 1:
            self.last_seq = seq
            replies = []
            for command in commands:
                self.applied.append(block if command == "ENQ" else command)
                replies.append(("reply", command))
            self.kept[seq] = tuple(replies)
            self.kept = {s: r for s, r in self.kept.items() if s > answered}
        return seq, self.kept.get(seq, ()), 0


def test_the_block_goes_before_the_commands_of_its_turn():
    uplink = new_uplink()
    uplink.command("settle")
    uplink.publish(b"a", 1, None)
    (sent,) = uplink.take()
    assert b"('ENQ', 'settle')" in sent.data
    assert uplink.take() == []


def test_messages_are_assembled_into_their_entry_which_is_sent_as_it_is() -> None:
    made: list[bytes] = []

    def encode_entry(seq, commands, block, answered):
        return encode_submission(Submission(7, "n1", seq, commands, NEWEST, answered), block)

    def assemble_entry(parts, head):
        made.append(assembly.assemble(parts, before=head))
        return made[-1]

    assembly = loaded("interpreted").assemble
    table = MessageTable()
    for body in (b"one", b"two" * 1000):
        table.append(Route(b"", b"q", False), b"\0\0", body)
    uplink = Uplink(encode_entry, assemble_entry, Enqueue(), InFlight())
    uplink.publish(Selection(table, 0, 2), 3003, None)
    uplink.command(Purge())
    (sent,) = uplink.take()
    assert sent.data is made[0]
    submission, block = decode_submission(sent.data)
    assert submission == Submission(7, "n1", 1, (Enqueue(), Purge()), NEWEST)
    assert block == assembly.assemble([Selection(table, 0, 2)])


def test_a_publish_does_not_overtake_an_ordered_command():
    uplink = new_uplink()
    uplink.publish(b"a", 1, None)
    uplink.command("purge", ordered=True)
    uplink.publish(b"b", 1, None)
    machine = Machine()
    for sent in uplink.take():
        machine.apply(sent.data)
    assert machine.applied == [b"a", "purge", b"b"]


def test_every_part_of_a_block_hears_the_block_s_reply():
    uplink = new_uplink()
    heard = []
    uplink.publish(b"a", 1, lambda reply, index: heard.append(("a", reply, index)))
    uplink.publish(b"b", 1, lambda reply, index: heard.append(("b", reply, index)))
    uplink.command("c", lambda reply, index: heard.append(("c", reply, index)))
    (sent,) = uplink.take()
    assert uplink.answered(sent.seq, ["enq", "cmd"], 7)
    assert heard == [("a", "enq", 7), ("b", "enq", 7), ("c", "cmd", 7)]
    assert not uplink.answered(sent.seq, ["enq", "cmd"], 7)


def test_no_more_is_under_way_than_the_machine_remembers():
    uplink = new_uplink()
    for i in range(UNANSWERED_MAX + 5):
        uplink.with_block("STAGE", b"%d" % i, None)
    assert len(uplink.take()) == UNANSWERED_MAX
    assert uplink.take() == [] and uplink.waiting
    uplink.answered(1, [None], 1)
    assert [sent.seq for sent in uplink.take()] == [UNANSWERED_MAX + 1]


def test_abandoning_gives_back_what_waits():
    uplink = new_uplink()
    calls = []
    uplink.command("a", lambda reply, index: calls.append("a"))
    uplink.take()
    uplink.publish(b"x", 1, lambda reply, index: calls.append("x"))
    for call in uplink.abandon():
        call(None, 0)
    assert calls == ["a", "x"]
    uplink.check()
    assert uplink.size_bytes == 0


@pytest.mark.parametrize("seed", range(200))
def test_once_and_in_order_through_lost_messages_and_new_leaders(seed: int) -> None:
    rng = random.Random(seed)
    uplink, machine = new_uplink(), Machine()
    sent_order, heard = [], []
    to_leader: list[bytes] = []
    to_node: list[tuple] = []
    made = 0
    steps = 0
    while made < 60 or uplink.unanswered or uplink.waiting:
        steps += 1
        assert steps < 20_000, f"no progress with seed {seed}"
        roll = rng.random()
        if roll < 0.2 and made < 60:
            made += 1
            name = f"c{made}"
            sent_order.append(name)
            uplink.command(
                name,
                lambda reply, index, name=name: heard.append((name, reply)),
                rng.random() < 0.3,
            )
        elif roll < 0.5:
            to_leader += [sent.data for sent in uplink.take()]
        elif roll < 0.69 and to_leader:
            to_node.append(machine.apply(to_leader.pop(0)))
        elif roll < 0.7 and to_leader:
            to_leader.pop(rng.randrange(len(to_leader)))
        elif roll < 0.9 and to_node:
            seq, replies, expected = to_node.pop(0)
            if expected:
                uplink.behind(seq, expected)
            else:
                uplink.answered(seq, replies, 1)
        elif (
            roll > 0.96
        ):  # a new leader: what was under way is lost, part of it after being applied
            for data in to_leader[: rng.randint(0, len(to_leader))]:
                machine.apply(data)
            to_leader.clear()
            if rng.random() < 0.5:
                to_node.clear()
            uplink.rewind()
        uplink.check()
    assert machine.applied == sent_order
    assert heard == [(name, ("reply", name)) for name in sent_order]


def test_nobody_waits_for_a_parked_uplink_and_what_is_under_way_is_sent_again() -> None:
    in_flight = InFlight()
    uplink = Uplink(encode, assemble, "ENQ", in_flight)
    heard: list[tuple[str, object]] = []
    uplink.publish(b"a", 1, lambda reply, index: heard.append(("a", reply)))
    uplink.command("asked", lambda reply, index: heard.append(("asked", reply)))
    (first,) = uplink.take()
    uplink.with_block("STAGE", b"block", lambda reply, index: heard.append(("block", reply)))
    uplink.publish(b"b", 1, lambda reply, index: heard.append(("b", reply)))
    uplink.park("gone")
    uplink.check()
    assert heard == [("a", "gone"), ("block", "gone"), ("b", "gone")]
    assert in_flight.size_bytes == 0 and uplink.waited_for_bytes == 0
    uplink.park("gone")
    uplink.rewind()
    assert [sent.seq for sent in uplink.take()] == [1, 2, 3]
    assert in_flight.size_bytes == 0 and len(heard) == 3
    uplink.unpark()
    uplink.unpark()
    assert in_flight.size_bytes == uplink.bytes_unanswered > 0
    assert uplink.answered(1, ("done", "yes"), 7)
    assert heard[3:] == [("asked", "yes")]
    uplink.park("gone")
    assert uplink.answered(2, ("done",), 8)
    uplink.abandon()
    assert in_flight.size_bytes == 0 and uplink.bytes_unanswered == 0 and len(heard) == 4
    assert first.seq == 1
