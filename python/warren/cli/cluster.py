"""`warren cluster`: a local cluster by hand."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.target import DIRECTORY, Json
from warren.connection import Connection
from warren.errors import UsageError, WarrenError
from warren.local import LocalCluster, existing_cluster

cluster = typer.Typer(no_args_is_help=True, help="Start, look at, stop a cluster on this machine.")

Directory = Annotated[Path, typer.Option(help="where its configuration, data and logs are")]
Node = Annotated[int, typer.Argument(help="the node's number, from 0")]
STATUS_S = 3.0


@cluster.command()
def start(
    nodes: Annotated[
        int, typer.Option(help="how many; a directory with a cluster keeps its own")
    ] = 3,
    directory: Directory = DIRECTORY,
) -> None:
    """Start the cluster (or those of its nodes that do not run)."""
    made = LocalCluster(nodes, directory, detached=True).start()
    output.say(f"cluster of {len(made.nodes)} in {made.directory}")
    output.say(f"clients: {made.address} (password guest)")


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
    """Which nodes run, which answer."""
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
    """kill -9 one node, to see what happens."""
    found = existing_cluster(directory)
    _check(node, found)
    found.kill(node)
    output.say(f"killed {found.nodes[node].name}; `warren cluster start` brings it back")


@cluster.command()
def overview(directory: Directory = DIRECTORY, json: Json = False) -> None:
    """What the nodes know of each other."""
    with existing_cluster(directory).connect() as connection:
        seen = Admin(connection).overview()
    if json:
        output.as_json(seen)
        return
    rows = [(node["name"], node["address"], node["alive"]) for node in seen["nodes"]]
    output.table(f"as {seen['node']} sees it", ("node", "peers", "alive"), rows)


def _check(node: int, found: LocalCluster) -> None:
    if not 0 <= node < len(found.nodes):
        raise UsageError(f"node {node}: this cluster has 0 to {len(found.nodes) - 1}")
