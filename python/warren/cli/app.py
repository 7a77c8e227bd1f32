"""The command `warren`, composed of its groups."""

from __future__ import annotations

import typer

from warren.cli.claims import claims
from warren.cli.cluster import cluster
from warren.cli.definitions import definitions
from warren.cli.limits import limits
from warren.cli.members import queues
from warren.cli.nodes import nodes
from warren.cli.parameters import global_parameters, parameters
from warren.cli.permissions import permissions
from warren.cli.policies import operator_policies, policies
from warren.cli.publish import publish
from warren.cli.users import users
from warren.cli.vhosts import vhosts

app = typer.Typer(
    name="warren",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Manage a Warren cluster (queues, nodes, claims), or start a local one.",
)
app.add_typer(cluster, name="cluster")
app.add_typer(queues, name="queues")
app.add_typer(nodes, name="nodes")
app.add_typer(claims, name="claims")
app.add_typer(users, name="users")
app.add_typer(vhosts, name="vhosts")
app.add_typer(permissions, name="permissions")
app.add_typer(limits, name="limits")
app.add_typer(policies, name="policies")
app.add_typer(operator_policies, name="operator-policies")
app.add_typer(parameters, name="parameters")
app.add_typer(global_parameters, name="global-parameters")
app.add_typer(definitions, name="definitions")
app.command("publish")(publish)
