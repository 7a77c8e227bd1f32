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
    ],
)
def test_refusals_say_why(change: object, node: str) -> None:
    with pytest.raises(MembershipRefused, match=node):
        change(THREE, node)  # type: ignore[operator]


def test_the_last_voter_stays() -> None:
    with pytest.raises(MembershipRefused, match="delete the group"):
        membership.remove(Membership(("a",), ("b",)), "a")


def test_encoding() -> None:
    both = Membership(("a", "c"), ("b",))
    assert membership.decode(membership.encode(both)) == both
    with pytest.raises(StorageError, match="holds no membership"):
        membership.decode(b"\x93\x01\x02\x03")
