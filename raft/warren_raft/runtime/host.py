"""Many groups of one node over one loop, one log and one connection per peer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from warren_raft.errors import NotLeader, UsageError
from warren_raft.machine import GroupSpec, Machine
from warren_raft.runtime.config import Address, HostConfig
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.observer import Observer
from warren_raft.runtime.stream import Buffer
from warren_raft.types import Entry, GroupId, Index, Membership, NodeId

MessageHandler = Callable[[NodeId, memoryview], None]
"""Gets an application message: the sender, and its bytes (valid for as long as they are held)."""


class UnknownGroup(UsageError):
    """That group was not started on this node."""


class Host:
    """This node's member of every group. Not thread-safe: the loop's thread only.

    What is asked for in a turn (proposals, messages) leaves at the turn's end, see
    `loop.Stage`: propose in GATHER or earlier, write to clients in DELIVER or FLUSH.
    """

    node_id: NodeId
    boot_id: int

    def __init__(
        self,
        config: HostConfig,
        loop: Loop,
        observer: Observer,
        on_message: MessageHandler | None = None,
    ) -> None:
        """Nothing is touched yet."""
        raise NotImplementedError

    def start(self) -> None:
        """Lock the directory, recover the log, listen, connect.

        raises  StorageError: the directory is another node's, in use, or damaged; OSError: the port
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Finish the write under way, close the files and connections."""
        raise NotImplementedError

    @property
    def port(self) -> int:
        """Where peers reach this node."""
        raise NotImplementedError

    def add_peer(self, node: NodeId, address: Address) -> None:
        """A member whose address became known, or changed."""
        raise NotImplementedError

    # ------------------------------------------------------------ groups

    def stored_groups(self) -> tuple[GroupId, ...]:
        """Groups found on disk or started, ascending; those nobody wants should be deleted."""
        raise NotImplementedError

    def groups(self) -> tuple[GroupId, ...]:
        """The started groups, ascending."""
        raise NotImplementedError

    def start_group(self, spec: GroupSpec, machine: Machine[Any]) -> None:
        """Take part in a group: a new one, or one found on disk (which is replayed as it commits).

        A group of one that is on disk, or volatile, leads at once: it is applied, and the observer has
        heard of it, in this turn or the next ones. Starting a started group does nothing.
        """
        raise NotImplementedError

    def delete_group(self, group: GroupId) -> None:
        """Leave a group and forget its log; unknown ones are ignored."""
        raise NotImplementedError

    def propose(self, group: GroupId, data: bytes) -> Index:
        """Append a command to the group's log; `Observer.applied` tells when it has been applied.

        returns  the index it has if this leader's term lasts; another entry may take it otherwise
        raises   NotLeader, UnknownGroup
        """
        raise NotImplementedError

    def transfer(self, group: GroupId, to: NodeId) -> None:
        """Hand the leadership over when `to` has caught up; nothing happens if that takes too long.

        raises  NotLeader, UnknownGroup
        """
        raise NotImplementedError

    def leader(self, group: GroupId) -> NodeId | None:
        """Who leads, as far as this node knows; None: nobody, or the group is unknown."""
        raise NotImplementedError

    def term(self, group: GroupId) -> int:
        """The group's term as this member knows it; 0: unknown."""
        raise NotImplementedError

    def is_leader(self, group: GroupId) -> bool:
        """This node leads and has applied everything before its term (`became_leader` was called)."""
        raise NotImplementedError

    def state(self, group: GroupId) -> Any:
        """The machine's state as applied here; raises UnknownGroup. Read it, do not change it."""
        raise NotImplementedError

    def applied_index(self, group: GroupId) -> Index:
        """The last entry in `state`."""
        raise NotImplementedError

    def members(self, group: GroupId) -> Membership:
        """Who is in the group; raises UnknownGroup."""
        raise NotImplementedError

    def read_entry(self, group: GroupId, index: Index) -> Entry:
        """An entry, from memory or disk; raises UnknownGroup, KeyError when it is not held."""
        raise NotImplementedError

    # ------------------------------------------------------------ peers

    def send(self, node: NodeId, buffers: Iterable[Buffer]) -> bool:
        """One application message to the peer's handler, in order, at most once.

        returns  False when there is no connection: it is lost. `peer_down` tells of messages lost later.
        """
        raise NotImplementedError

    def connected(self, node: NodeId) -> bool:
        """A connection with that node stands."""
        raise NotImplementedError

    def suspected(self, node: NodeId) -> bool:
        """That peer has not been heard of for too long; itself never."""
        raise NotImplementedError

    def peer_boot_id(self, node: NodeId) -> int | None:
        """The last life of that node this one has met."""
        raise NotImplementedError

    def peer_backlog_bytes(self, node: NodeId) -> int:
        """Unsent bytes on the connection; 0 without one."""
        raise NotImplementedError
