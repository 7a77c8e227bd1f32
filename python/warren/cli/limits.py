"""`warren limits`: of vhosts and users."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.target import Json, Uri, connect
from warren.errors import UsageError
from warren_wire.admin.limits import Of

limits = typer.Typer(no_args_is_help=True, help="Limits of vhosts and users.")
Limit = Annotated[
    str,
    typer.Argument(help="of a vhost: max-connections, max-queues; of a user: max-channels, too"),
]
Value = Annotated[int, typer.Argument(help="-1: no limit; 0: nothing is permitted")]
OfVhost = Annotated[str | None, typer.Option("--vhost", help="of that vhost")]
OfUser = Annotated[str | None, typer.Option("--user", help="of that user")]


def _whose(vhost: str | None, user: str | None) -> tuple[Of, str]:
    if vhost is not None and user is None:
        return "vhost", vhost
    if user is not None and vhost is None:
        return "user", user
    raise UsageError("give either --vhost or --user: whose limit is it?")


@limits.command("list")
def list_limits(
    vhost: OfVhost = None, user: OfUser = None, uri: Uri = None, json: Json = False
) -> None:
    """List the limits of a vhost or user; without either: of all that have any."""
    with connect(uri) as connection:
        admin = Admin(connection)
        of_vhosts = admin.limits.of_vhosts(vhost) if user is None else []
        of_users = admin.limits.of_users(user) if vhost is None else []
    rows = [("vhost", of.vhost, *one) for of in of_vhosts for one in of.value.items()]
    rows += [("user", each.user, *one) for each in of_users for one in each.value.items()]
    columns = ("of", "name", "limit", "value")
    if json:
        output.as_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        output.table("", columns, rows)


@limits.command("set", context_settings={"ignore_unknown_options": True})  # -1 is a value
def set_limit(
    limit: Limit, value: Value, vhost: OfVhost = None, user: OfUser = None, uri: Uri = None
) -> None:
    """Set a limit; it holds for clients and queues that come later."""
    of, name = _whose(vhost, user)
    with connect(uri) as connection:
        Admin(connection).limits.put(of, name, limit, value)
    output.say(f"{limit} of {of} {name}: {value}")


@limits.command()
def clear(
    limit: Annotated[str, typer.Argument(help="a limit's name, or all")],
    vhost: OfVhost = None,
    user: OfUser = None,
    uri: Uri = None,
) -> None:
    """Clear a limit, or all limits, of a vhost or user."""
    of, name = _whose(vhost, user)
    with connect(uri) as connection:
        Admin(connection).limits.clear(of, name, None if limit == "all" else limit)
    output.say(f"{limit} of {of} {name} cleared")
