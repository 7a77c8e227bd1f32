"""The contract of a replicated state machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from warren_raft.types import Index, NodeId, Term

State = TypeVar("State")


class Meta(msgspec.Struct, frozen=True, gc=False):
    """The index and time of a command; the only clock that a machine has.

    time_ms  the leader's stamp in the entry, milliseconds since the epoch, never decreasing
    """

    index: Index
    term: Term
    time_ms: int


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The result of a command.

    reply    for the caller that proposed it; None: no reply
    effects  values to be carried out by the leader, in this order; each may be carried out
             twice or never (a leader that crashes in between), so they must be repeatable
    frees    about how many bytes of entries the state does not refer to any more, where that is
             known at once and may be much: the snapshot policy looks sooner
    """

    reply: Any = None
    effects: tuple[Any, ...] = ()
    frees: int = 0


class Machine(Protocol, Generic[State]):
    """A function of (meta, command, state).

    `apply` changes the state it is given and nothing else, and depends on nothing but its
    arguments. It raises nothing (a refused command is a reply, bytes that are none are a no-op on
    every member) but VersionNeeded, for a command of a version that this program has not: another
    member may carry it out, so that skipping it would make the states differ.
    """

    def init(self) -> State:
        """Return the state before the first entry."""

    def apply(self, meta: Meta, command: bytes, state: State) -> Applied:
        """Apply one command."""

    def leader_effects(self, state: State) -> tuple[Any, ...]:
        """Return the effects of a new leader, once it has applied its term's first entry."""

    def form(self, state: State) -> int:
        """Return the version in the form of which `snapshot` gives that state.

        It is that of the newest command applied, not of this program: every member reads that.
        """

    def snapshot(self, state: State) -> bytes:
        """Return the state as bytes; equal states give equal bytes (this is the digest's input)."""

    def restore(self, data: bytes) -> State:
        """Invert `snapshot`; may raise any error for other bytes."""

    def live_indexes(self, state: State) -> Sequence[Index]:
        """Return the indexes of the entries that the state still refers to, ascending.

        `index_set.Indexes` when there may be many: the loop waits for this, and for `snapshot`.
        """


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The parameters with which a host starts its member of a group.

    voters     of a new group: its founders, this node among them; when joining: nodes to ask for
               the leader. For a group found on disk, the stored membership is used
    volatile   the log lives in memory (a group of one for transient queues)
    preferred  the node that should campaign first when the group is new
    joining    the group exists on other nodes: this member begins with an empty log and a new
               member id, does not vote, and takes part once the group's leader adds it
    """

    group: int
    voters: tuple[NodeId, ...]
    volatile: bool = False
    preferred: NodeId | None = None
    joining: bool = False
