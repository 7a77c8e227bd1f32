"""The next step towards the members that a group is to have; where leaders and members go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest

from warren_broker.cluster.membership import membership_step as steps
from warren_broker.cluster.membership.placement import balanced
from warren_raft.types import MemberState


def members(text: str) -> tuple[MemberState, ...]:
    """`A` leads, `b` votes, `b?` is suspected, `b!` lost its disk, `(b)` learns, `b*` changes."""
    found = []
    for word in text.split():
        node = word.strip("()?!*").lower()
        found.append(
            MemberState(
                node,
                "(" not in word,
                word[0].isupper(),
                9,
                9,
                suspected="?" in word,
                lost="!" in word,
                changing="*" in word,
            )
        )
    return tuple(found)


def step(now: str, wanted: str, away: Sequence[str] = ()) -> steps.Step:
    """Of a leader that is the capital letter."""
    states = members(now)
    own = next(one.node for one in states if one.leader)
    return steps.next_step(own, tuple(wanted), states, lambda node: node not in away)


@pytest.mark.parametrize(
    "now, wanted, expected",
    [
        ("A b c", "abc", steps.Complete()),
        ("A b c", "abcd", steps.AddMember("d")),
        ("A b c (d)", "abcd", steps.CatchingUp("d")),
        (
            "A b (c)",
            "abcd",
            steps.AddMember("d"),
        ),  # c may have a disk that hangs, and never catch up
        ("A b c (d?)", "abcd", steps.Wait("d cannot be reached")),
        ("A b c d", "abd", steps.RemoveMember("c")),
        (
            "A b c? d",
            "acd",
            steps.RemoveMember("b"),
        ),  # a live one may go: as many as are wanted remain
        ("A b? c", "acd", steps.AddMember("d")),  # first the one that comes
        ("A b? c d", "acd", steps.RemoveMember("b")),
        ("A (b) c", "ac", steps.RemoveMember("b")),
        ("A b c", "bc", steps.TransferLeadership("b")),
        ("A b? c", "bc", steps.TransferLeadership("c")),
        ("A b! c?", "bc", steps.Wait("no remaining member can take over")),
        ("A b c*", "ab", steps.Wait("a change is under way")),
        ("A b c", "abx", steps.Wait("x cannot be reached")),  # c stays until x has come
        ("A b c?", "abx", steps.RemoveMember("c")),  # what is down is no copy
        ("A", "abc", steps.AddMember("b")),
        ("A (b)", "b", steps.CatchingUp("b")),
        ("A b", "b", steps.TransferLeadership("b")),
    ],
)
def test_a_step(now: str, wanted: str, expected: steps.Step) -> None:
    assert step(now, wanted, away="x") == expected


@pytest.mark.parametrize("start", ["a", "ab", "abc", "abcd"])
def test_steps_lead_from_any_members_to_any_others(start: str) -> None:
    """With all nodes alive; never fewer copies than the smaller of what was and what is wanted."""
    for size in range(1, 5):
        for wanted in combinations("abcde", size):
            voters, learners, leader, count = set(start), set(), "a", 0
            fewest = min(len(start), size)
            while True:
                states = [
                    MemberState(node, node in voters, node == leader, 9, 9)
                    for node in sorted(voters | learners)
                ]
                now = steps.next_step(leader, wanted, states, lambda node: True)
                count += 1
                assert count < 30, (start, wanted, now)
                match now:
                    case steps.AddMember(node):
                        learners.add(node)
                    case steps.CatchingUp(node):
                        learners.discard(node)
                        voters.add(node)
                    case steps.RemoveMember(node):
                        assert node != leader
                        voters.discard(node)
                        learners.discard(node)
                    case steps.TransferLeadership(to):
                        assert to in voters
                        leader = to
                    case steps.Complete():
                        break
                    case steps.Wait():
                        raise AssertionError((start, wanted, voters, now))
                assert len(voters) >= fewest, (start, wanted, voters)
            assert voters == set(wanted) and not learners


@pytest.mark.specification("quorum-queues: balanced: If there are overall less")
def test_leaders_are_balanced() -> None:
    leaders = dict.fromkeys(range(9), "a")
    moves = dict(balanced(leaders, dict.fromkeys(range(9), "abc"), "abc"))
    after = [moves.get(group, "a") for group in range(9)]
    assert [after.count(node) for node in "abc"] == [3, 3, 3]
    assert balanced({0: "a", 1: "b"}, {0: "ab", 1: "ab"}, "ab") == []
    assert balanced({0: "a", 1: "b", 2: "a"}, dict.fromkeys(range(3), "ab"), "ab") == []
    assert balanced({0: "a", 1: "a"}, {0: "a", 1: "ab"}, "ab") == [(1, "b")]
    # A node that is to lead nothing (in maintenance) gives up what others can lead.
    assert balanced({0: "x", 1: "x"}, {0: "xa", 1: "x"}, "ab") == [(0, "a")]
    assert balanced({}, {}, "") == []
