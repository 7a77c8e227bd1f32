"""The cluster and its alarms, what its nodes count, and the requests for it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from warren_wire.admin.requests import AdminRequest, Result, route, seen

API_OLDEST = 2
API_VERSION = 2
"""2: a sink's batches belong to runs, published by name and number of blocks; 1: without runs.

Another version is a change that a client of the one before would not understand. The node serves
all from API_OLDEST on, and a client uses the newest one that both have.
"""
API_PROPERTY = "warren-api"
"""Of the node's Open: "OLDEST-NEWEST", see `api_spoken`."""
API_OFFERED = f"{API_OLDEST}-{API_VERSION}"


def api_spoken(offered: str, oldest: int = API_OLDEST, newest: int = API_VERSION) -> int:
    """Return the version that a client and a node with that API_PROPERTY speak; 0: none."""
    least, _, most = offered.partition("-")
    if not (least.isdecimal() and most.isdecimal()):
        return 0
    common = min(int(most), newest)
    return common if common >= max(int(least), oldest) else 0


class OverviewNode(msgspec.Struct, frozen=True):
    """A node as the answering node sees it."""

    name: str
    address: str
    alive: bool


class Overview(Result, frozen=True):
    """The answering node and its cluster.

    api, api_oldest  newest and oldest version of the requests that `/management` supports
    cluster_name  the name under which the cluster is shown; "": `cluster`, its own
    """

    node: str
    cluster: str
    version: str
    nodes: tuple[OverviewNode, ...]
    api: Annotated[int, seen(amqp="uint")] = API_VERSION
    cluster_name: str = ""
    api_oldest: Annotated[int, seen(amqp="uint")] = API_OLDEST


class AlarmInfo(msgspec.Struct, frozen=True):
    """A resource on which a node is low: memory or disk."""

    node: str
    resource: str


class LedTotals(msgspec.Struct, frozen=True):
    """Sums over the queues of a vhost that a node leads; messages: all but staged ones."""

    messages: int = 0
    messages_ready: int = 0
    messages_unacknowledged: int = 0
    consumers: int = 0


class NodeAbout(msgspec.Struct, frozen=True):
    """What stays the same while a node runs.

    mechanisms   of SASL, which are offered
    plugins      RabbitMQ's names of the plugins that are served here
    http         ports of the HTTP API as configured: protocol, address and port, 0: any free one
    sockets_max  connections that are accepted
    """

    version: str
    python: str
    openssl: str
    data_dir: str
    config_files: tuple[str, ...]
    log_files: tuple[str, ...]
    mechanisms: tuple[str, ...]
    plugins: tuple[str, ...]
    http: tuple[tuple[str, str, int], ...]
    rates_mode: str
    sockets_max: int


class NodeTotals(msgspec.Struct, frozen=True):
    """What a node counts.

    boot      differs from one start of the node to the next
    at_ms     of the node's own clock, which goes evenly: for differences
    counters  since its start (`counters.FAMILIES`), each the sum over its labels
    vhosts    sums over the queues that it leads
    connections, channels  with an open vhost; of AMQP 0.9.1
    mem_used … uptime      of the process and its disk, in bytes and milliseconds
    sync_ms   mean time of a sync of the log
    about     None: for those without the tag `monitoring`
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
    sync_ms: float = 0.0
    about: NodeAbout | None = None


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


class GetOverviewRequest(AdminRequest[dict[str, Any]], frozen=True):
    """Return the answering node, its cluster and the cluster's nodes. Answer: Overview."""

    ROUTES: ClassVar = (route("GET /overview", "management"),)


class ListAlarmsRequest(AdminRequest[list[AlarmInfo]], frozen=True):
    """Return the resource alarms by node and resource; any tag may see them.

    Answer: Listed (AlarmInfo).
    """

    ROUTES: ClassVar = (route("GET /alarms", "management"),)


class GetTotalsRequest(AdminRequest[ClusterTotals], frozen=True):
    """Return what the nodes count, for the HTTP API's overview. Answer: ClusterTotals.

    counts  False: no node is asked
    """

    ROUTES: ClassVar = (route("GET /totals", "management"),)
    counts: bool = True
