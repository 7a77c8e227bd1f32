"""`warren nodes`: the nodes of a cluster."""

from __future__ import annotations

import msgspec
import typer

from warren.admin import Admin
from warren.admin.membership import describe_member
from warren.cli import output
from warren.cli.long_command import LongCall, long_command
from warren.cli.members import Node
from warren.cli.requests import RequestGroup
from warren.cli.target import Json, Uri, connect
from warren_wire.admin.members import GetNodeRequest, ListNodesRequest, NodeInfo, NodeStatus
from warren_wire.admin.node_facts import GetSettingsRequest, ListConditionsRequest

EXIT_CRITICAL = 69
"""The exit code of `rabbitmq-queues check_if_node_is_quorum_critical` (sysexits: unavailable)."""

nodes = RequestGroup(
    no_args_is_help=True, help="List nodes, put them into maintenance, remove them from a cluster."
)


def _state(node: NodeInfo) -> str:
    words = ["running" if node.running else "down"]
    words += ["in maintenance"] if node.drained else []
    words += ["being forgotten"] if node.forgetting else []
    words += [f"{resource} alarm" for resource in node.alarms]
    return ", ".join(words)


nodes.lists(
    "list", ListNodesRequest, columns={"name": "name", "address": "address", "state": _state}
)


def _show(found: NodeStatus) -> None:
    node = found.node
    output.facts(
        node.name,
        {
            "address": node.address,
            "state": _state(node),
            "definitions": node.metadata,
            "members of quorum queues": node.members,
            "leads": node.leaders,
            "queues only on it": node.local_queues,
            "members in transit": node.moving,
        },
    )
    if found.moving:
        rows = [(each.vhost, each.name, describe_member(each.member)) for each in found.moving]
        output.table("members in transit", ("vhost", "queue", "member"), rows)


nodes.shows("status", GetNodeRequest, _show)
nodes.lists(
    "settings", GetSettingsRequest, text="List the settings of a node, with where each comes from."
)
nodes.lists("conditions", ListConditionsRequest)


@long_command(nodes)
def drain(node: Node, call: LongCall) -> None:
    """Put a node into maintenance: no clients, no leaders, no new members.

    Then check that it is not quorum critical, stop it, start it: that ends its maintenance.
    """
    with call.begin(f"draining {node}") as admin:
        found = admin.nodes.drain(node)
    output.one(found, call.json, _show)


@long_command(nodes)
def revive(node: Node, call: LongCall) -> None:
    """End a node's maintenance; `warren queues rebalance` gives it leaders again."""
    with call.begin(f"reviving {node}") as admin:
        found = admin.nodes.revive(node)
    output.one(found, call.json, _show)


@long_command(nodes)
def forget(node: Node, call: LongCall) -> None:
    """Remove a stopped node from the cluster permanently, with its members of queues.

    Queues that were only on it are deleted. Its data directory can never join this cluster again.
    """
    with call.begin(f"forgetting {node}") as admin:
        found = admin.nodes.forget(node)
    if call.json:
        output.as_json(found)
        return
    if found.lost:
        output.table("queues that were only on it", ("vhost", "queue"), found.lost)
    if len(found.lost) < found.lost_count:
        output.say(f"({found.lost_count - len(found.lost):,} more are not shown)")
    output.say(
        f"{node} is {'forgotten' if call.waits else 'being forgotten'}: {found.queues:,} queues "
        f"give up their member there, {found.lost_count:,} that were only on it are deleted"
    )


@nodes.command()
def check_if_quorum_critical(node: Node, uri: Uri = None, json: Json = False) -> None:
    """Check whether queues would lose their majority if the node stopped: exit code 69 if so.

    Run it before a node is stopped, and in scripts that restart one node after the other.
    """
    with connect(uri) as connection:
        found = Admin(connection).nodes.quorum_critical(node)
    if json:
        output.as_json({"result": "ok" if found.safe else "error", **msgspec.structs.asdict(found)})
    elif found.safe:
        output.say(f"{found.node} may be stopped: every queue keeps its majority")
    else:
        if found.metadata:
            output.fail(f"the cluster's definitions become unavailable if {found.node} stops")
        for queue in found.queues:
            output.fail(
                f"queue '{queue.name}' in vhost '{queue.vhost}' becomes unavailable if "
                f"{found.node} stops"
            )
        more = found.count - len(found.queues)
        output.fail(
            (f"and {more:,} more; " if more else "")
            + "wait until the other members are running and caught up (`warren nodes list`, "
            "`warren queues members QUEUE`), or give these queues more members"
        )
    if not found.safe:
        raise typer.Exit(EXIT_CRITICAL)
