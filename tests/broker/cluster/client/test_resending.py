"""A lost submission is sent again once, however many answers say that it is missing."""

from __future__ import annotations

from tests.broker.cluster.client.test_queue_client import Machine, new_uplink
from warren_broker.cluster.client.uplink import Uplink

COUNT = 38


def sent_without_the_first() -> tuple[Uplink, Machine, list[bytes]]:
    """An uplink with submissions under way, of which the leader never gets the first."""
    uplink, machine = new_uplink(), Machine()
    for number in range(COUNT):
        uplink.with_block("STAGE", b"%d" % number, None)
    return uplink, machine, [sent.data for sent in uplink.take()][1:]


def test_all_answers_of_one_loss_have_it_sent_again_once() -> None:
    uplink, machine, under_way = sent_without_the_first()
    entries = 0
    answers: list[tuple[int, tuple[object, ...], int]] = []
    while under_way or answers:
        if under_way:
            entries += 1
            answers.append(machine.apply(under_way.pop(0)))
        # The answers come one by one, while what was sent again is under way already.
        seq, replies, expected = answers.pop(0)
        if expected:
            uplink.behind(seq, expected)
        else:
            uplink.answered(seq, replies, 1)
        under_way += [sent.data for sent in uplink.take()]
    assert not uplink.unanswered and len(machine.applied) == COUNT
    assert entries == (COUNT - 1) + COUNT


def test_what_was_sent_again_and_lost_again_is_sent_a_third_time() -> None:
    uplink, machine, under_way = sent_without_the_first()
    for data in under_way:
        seq, _, expected = machine.apply(data)
        uplink.behind(seq, expected)
    again = [sent.data for sent in uplink.take()]
    assert len(again) == COUNT
    (seq, _, expected), *others = map(machine.apply, again[1:])
    assert uplink.behind(seq, expected)
    assert [sent.seq for sent in uplink.take()] == list(range(1, COUNT + 1))
    assert not any(uplink.behind(seq, expected) for seq, _, expected in others)


def test_a_new_leader_is_sent_everything_and_believed_at_once() -> None:
    uplink, machine, under_way = sent_without_the_first()
    seq, _, expected = machine.apply(under_way[0])
    assert uplink.behind(seq, expected) and len(uplink.take()) == COUNT
    uplink.rewind()
    assert len(uplink.take()) == COUNT
    assert uplink.behind(seq, expected), "of the new leader, it must be taken for news"
    assert not uplink.behind(COUNT + 1, expected) and not uplink.behind(0, expected)


def test_what_is_to_be_sent_again_is_not_skipped_by_a_late_answer() -> None:
    # 1. The leader lacks 3, and says so to 4; the answer is slow.  2. Another leader is found, and
    # cannot be sent anything yet.  3. The answer arrives: 1 and 2 are still to be sent.
    uplink = new_uplink()
    for number in range(4):
        uplink.with_block("STAGE", b"%d" % number, None)
    assert len(uplink.take()) == 4
    uplink.rewind()
    assert uplink.behind(4, 3)
    assert [sent.seq for sent in uplink.take()] == [1, 2, 3, 4]


def test_what_came_before_the_missing_one_is_not_sent_again() -> None:
    uplink = new_uplink()
    for number in range(4):
        uplink.with_block("STAGE", b"%d" % number, None)
    assert len(uplink.take()) == 4
    assert uplink.behind(4, 3)
    assert [sent.seq for sent in uplink.take()] == [3, 4]
