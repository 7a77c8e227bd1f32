"""The state that only a candidate, or only a leader, has."""

from __future__ import annotations

from warren_raft.core.last_copies import LastCopies
from warren_raft.core.progress import Progress
from warren_raft.core.quorum import majority
from warren_raft.core.read_index import PendingReads
from warren_raft.messages import WireEntry
from warren_raft.types import Index, Membership, NodeId


class Candidacy:
    """The answers to one election attempt.

    sequence  the write that holds this member's vote for itself; None: not taken by the host yet.
              The vote counts once that write is done, like any other
    """

    __slots__ = ("answers", "sequence")

    def __init__(self) -> None:
        self.answers: dict[NodeId, bool] = {}
        self.sequence: int | None = None


class Leadership:
    """The state that a leader has for as long as it leads.

    first           index of its NOOP: from here on every entry is of its own term, and only
                    these are committed by counting (Raft paper, 5.4.2)
    progress        of every other member, voters and learners, and of those that are being removed
    counting        of the other voters that answer under the right id, and a 0 for each voter
                    whose copy does not count
    unsettled       whether there may be something for membership_change.settle to do
    transfer_to     the voter that leadership is being transferred to; nothing is proposed meanwhile
    transfer_by_ms  when the transfer is aborted
    commit_due_ms   when the followers that do not know what is committed are told; None: all do
    confirm_due_ms  when the round of reads is repeated; None: no round is open
    late            the followers beyond a majority, which are sent small appends later
    wire            the last batch built, shared by followers at the same index:
                    (first, last of the log, bytes_max) and (entries, size)
    """

    __slots__ = (
        "absent",
        "commit_due_ms",
        "confirm_due_ms",
        "counting",
        "first",
        "late",
        "progress",
        "reads",
        "transfer_by_ms",
        "transfer_to",
        "unsettled",
        "wire",
        "wire_key",
    )

    def __init__(self, last: Index) -> None:
        self.first: Index = last + 1
        self.progress: dict[NodeId, Progress] = {}
        self.counting: tuple[Progress, ...] = ()
        self.absent: list[Index] = []
        self.unsettled = True
        self.reads = PendingReads()
        self.transfer_to: NodeId | None = None
        self.transfer_by_ms = 0
        self.commit_due_ms: int | None = None
        self.confirm_due_ms: int | None = None
        self.late = LastCopies(last)
        self.wire_key: tuple[Index, Index, int] = (0, 0, 0)
        self.wire: tuple[tuple[WireEntry, ...], int] = ((), 0)

    def check(self, last: Index, members: Membership, votes: bool) -> None:
        """Assert that every follower's progress lies in the log, and that the right ones count.

        last, members, votes  of this leader: its log's end, its membership, whether it is a voter
        """
        for member, progress in self.progress.items():
            progress.check()
            assert progress.next <= last + 1, (member, progress.next, last)
            assert (member in members) != bool(progress.leaving), member
        assert len(self.counting) + len(self.absent) + votes == len(members.voters)
        for progress in self.counting:
            (voter,) = (v for v in members.voters if self.progress.get(v) is progress)
            assert progress.member == members.id_of(voter), (voter, progress.member)
        self.late.check(self.counting, majority(len(members.voters)) - votes)
        self.reads.check()
