"""A single member, `b` of `a b c`, driven by the messages of a test."""

from __future__ import annotations

from random import Random

from sim.disk import Log
from warren_raft.config import RaftConfig
from warren_raft.core.raft_node import RaftNode
from warren_raft.core.ready import Ready, Role
from warren_raft.messages import (
    AnyRaftMessage,
    Append,
    AppendReply,
    PreVoteReply,
    VoteReply,
    WireEntry,
)
from warren_raft.types import Entry, EntryKind, HardState, Membership

NOW = 1_000_000
VOTERS = ("a", "b", "c")


class One:
    """A member and its disk, which syncs at once by default; `readys`: the Readys taken."""

    def __init__(
        self,
        *terms: int,
        term: int | None = None,
        vote: str | None = None,
        voters: tuple[str, ...] = VOTERS,
        config: RaftConfig | None = None,
        membership: Membership | None = None,
        member_id: int = 0,
    ) -> None:
        """terms: the terms of the existing entries, all COMMANDs."""
        self.log = Log(
            [Entry(1 + at, t, EntryKind.COMMAND, NOW, b"%d" % at) for at, t in enumerate(terms)]
        )
        hard = HardState(max(terms, default=0) if term is None else term, vote)
        self.node = RaftNode(
            1,
            "b",
            membership or Membership(voters),
            hard,
            self.log,
            config or RaftConfig(),
            Random(5),
            NOW,
            member_id=member_id,
        )
        self.hard = hard
        self.committed: list[Entry] = []
        self.readys: list[Ready] = []

    def out(self, sync: bool = True) -> list[AnyRaftMessage]:
        """Return everything it sends now, after the disk's answer if `sync`."""
        sent: list[AnyRaftMessage] = []
        while (ready := self.node.ready()) is not None:
            self.readys.append(ready)
            if ready.hard_state is not None:
                self.hard = ready.hard_state
            if ready.entries:
                self.log.put(ready.entries)
            sent += ready.messages
            self.committed += ready.committed
            if ready.committed:
                self.node.applied_to(ready.committed[-1].index)
            if sync:
                sent += ready.messages_after_sync
                if ready.writes:
                    self.node.durable(ready.sequence)
        self.node.check()
        return sent

    def hear(self, message: AnyRaftMessage, sync: bool = True) -> list[AnyRaftMessage]:
        """Deliver a message; return the answers."""
        self.node.step(message, NOW)
        return self.out(sync)

    def lead(self) -> One:
        """Elect it and let it send its first entry."""
        self.node.campaign(NOW)
        asked = self.out()
        for voter in self.node.membership.voters:
            if self.node.role is Role.PRE_CANDIDATE and voter != "b":
                self.hear(PreVoteReply(1, voter, "b", asked[0].term, True))
        for voter in self.node.membership.voters:
            if self.node.role is Role.CANDIDATE and voter != "b":
                mine = self.node.member_id
                self.hear(VoteReply(1, voter, "b", self.node.term, True, mine))
        self.out()
        assert self.node.role is Role.LEADER
        return self

    def agree(
        self, sender: str, index: int, commit: int = 0, member: int = 0
    ) -> list[AnyRaftMessage]:
        """Acknowledge everything up to index for a follower."""
        return self.hear(
            AppendReply(1, sender, "b", self.node.term, True, index, commit, member=member)
        )


def append(
    term: int, prev: tuple[int, int], *terms: int, commit: int = 0, sender: str = "a"
) -> Append:
    """Return an Append of COMMANDs in those terms after `prev`, (index, term)."""
    wire: tuple[WireEntry, ...] = tuple(
        (t, EntryKind.COMMAND, NOW, b"%d" % (prev[0] + at)) for at, t in enumerate(terms)
    )
    return Append(1, sender, "b", term, *prev, commit, wire)
