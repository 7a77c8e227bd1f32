"""What a backup copies, one group at a time, and the requests for it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from warren_wire.admin.requests import AdminRequest, Natural, NodeName, Result, route, seen

DEFINITIONS_GROUP: Final = 0
"""The group of the cluster's definitions; the others are queues'."""
BackupPart = Literal["snapshot", "entries", "live", "queues"]


class HeldGroup(Result, frozen=True):
    """A group's snapshot that a member holds for a backup.

    node, hold          name it in the requests that read it
    index, term         the entry up to which everything is in it
    time_ms             of that entry
    members             of the group
    cluster, cluster_id of the cluster: its name, and the id that tells it from its copies
    """

    node: str
    hold: Annotated[int, seen(amqp="ulong")]
    index: Annotated[int, seen(amqp="ulong")]
    term: Annotated[int, seen(amqp="ulong")]
    time_ms: Annotated[int, seen(amqp="ulong")]
    members: tuple[str, ...]
    cluster: str
    cluster_id: str
    cluster_version: int = 1


class HeldPiece(Result, frozen=True):
    """Some bytes of a part; position, offset: of the next ones; more: whether there are any."""

    data: bytes
    position: Annotated[int, seen(amqp="ulong")]
    offset: Annotated[int, seen(amqp="ulong")]
    more: bool


class QueueRow(msgspec.Struct, frozen=True, array_like=True):
    """A queue that the definitions name, in the part `queues` of group 0.

    copied   its messages outlive its node: they belong into a backup
    letters  it may send dead letters to others, so it is copied before those that do not
    """

    vhost: str
    name: str
    group: int
    copied: bool
    letters: bool


class HoldGroupRequest(AdminRequest[HeldGroup], frozen=True):
    """Hold a snapshot of a group at a member, for a backup; 404 when there is no such group.

    It is released by the request for that, a minute after the last read, and when the disk is low
    on space. Until then the member releases nothing of the group. Answer: HeldGroup.
    """

    ROUTES: ClassVar = (route("POST /backup/groups/:group", "administrator"),)
    group: Natural


class ReadHeldRequest(AdminRequest[HeldPiece], frozen=True):
    """Read the next bytes of a held snapshot; 404 when it is held no more.

    part      snapshot: the file; entries: those that it refers to, ascending, as
              `warren_wire.backups.entries` has them; live: the indexes of these, u64 each,
              little-endian; queues: of group 0, a MessagePack array of QueueRow
    position  entries: of those after that index; else the number of bytes that were read
    offset    bytes of the next entry that were read already

    Answer: HeldPiece.
    """

    ROUTES: ClassVar = (route("GET /backup/nodes/:node/held/:hold/:part", "administrator"),)
    node: NodeName
    hold: Natural
    part: BackupPart
    position: Natural = 0
    offset: Natural = 0


class ReleaseHeldRequest(AdminRequest[None], frozen=True):
    """Release a held snapshot. Answer: Performed."""

    ROUTES: ClassVar = (route("DELETE /backup/nodes/:node/held/:hold", "administrator"),)
    node: NodeName
    hold: Natural
