"""What only a node itself knows: its settings, its clock, its disk, its certificates."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from warren_wire.admin.members import NodeRequest
from warren_wire.admin.requests import AdminRequest, route, seen

HIDDEN_SETTING: Final = "(hidden)"
"""In place of a secret's value."""


class NodeSetting(msgspec.Struct, frozen=True):
    """A setting of a node.

    name    with its tables, as `limits.heartbeat_s`
    value   HIDDEN_SETTING in place of a secret
    origin  where it comes from: a variable of the environment counts before the file
    meaning what it sets
    """

    name: Annotated[str, seen(column=True)]
    value: Annotated[Any, seen(column=True)]
    origin: Annotated[Literal["default", "file", "environment"], seen(column=True)]
    meaning: str


class CertificateFile(msgspec.Struct, frozen=True):
    """A file of certificates, and when the first of them ends, in milliseconds since the epoch."""

    file: str
    ends_at: int


class NodeCondition(msgspec.Struct, frozen=True):
    """What a node says of itself now.

    version       of its program
    clock_ms      its clock, in milliseconds since the epoch
    clock_off_ms  by how much that is ahead of the clock of the node that answers, as well as
                  round_trip_ms, the time of question and answer, lets it be known
    syncs, slow_syncs  of the log since its start, and those that took over `SLOW_SYNC_S`
    certificates  files that it uses, as they were when it started or a day ago at most
    audit_lost    records of the audit log that could not be written since its start
    loop_lag_ms, sync_ms  means since its start: by which timers of its loop were late, and of a
                          sync of the log
    wal_files, wal_bytes, segment_bytes  of its log: what was written last, and the rest
    """

    node: Annotated[str, seen(column=True)]
    version: Annotated[str, seen(column=True)]
    clock_ms: int
    clock_off_ms: Annotated[int, seen(column=True)] = 0
    round_trip_ms: Annotated[int, seen(column=True)] = 0
    syncs: Annotated[int, seen(column=True)] = 0
    slow_syncs: Annotated[int, seen(column=True)] = 0
    certificates: tuple[CertificateFile, ...] = ()
    audit_lost: int = 0
    loop_lag_ms: float = 0.0
    sync_ms: float = 0.0
    wal_files: int = 0
    wal_bytes: int = 0
    segment_bytes: int = 0


class GetSettingsRequest(NodeRequest[tuple[NodeSetting, ...]], frozen=True):
    """Return the settings of a node, with where each comes from; 404. Answer: Listed (NodeSetting).

    A node that is down, or of a version without them, is refused with 503.
    """

    ROUTES: ClassVar = (route("GET /nodes/:node/settings", "administrator", http=True),)


class ListConditionsRequest(AdminRequest[tuple[NodeCondition, ...]], frozen=True):
    """Return what each node within reach says of itself. Answer: Listed (NodeCondition)."""

    ROUTES: ClassVar = (route("GET /conditions", "monitoring", http=True),)
