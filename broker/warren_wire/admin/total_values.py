"""What the nodes of a cluster count, as `/management` shows it."""

from __future__ import annotations

import msgspec


class LedTotals(msgspec.Struct, frozen=True):
    """Sums over the queues of a vhost that a node leads; messages: all but staged ones."""

    messages: int = 0
    messages_ready: int = 0
    messages_unacknowledged: int = 0
    consumers: int = 0


class NodeTotals(msgspec.Struct, frozen=True):
    """What a node counts.

    boot      differs from one start of the node to the next
    at_ms     of the node's own clock, which goes evenly: for differences
    counters  since its start (`counters.FAMILIES`), each the sum over its labels
    vhosts    sums over the queues that it leads
    connections, channels  with an open vhost; of AMQP 0.9.1
    mem_used … uptime      of the process and its disk, in bytes and milliseconds
    """

    node: str
    boot: int
    at_ms: int
    counters: dict[str, int]
    vhosts: dict[str, LedTotals]
    connections: int
    channels: int
    mem_used: int
    mem_limit: int
    disk_free: int
    disk_free_limit: int
    fd_total: int
    os_pid: int
    processors: int
    uptime: int
    fd_used: int = 0
    sockets_used: int = 0


class DefinedTotals(msgspec.Struct, frozen=True):
    """Numbers of objects that a vhost has by the definitions."""

    queues: int
    exchanges: int


class ClusterTotals(msgspec.Struct, frozen=True):
    """The vhosts that the user sees, and what the nodes within reach count in them.

    nodes  with counters and numbers of clients for those with the tag `monitoring` alone
    """

    vhosts: dict[str, DefinedTotals]
    nodes: tuple[NodeTotals, ...] = ()
