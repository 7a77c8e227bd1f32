"""Messages that no member sends while Raft holds: refused, and the member stays as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.one import One, append
from warren_raft import messages as rpc
from warren_raft.core.ready import Role
from warren_raft.errors import ImpossibleMessage
from warren_raft.messages import AnyRaftMessage


def leading() -> One:
    one = One(1, 2)
    one.lead()
    one.out()
    return one


def following() -> One:
    one = One(1, 2)
    one.hear(append(2, (2, 2), sender="a"))
    return one


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (leading, lambda one: append(one.node.term, (2, 2), sender="c")),
        (following, lambda one: append(2, (2, 2), 2, sender="c")),
        (leading, lambda one: rpc.AppendReply(1, "a", "b", one.node.term, True, 99, 0)),
        (leading, lambda one: rpc.ReadIndexHeartbeatReply(1, "a", "b", one.node.term, 99)),
    ],
)
def test_a_peers_claim_that_cannot_be_ends_no_member(
    make: Callable[[], One], message: Callable[[One], AnyRaftMessage]
) -> None:
    one = make()
    node = one.node
    before = (node.role, node.term, node.leader, node.last_index, node.commit)
    with pytest.raises(ImpossibleMessage, match="copies of one data directory"):
        one.hear(message(one))
    assert one.out() == []
    assert (node.role, node.term, node.leader, node.last_index, node.commit) == before
    one.hear(rpc.Vote(1, "c", "b", node.term + 1, 9, node.term))
    assert node.role is Role.FOLLOWER, "it goes on"
