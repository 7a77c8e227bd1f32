"""`warren permissions`; the verbs are rabbitmqctl's."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin, PermissionCalls, TopicPermissionCalls
from warren.cli import output
from warren.cli.target import Json, Uri, connect
from warren.cli.users import User

permissions = typer.Typer(
    no_args_is_help=True,
    help="Permissions of users per vhost: regular expressions; '.*' is all, '^$' nothing.",
)
Vhost = Annotated[str, typer.Option("--vhost", "-p", help="the vhost")]
MaybeVhost = Annotated[str | None, typer.Option("--vhost", "-p", help="of that vhost only")]
MaybeUser = Annotated[str | None, typer.Option("--user", help="of that user only")]
Write = Annotated[str, typer.Argument(help="what it may publish to, bind to")]
Read = Annotated[str, typer.Argument(help="what it may consume from, bind from")]
Exchange = Annotated[str, typer.Argument(help="the topic exchange")]


@permissions.command("list")
def list_permissions(
    vhost: MaybeVhost = None, user: MaybeUser = None, uri: Uri = None, json: Json = False
) -> None:
    """All permissions."""
    _list(PermissionCalls, "configure", vhost, user, uri, json)


@permissions.command("set")
def set_permissions(
    user: User,
    configure: Annotated[str, typer.Argument(help="what it may declare and delete")],
    write: Write,
    read: Read,
    vhost: Vhost = "/",
    uri: Uri = None,
) -> None:
    """Set a user's permissions in a vhost."""
    with connect(uri) as connection:
        Admin(connection).permissions.put(vhost, user, configure=configure, write=write, read=read)
    output.say(f"permissions of user {user} in vhost {vhost} set")


@permissions.command()
def clear(user: User, vhost: Vhost = "/", uri: Uri = None) -> None:
    """Remove a user's permissions in a vhost, so that it may no longer use it."""
    with connect(uri) as connection:
        Admin(connection).permissions.delete(vhost, user)
    output.say(f"permissions of user {user} in vhost {vhost} cleared")


@permissions.command()
def list_topic(
    vhost: MaybeVhost = None, user: MaybeUser = None, uri: Uri = None, json: Json = False
) -> None:
    """List topic permissions."""
    _list(TopicPermissionCalls, "exchange", vhost, user, uri, json)


def _list(
    kind: type[PermissionCalls] | type[TopicPermissionCalls],
    what: str,
    vhost: str | None,
    user: str | None,
    uri: str | None,
    json: bool,
) -> None:
    """what: the column that the two kinds of permissions do not have in common."""
    with connect(uri) as connection:
        shown = kind(connection).list(vhost=vhost, user=user)
    output.listing(shown, json, ("vhost", "user", what, "write", "read"))


@permissions.command()
def set_topic(
    user: User, exchange: Exchange, write: Write, read: Read, vhost: Vhost = "/", uri: Uri = None
) -> None:
    """Restrict the routing keys of a user at a topic exchange."""
    with connect(uri) as connection:
        Admin(connection).topic_permissions.put(vhost, user, exchange, write=write, read=read)
    output.say(f"topic permissions of user {user} for {exchange} in vhost {vhost} set")


@permissions.command()
def clear_topic(
    user: User,
    exchange: Annotated[str, typer.Argument(help="the topic exchange; none: all of them")] = "",
    vhost: Vhost = "/",
    uri: Uri = None,
) -> None:
    """Drop the restriction of a user's routing keys."""
    with connect(uri) as connection:
        Admin(connection).topic_permissions.delete(vhost, user, exchange)
    output.say(f"topic permissions of user {user} in vhost {vhost} cleared")
