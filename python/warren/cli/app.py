"""The command `warren`, composed of its groups."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.cli import output
from warren.cli.audit import audit
from warren.cli.backups import backup
from warren.cli.bench import bench
from warren.cli.browse import browse
from warren.cli.claims import claims
from warren.cli.command_line import CommandLine
from warren.cli.connections import channels, connections, consumers
from warren.cli.context import context
from warren.cli.definitions import definitions
from warren.cli.doctor import doctor, health
from warren.cli.exchanges import bindings, exchanges
from warren.cli.jobs import jobs, letters
from warren.cli.limits import limits
from warren.cli.lint import lint
from warren.cli.local_cluster import cluster
from warren.cli.logs import logs
from warren.cli.members import queues
from warren.cli.migrate import migrate
from warren.cli.nodes import nodes
from warren.cli.parameters import global_parameters, parameters
from warren.cli.permissions import permissions
from warren.cli.policies import operator_policies, policies
from warren.cli.publish_lines import publish
from warren.cli.relays import relays
from warren.cli.settings import settings
from warren.cli.shovels import federation, shovel
from warren.cli.sinks import sinks
from warren.cli.take import consume, get
from warren.cli.top import top
from warren.cli.users import users
from warren.cli.vhosts import vhosts
from warren_wire import VERSION

app = typer.Typer(
    name="warren",
    cls=CommandLine,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Manage a Warren cluster (queues, nodes, claims), or start a local one.",
)
GROUPS = {
    "context": context,
    "cluster": cluster,
    "queues": queues,
    "nodes": nodes,
    "exchanges": exchanges,
    "bindings": bindings,
    "connections": connections,
    "channels": channels,
    "consumers": consumers,
    "jobs": jobs,
    "claims": claims,
    "sinks": sinks,
    "relays": relays,
    "users": users,
    "vhosts": vhosts,
    "permissions": permissions,
    "limits": limits,
    "policies": policies,
    "operator-policies": operator_policies,
    "parameters": parameters,
    "global-parameters": global_parameters,
    "definitions": definitions,
    "backup": backup,
    "logs": logs,
    "federation": federation,
    "shovel": shovel,
}
for _name, _group in GROUPS.items():
    app.add_typer(_group, name=_name)


def _show_version(wanted: bool) -> None:
    if wanted:
        output.say(f"warren {VERSION}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", is_eager=True, callback=_show_version, help="print the version, and exit"
    ),
]
WaitForNode = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="with a command that only reads: wait for a node to listen, as scripts want that "
        "start nodes; else a port that refuses is reported at once",
    ),
]


@app.callback()
def options(version: Version = False, wait: WaitForNode = False) -> None:
    """Take what stands before the command's words."""
    del version, wait  # their callback, and `waits_not`


app.command("publish")(publish)
app.command("browse")(browse)
app.command("letters")(letters)
app.command("get")(get)
app.command("audit")(audit)
app.command("settings")(settings)
app.command("top")(top)
app.command("bench")(bench)
app.command("lint")(lint)
app.command("health")(health)
app.command("doctor")(doctor)
app.command("consume")(consume)
app.command("migrate")(migrate)
