"""Set-up for tests of members and their ids: `b` leads, or receives a CONFIG."""

from __future__ import annotations

from sim.one import NOW, One
from warren_raft.config import RaftConfig
from warren_raft.core.membership import encode
from warren_raft.messages import AnyRaftMessage, Append, ReadIndexHeartbeat, ReadIndexHeartbeatReply
from warren_raft.types import EntryKind, Membership

THREE = Membership(("a", "b", "c"))
HOLD = RaftConfig(promote_learners=False)


def leader(membership: Membership = THREE, config: RaftConfig | None = None) -> One:
    """Return a leader with a first entry that every member holds and knows committed."""
    one = One(membership=membership, config=config).lead()
    for member in (*membership.voters, *membership.learners):
        if member != "b":
            one.agree(member, 1, member=membership.id_of(member))
    for member in (*membership.voters, *membership.learners):
        if member != "b":
            one.agree(member, 1, commit=1, member=membership.id_of(member))
    assert one.node.commit == 1
    return one


def config(membership: Membership, prev: tuple[int, int], term: int, commit: int = 0) -> Append:
    """Return an Append from `a` with a CONFIG."""
    wire = ((term, EntryKind.CONFIG, NOW, encode(membership)),)
    return Append(1, "a", "b", term, *prev, commit, wire)


def sent(messages: list[AnyRaftMessage], kind: type, to: str) -> list[AnyRaftMessage]:
    """Return the messages of a kind to a member."""
    return [message for message in messages if type(message) is kind and message.to == to]


def catch_up(one: One, learner: str, member: int) -> list[AnyRaftMessage]:
    """Answer for a learner that holds everything, under its id."""
    out = one.agree(learner, one.node.last_index, one.node.commit, member)
    for message in sent(out, ReadIndexHeartbeat, learner):
        assert isinstance(message, ReadIndexHeartbeat)
        reply = ReadIndexHeartbeatReply(1, learner, "b", one.node.term, message.round, member)
        out = one.hear(reply)
    return out
