"""`warren cluster`: management of a local cluster."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.requests import RequestGroup
from warren.cli.target import DIRECTORY, Json
from warren.connection import Connection
from warren.errors import UsageError, WarrenError
from warren.local import LocalCluster, existing_cluster
from warren.local_node import STATE_FILE, LocalNode, PortTaken
from warren.uri import Address
from warren_wire.admin.cluster_version import (
    ClusterVersion,
    FinishUpgradeRequest,
    GetClusterVersionRequest,
)

cluster = RequestGroup(
    no_args_is_help=True,
    help="Start, inspect, stop a local cluster; see and raise the version of any cluster.",
)

Directory = Annotated[Path, typer.Option(help="directory of its configuration, data and logs")]
Node = Annotated[str, typer.Argument(help="the node's name, or its number from 0")]
STATUS_S = 3.0
PORT_FIRST = 5672
"""RabbitMQ's port, the default of every client."""
FORGET_S = 60.0


@cluster.command()
def start(
    nodes: Annotated[
        int, typer.Option(help="number of nodes; ignored for an existing cluster")
    ] = 3,
    directory: Directory = DIRECTORY,
    port: Annotated[
        int | None,
        typer.Option(
            help="the first node's for clients, the others' follow; without it: "
            f"{PORT_FIRST} where it is free, else any"
        ),
    ] = None,
) -> None:
    """Start the cluster (or those of its nodes that are not running)."""
    made = _cluster(nodes, directory, port).start()
    output.say(f"cluster of {len(made.nodes)} in {made.directory}")
    output.say(f"clients: {made.address} (password guest)")
    first = made.nodes[0]
    if port is None and first.amqp_port != PORT_FIRST:
        output.say(
            f"{first.name} listens on port {first.amqp_port}: {PORT_FIRST} was not free when it "
            "was made"
        )


def _cluster(nodes: int, directory: Path, port: int | None) -> LocalCluster:
    """Return the cluster in the directory, or a new one."""
    if (directory / STATE_FILE).exists():
        found = LocalCluster(nodes, directory, detached=True)
        if port is not None and found.nodes[0].amqp_port != port:
            raise UsageError(
                f"port {port}: the cluster in {directory} keeps its own, "
                f"{found.nodes[0].amqp_port}; leave --port out, or give another --directory"
            )
        return found
    if port is not None:
        return LocalCluster(nodes, directory, detached=True, port=port)
    try:
        return LocalCluster(nodes, directory, detached=True, port=PORT_FIRST)
    except PortTaken:
        return LocalCluster(nodes, directory, detached=True)


@cluster.command()
def stop(
    directory: Directory = DIRECTORY,
    delete: Annotated[bool, typer.Option("--delete", help="delete its data as well")] = False,
) -> None:
    """Stop every node."""
    found = existing_cluster(directory)
    found.stop()
    if delete:
        shutil.rmtree(found.directory)
    output.say(f"stopped{', deleted' if delete else ''}: {found.directory}")


@cluster.command()
def status(directory: Directory = DIRECTORY, json: Json = False) -> None:
    """Show which nodes run and which answer."""
    found = existing_cluster(directory)
    rows = []
    for i, node in enumerate(found.nodes):
        running = found.is_running(i)
        answers = "no"
        if running:
            address = found.node_address(i)
            try:
                with Connection(address) as connection:
                    connection.request("GET", "/overview", timeout_s=STATUS_S)
                    answers = "yes"
            except WarrenError as error:
                answers = str(error)
        rows.append((node.name, f"127.0.0.1:{node.amqp_port}", running, found.pid(i), answers))
    columns = ("node", "amqp", "running", "pid", "answers")
    if json:
        output.as_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        shown = [
            (name, amqp, running, str(pid), answers) for name, amqp, running, pid, answers in rows
        ]
        output.table("", columns, shown)


@cluster.command()
def kill(node: Node, directory: Directory = DIRECTORY) -> None:
    """Kill one node with SIGKILL, as a crash would."""
    found = existing_cluster(directory)
    which = _node(node, found)
    found.kill(which.name)
    output.say(f"killed {which.name}; `warren cluster start` restarts it")


@cluster.command()
def add_node(directory: Directory = DIRECTORY) -> None:
    """Start one more node, which joins the cluster."""
    made = existing_cluster(directory).add_node()
    output.say(f"{made.name} has joined; clients: 127.0.0.1:{made.amqp_port}")
    output.say(f"`warren queues grow {made.name} all --wait` gives it members of queues")


@cluster.command()
def wipe_node(node: Node, directory: Directory = DIRECTORY) -> None:
    """Kill one node with SIGKILL and delete its data, as a lost disk would."""
    found, which = _one_of_several(
        node,
        directory,
        "its data would be lost; `warren cluster stop --delete` deletes the cluster",
    )
    found.wipe_node(which.name)
    output.say(f"wiped {which.name}; `warren cluster start` restarts it, empty")


@cluster.command()
def remove_node(node: Node, directory: Directory = DIRECTORY) -> None:
    """Stop one node, remove it from the cluster, and delete its directory."""
    found, which = _one_of_several(node, directory, "`warren cluster stop --delete`")
    found.stop_node(which.name)
    others = tuple(("127.0.0.1", each.amqp_port) for each in found.nodes if each is not which)
    with Connection(Address(hosts=others)) as connection:
        Admin(connection).waiting(FORGET_S).nodes.forget(which.name)
    found.remove_node(which.name)
    output.say(f"removed {which.name}")


@cluster.command()
def overview(directory: Directory = DIRECTORY, json: Json = False) -> None:
    """Show which peers each node has, and which of them are alive."""
    with existing_cluster(directory).connect() as connection:
        seen = Admin(connection).overview()
    if json:
        output.as_json(seen)
        return
    rows = [(node["name"], node["address"], node["alive"]) for node in seen["nodes"]]
    output.table(f"as {seen['node']} sees it", ("node", "peers", "alive"), rows)


def _one_of_several(node: str, directory: Path, why: str) -> tuple[LocalCluster, LocalNode]:
    """Return the cluster and a node of it; UsageError, which ends with `why`, for the only one."""
    found = existing_cluster(directory)
    which = _node(node, found)
    if len(found.nodes) == 1:
        raise UsageError(f"{which.name} is the only node: {why}")
    return found, which


def _node(which: str, found: LocalCluster) -> LocalNode:
    return found.node(int(which) if which.isdigit() else which)


def _show_version(found: ClusterVersion) -> None:
    output.facts("cluster", {"version": found.version, "every node has": found.attainable})
    rows = [(one.name, f"{one.oldest} to {one.newest}", one.holds_back) for one in found.nodes]
    output.table("nodes", ("node", "versions", "holds it back"), rows)


cluster.shows("version", GetClusterVersionRequest, _show_version)
cluster.does(
    "finish-upgrade",
    FinishUpgradeRequest,
    lambda answer, **_: f"the cluster has version {answer.version}: its nodes cannot go back",
)
