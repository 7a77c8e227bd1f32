"""One member of one group: messages, proposals and events in, `Ready` out.

Nothing here waits, sends, writes or looks at a clock. A host calls, in any order,

    step, propose, tick, campaign, transfer_leader, peer_*, read_index   something happened
    ready                                                               what is to be done
    durable, applied_to                                                 what was done

`now_ms` is milliseconds since the epoch on a clock that never goes back (see runtime.clock); it is
compared with deadlines and stamped into entries.
"""

from __future__ import annotations

from random import Random

from warren_raft.config import RaftConfig
from warren_raft.core.ready import Ready, Role
from warren_raft.messages import AnyRaftMessage
from warren_raft.ports import LogStore
from warren_raft.types import GroupId, HardState, Index, Membership, NodeId, Term


class Node:
    """A member of a group; see the module."""

    def __init__(
        self,
        group: GroupId,
        node_id: NodeId,
        membership: Membership,
        hard_state: HardState,
        log: LogStore,
        config: RaftConfig,
        rng: Random,
        now_ms: int,
        preferred: NodeId | None = None,
    ) -> None:
        """Begin as a follower that knows no leader.

        hard_state, log  as they were on disk; all of the log is durable
        rng              may be shared by all groups of a node
        preferred        who campaigns at once when the group is new (term 0, empty log); the
                         others wait new_group_delay_ms longer. A group of one campaigns at once

        Nobody is suspected at first: a host tells `peer_suspected` for those that are.
        """
        raise NotImplementedError

    # ------------------------------------------------------------- something happened

    def step(self, message: AnyRaftMessage, now_ms: int) -> None:
        """Take a message of this group from a peer."""

    def propose(self, data: bytes, now_ms: int) -> Index:
        """Append a COMMAND; returns where it will stand if it is committed in `term`.

        Raises NotLeader (with a hint) on anybody but the leader, and while leadership is being
        handed over. The entry is lost if another leader's entry is committed at that index.
        """
        raise NotImplementedError

    def tick(self, now_ms: int) -> None:
        """Do what is due; harmless when nothing is."""

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` must be called at the latest; None: never, unless something happens."""
        raise NotImplementedError

    def campaign(self, now_ms: int) -> None:
        """Try to become the leader (pre-vote first); nothing on a learner or a leader."""

    def transfer_leader(self, to: NodeId, now_ms: int) -> None:
        """Hand leadership to a voter once it has everything; given up after transfer_timeout_ms.

        Raises NotLeader, or UsageError when `to` is no voter. Watch soft_state for the outcome.
        """

    def peer_suspected(self, node: NodeId, now_ms: int) -> None:
        """Nothing has been heard from that node for suspect_after_ms."""

    def peer_connected(self, node: NodeId, now_ms: int) -> None:
        """A connection was (re-)established, or a suspected node was heard of again.

        Must follow every `peer_suspected` when the suspicion ends: until then a leader sends
        that follower nothing.
        """

    def peer_restarted(self, node: NodeId, now_ms: int) -> None:
        """That node's process is a new one: it leads nothing. Implies peer_connected."""

    def read_index(self, context: int, now_ms: int) -> None:
        """Ask for an index at which a read is current; the answer is a ReadState in a Ready.

        On a follower the leader is asked; a lost message means no answer: ask again. Raises
        NotLeader when no leader is known, TooManyReads over reads_pending_max.
        """

    # ------------------------------------------------------------- what is to be done

    def ready(self) -> Ready | None:
        """Everything to be done since the last call; None: nothing. Call until None."""
        raise NotImplementedError

    # ------------------------------------------------------------- what was done

    def durable(self, sequence: int) -> None:
        """Everything that Readys up to `sequence` gave to write is on disk.

        Call `ready()` afterwards: a leader's own copy counts for the commit. What was truncated
        in the meantime is not vouched for, however late this comes.
        """

    def applied_to(self, index: Index) -> None:
        """Everything up to `index` is applied."""

    # ------------------------------------------------------------- how it stands

    @property
    def synced(self) -> int:
        """The highest sequence that `durable` was told; 0 at first."""
        raise NotImplementedError

    role: Role
    term: Term
    leader: NodeId | None
    membership: Membership

    @property
    def commit(self) -> Index:
        """Everything up to here is committed, as far as this member knows."""
        raise NotImplementedError

    @property
    def applied(self) -> Index:
        """Everything up to here is applied."""
        raise NotImplementedError

    @property
    def last_index(self) -> Index:
        """The last entry's index, durable or not."""
        raise NotImplementedError

    def check(self) -> None:
        """Assert every invariant."""
