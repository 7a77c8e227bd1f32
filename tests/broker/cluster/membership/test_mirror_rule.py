"""From a mirror policy to members: which last, and which are wanted on the way there."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from warren_broker.cluster.membership.mirror_follower import (
    is_fulfilled,
    lasting_members,
    next_members,
)
from warren_wire.mirror_keys import MirrorPolicy

ALL = MirrorPolicy("all")


def exactly(count: int) -> MirrorPolicy:
    """A number of members."""
    return MirrorPolicy("exactly", count=count)


def nodes(*names: str) -> MirrorPolicy:
    """Members on these nodes."""
    return MirrorPolicy("nodes", nodes=names)


def lasting(
    policy: MirrorPolicy,
    present: str,
    known: str = "abcde",
    complete: str | None = None,
    fit: str | None = None,
) -> str:
    """The members that last; by default each member holds everything, every node is fit."""
    found = lasting_members(
        policy, present, present if complete is None else complete, known, fit or known
    )
    return "".join(found)


@pytest.mark.parametrize(
    ("policy", "present", "found"),
    [
        (ALL, "b", "abcde"),
        (exactly(1), "cab", "c"),
        (exactly(2), "cab", "ac"),
        (exactly(3), "cab", "abc"),
        (exactly(4), "dab", "abcd"),
        (exactly(9), "a", "abcde"),
        (nodes("c", "d"), "ab", "cd"),
        (nodes("a", "x"), "bc", "a"),
        (nodes("x", "y"), "bc", "bc"),
        (nodes("e"), "e", "e"),
    ],
)
@pytest.mark.specification("mirrored-queues: If there are fewer than count nodes")
def test_the_members_that_last(policy: MirrorPolicy, present: str, found: str) -> None:
    assert lasting(policy, present) == found


@pytest.mark.specification("mirrored-queues: Whenever the HA policy for a queue changes")
def test_members_that_hold_everything_stay_before_others() -> None:
    assert lasting(exactly(2), "abcd", complete="db") == "bd"
    assert lasting(exactly(3), "abcd", complete="db") == "abd"
    assert lasting(exactly(1), "ab", complete="b") == "b"


def test_a_down_member_keeps_its_place_and_unfit_nodes_none() -> None:
    assert lasting(exactly(3), "abc", complete="ab", fit="abde") == "abc"
    assert lasting(exactly(3), "a", complete="a", fit="ea") == "ae"
    assert not is_fulfilled(exactly(3), "ae", "abcde")


def test_a_node_that_leaves_the_cluster_is_replaced() -> None:
    assert lasting(exactly(3), "abc", known="abde", complete="ab", fit="deab") == "abd"
    assert lasting(nodes("b", "c"), "bc", known="abde") == "b"
    assert lasting(ALL, "abcde", known="abde") == "abde"


@pytest.mark.parametrize(
    ("final", "present", "complete", "found"),
    [
        # The document's example, [A B] to [C D]: each new member that is complete releases one.
        ("cd", "ab", "ab", "abcd"),
        ("cd", "abcd", "abc", "acd"),
        ("cd", "acd", "acd", "cd"),
        # A listed node is down: one former member stays for it, the leader before others.
        ("cd", "abcd", "bac", "bcd"),
        # What is down or has lost its disk is no copy to keep.
        ("cd", "abcd", "a", "acd"),
        ("abc", "a", "a", "abc"),
        ("a", "abc", "abc", "a"),
        ("a", "ab", "b", "ab"),
        ("b", "ab", "a", "ab"),
        # What is complete but not wanted may be removed at any moment.
        ("b", "a", "ab", "ab"),
        # None that is wanted is complete: they stay until a new one is.
        ("c", "b", "a", "bc"),
        ("c", "bc", "ac", "c"),
    ],
)
@pytest.mark.specification("mirrored-queues: if a queue is on [A B]")
def test_the_members_on_the_way(final: str, present: str, complete: str, found: str) -> None:
    assert "".join(next_members(final, present, complete)) == found


@pytest.mark.specification("mirrored-queues: RabbitMQ will keep the existing master around")
def test_there_are_never_fewer_complete_copies_than_before_or_wanted() -> None:
    """Whatever is complete, down or new: every combination for four nodes."""
    names = "abcd"
    for bits in product((0, 1, 2, 3), repeat=4):
        present = [node for node, bit in zip(names, bits, strict=True) if bit >= 2]
        complete = [node for node, bit in zip(names, bits, strict=True) if bit == 3]
        for size in range(1, 5):
            for first in range(4):
                final = sorted((names + names)[first : first + size])
                wanted = next_members(final, present, complete)
                copies = [node for node in complete if node in wanted]
                assert set(final) <= set(wanted) <= {*final, *(complete or present)}
                assert len(copies) >= min(len(complete), len(final)), (final, present, complete)


@pytest.mark.parametrize("seed", range(40))
def test_every_queue_arrives_and_then_stays(seed: int) -> None:
    """Policies change; nodes catch up in any order; the leader may be any complete member."""
    rng = Random(seed)
    known = "abcde"
    present: tuple[str, ...] = tuple(sorted(rng.sample(known, rng.randint(1, 5))))
    complete = list(present)
    for _ in range(4):
        policy = rng.choice([ALL, exactly(rng.randint(1, 6)), nodes(*rng.sample(known, 2))])
        for _ in range(20):
            rng.shuffle(complete)
            fit = rng.sample(known, 5)
            final = lasting_members(policy, present, complete, known, fit)
            wanted = next_members(final, present, complete)
            assert set(wanted) & set(complete), "no copy would be left"
            if wanted == present and wanted == final and set(wanted) == set(complete):
                break
            present = wanted
            complete = [node for node in complete if node in wanted]
            coming = [node for node in wanted if node not in complete]
            if coming:
                complete.append(rng.choice(coming))
        else:
            raise AssertionError(f"{policy} is not reached from {present}")
        assert is_fulfilled(policy, present, known)
