"""`warren limits`: of vhosts and users."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.target import Json, Uri, connect
from warren.errors import UsageError

limits = typer.Typer(no_args_is_help=True, help="Limits of vhosts and users.")
Limit = Annotated[
    str,
    typer.Argument(help="of a vhost: max-connections, max-queues; of a user: max-channels, too"),
]
Value = Annotated[int, typer.Argument(help="-1: no limit; 0: nothing is permitted")]
OfVhost = Annotated[str | None, typer.Option("--vhost", help="of that vhost")]
OfUser = Annotated[str | None, typer.Option("--user", help="of that user")]


def _one_of(vhost: str | None, user: str | None) -> None:
    if (vhost is None) is (user is None):
        raise UsageError("give either --vhost or --user: whose limit is it?")


@limits.command("list")
def list_limits(
    vhost: OfVhost = None, user: OfUser = None, uri: Uri = None, json: Json = False
) -> None:
    """List the limits of a vhost or user; without either: of all that have any."""
    found: list[dict[str, object]] = []
    with connect(uri) as connection:
        admin = Admin(connection)
        if user is None:
            for of in admin.limits.of_vhosts(vhost):
                found += [_row("vhost", of.vhost, *one) for one in of.value.items()]
        if vhost is None:
            for each in admin.limits.of_users(user):
                found += [_row("user", each.user, *one) for one in each.value.items()]
    if json:
        output.as_json(found)
    else:
        columns = ("of", "name", "limit", "value")
        output.table("", columns, [tuple(row[key] for key in columns) for row in found])


def _row(of: str, name: str, limit: str, value: int) -> dict[str, object]:
    return {"of": of, "name": name, "limit": limit, "value": value}


@limits.command("set", context_settings={"ignore_unknown_options": True})  # -1 is a value
def set_limit(
    limit: Limit, value: Value, vhost: OfVhost = None, user: OfUser = None, uri: Uri = None
) -> None:
    """Set a limit; it holds for clients and queues that come later."""
    _one_of(vhost, user)
    with connect(uri) as connection:
        if vhost is not None:
            Admin(connection).limits.put("vhost", vhost, limit, value)
        elif user is not None:
            Admin(connection).limits.put("user", user, limit, value)
    output.say(f"{limit} of {_whose(vhost, user)}: {value}")


@limits.command()
def clear(
    limit: Annotated[str, typer.Argument(help="a limit's name, or all")],
    vhost: OfVhost = None,
    user: OfUser = None,
    uri: Uri = None,
) -> None:
    """Clear a limit, or all limits, of a vhost or user."""
    _one_of(vhost, user)
    name = None if limit == "all" else limit
    with connect(uri) as connection:
        if vhost is not None:
            Admin(connection).limits.clear("vhost", vhost, name)
        elif user is not None:
            Admin(connection).limits.clear("user", user, name)
    output.say(f"{limit} of {_whose(vhost, user)} cleared")


def _whose(vhost: str | None, user: str | None) -> str:
    return f"user {user}" if vhost is None else f"vhost {vhost}"
