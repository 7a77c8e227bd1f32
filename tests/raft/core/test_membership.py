"""One safe step from one membership to the next."""

from __future__ import annotations

import pytest

from warren_raft.core import membership
from warren_raft.errors import MembershipRefused, StorageError
from warren_raft.types import Membership

THREE = Membership(("a", "b", "c"))


def test_a_node_joins_as_a_learner_and_is_promoted() -> None:
    learning = membership.add_learner(THREE, "bb")
    assert learning == Membership(("a", "b", "c"), ("bb",))
    assert membership.promote(learning, "bb") == Membership(("a", "b", "bb", "c"))


def test_a_voter_has_its_id_and_keeps_it_through_what_happens_to_others() -> None:
    learning = membership.add_learner(THREE, "bb")
    voting = membership.promote(learning, "bb", 9)
    assert voting.ids == (("bb", 9),)
    assert (voting.id_of("bb"), voting.id_of("a"), voting.id_of("x")) == (9, 0, 0)
    assert voting.votes("bb", 9) and not voting.votes("bb", 0) and not voting.votes("x", 0)
    assert membership.remove(voting, "a").ids == (("bb", 9),)
    assert membership.add_learner(voting, "d").ids == (("bb", 9),)
    assert membership.demote(voting, "bb") == learning
    assert membership.remove(voting, "bb") == THREE


def test_the_last_voter_is_not_demoted() -> None:
    with pytest.raises(MembershipRefused, match="last voter"):
        membership.demote(Membership(("a",), ("b",)), "a")


def test_removal() -> None:
    assert membership.remove(THREE, "b") == Membership(("a", "c"))
    assert membership.remove(Membership(("a",), ("b",)), "b") == Membership(("a",))


@pytest.mark.parametrize(
    ("change", "node"),
    [
        (membership.add_learner, "a"),
        (membership.promote, "a"),
        (membership.promote, "x"),
        (membership.remove, "x"),
        (membership.demote, "x"),
    ],
)
def test_refusals_say_why(change: object, node: str) -> None:
    with pytest.raises(MembershipRefused, match=node):
        change(THREE, node)  # type: ignore[operator]


def test_the_last_voter_stays() -> None:
    with pytest.raises(MembershipRefused, match="delete the group"):
        membership.remove(Membership(("a",), ("b",)), "a")


def test_encoding() -> None:
    both = Membership(("a", "c"), ("b",), (("c", 2**64 - 1),))
    assert membership.decode(membership.encode(both)) == both
    assert membership.encode(Membership(("a",))).hex() == "9391a1619090", "on disks and wires"
    with pytest.raises(StorageError, match="holds no membership"):
        membership.decode(b"\x93\x01\x02\x03")
