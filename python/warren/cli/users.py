"""`warren users`; the verbs are rabbitmqctl's."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.passwords import asked_password
from warren.cli.requests import RequestGroup
from warren.cli.target import Json, Uri, address_of, connect
from warren.connection import Connection
from warren.errors import AccessRefused, UsageError
from warren_wire.admin.users import DeleteUserRequest

users = RequestGroup(
    no_args_is_help=True, help="List, add, change, delete users; check a password."
)
User = Annotated[str, typer.Argument(help="the user's name")]
Password = Annotated[
    str | None,
    typer.Argument(
        help="the password; without it: asked for, or a line of standard input. On the "
        "command line others on this machine can see it"
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Argument(
        help="administrator, monitoring, policymaker, management, impersonator or "
        "others; none: no tags"
    ),
]


@users.command("list")
def list_users(uri: Uri = None, json: Json = False) -> None:
    """List all users with their tags."""
    with connect(uri) as connection:
        found = Admin(connection).users.list()
    if json:
        output.as_json([{"name": user.name, "tags": user.tags} for user in found])
    else:
        output.table("", ("user", "tags"), [(user.name, user.tags) for user in found])


@users.command()
def add(
    user: User,
    password: Password = None,
    hashed: Annotated[
        bool,
        typer.Option("--pre-hashed-password", help="the password is a password_hash of RabbitMQ's"),
    ] = False,
    uri: Uri = None,
) -> None:
    """Add a user; without permissions it may not use any vhost."""
    given = asked_password(user, password, twice=not hashed)
    with connect(uri) as connection:
        admin = Admin(connection)
        if any(each.name == user for each in admin.users.list()):
            raise UsageError(f"user {user!r} exists; `change-password`, `set-tags` change it")
        if hashed:
            admin.users.put(user, password_hash=given)
        else:
            admin.users.put(user, password=given)
    output.say(f"user {user} added; `warren permissions set` gives it access to a vhost")


@users.command()
def change_password(user: User, password: Password = None, uri: Uri = None) -> None:
    """Change a user's password; open connections stay open."""
    given = asked_password(user, password, twice=True)
    with connect(uri) as connection:
        admin = Admin(connection)
        admin.users.get(user)  # NotFound rather than a new user
        admin.users.put(user, password=given)
    output.say(f"password of user {user} changed")


users.does("delete", DeleteUserRequest, "user {user} deleted")


@users.command()
def set_tags(user: User, tags: Tags = None, uri: Uri = None) -> None:
    """Replace a user's tags."""
    with connect(uri) as connection:
        admin = Admin(connection)
        admin.users.get(user)
        admin.users.put(user, tags=tags or [])
    output.say(f"tags of user {user}: {', '.join(tags or []) or 'none'}")


@users.command()
def authenticate(user: User, password: Password = None, uri: Uri = None) -> None:
    """Log in as that user from this machine: exit code 1 if that is refused."""
    given = asked_password(user, password, twice=False)
    asked = address_of(uri).with_credentials(user, given)
    with Connection(asked, name="warren users authenticate") as connection:
        try:
            tags = Admin(connection).whoami().tags
        except AccessRefused as refused:
            output.fail(f"user {user} cannot log in: {refused.detail}")
            raise typer.Exit(output.EXIT_REFUSED) from None
    output.say(f"user {user} can log in; tags: {', '.join(tags) or 'none'}")
