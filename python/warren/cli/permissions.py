"""`warren permissions`; the verbs are rabbitmqctl's."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.cli import output
from warren.cli.requests import RequestGroup
from warren_wire.admin import permissions as m

permissions = RequestGroup(
    no_args_is_help=True,
    help="Permissions of users per vhost: regular expressions; '.*' is all, '^$' nothing.",
)
_OF = ("vhost", "user")
_ENDS: dict[str, output.Column] = {"vhost": "vhost", "user": "user"}
_EXCHANGE = Annotated[str, typer.Argument(help="the topic exchange; none: all of them")]

permissions.lists("list", m.ListPermissionsRequest, columns=_ENDS, options=_OF)
permissions.lists("list-topic", m.ListTopicPermissionsRequest, columns=_ENDS, options=_OF)
permissions.does("set", m.PutPermissionsRequest, "permissions of user {user} in vhost {vhost} set")
permissions.does(
    "clear", m.DeletePermissionsRequest, "permissions of user {user} in vhost {vhost} cleared"
)
permissions.does(
    "set-topic",
    m.PutTopicPermissionsRequest,
    "topic permissions of user {user} for {exchange} in vhost {vhost} set",
)
permissions.does(
    "clear-topic",
    m.DeleteTopicPermissionsRequest,
    "topic permissions of user {user} in vhost {vhost} cleared",
    takes={"exchange": (_EXCHANGE, "")},
)
