"""`warren parameters` and `warren global-parameters`: runtime parameters."""

from __future__ import annotations

import json as json_codec
from typing import Annotated, Any

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.permissions import MaybeVhost, Vhost
from warren.cli.target import Json, Uri, connect
from warren.errors import UsageError

Component = Annotated[
    str, typer.Argument(help="federation-upstream, federation-upstream-set or shovel")
]
Name = Annotated[str, typer.Argument(help="the parameter's name")]
Value = Annotated[str, typer.Argument(help='JSON, as in \'{"uri": "amqp://…"}\'')]

parameters = typer.Typer(
    no_args_is_help=True, help="Parameters of shovels, and of federated queues."
)
global_parameters = typer.Typer(no_args_is_help=True, help="Parameters of the cluster.")


@parameters.command("list")
def list_parameters(vhost: MaybeVhost = None, uri: Uri = None, json: Json = False) -> None:
    """All of them."""
    with connect(uri) as connection:
        found = Admin(connection).parameters.list(vhost=vhost)
    columns: dict[str, output.Column] = {
        "vhost": "vhost",
        "component": "component",
        "name": "name",
        "value": lambda one: json_codec.dumps(one.value, ensure_ascii=False),
    }
    output.listing(found, json, columns)


@parameters.command("set")
def set_parameter(
    component: Component, name: Name, value: Value, vhost: Vhost = "/", uri: Uri = None
) -> None:
    """Add or replace one."""
    given = _value(value)
    with connect(uri) as connection:
        Admin(connection).parameters.put(component, vhost, name, given)
    output.say(f"parameter {name} of component {component} in vhost {vhost} set")


@parameters.command("clear")
def clear_parameter(component: Component, name: Name, vhost: Vhost = "/", uri: Uri = None) -> None:
    """Remove one."""
    with connect(uri) as connection:
        Admin(connection).parameters.delete(component, vhost, name)
    output.say(f"parameter {name} of component {component} in vhost {vhost} cleared")


@global_parameters.command("list")
def list_global(uri: Uri = None, json: Json = False) -> None:
    """All of them."""
    with connect(uri) as connection:
        found = Admin(connection).global_parameters.list()
    columns: dict[str, output.Column] = {
        "name": "name",
        "value": lambda one: json_codec.dumps(one.value, ensure_ascii=False),
    }
    output.listing(found, json, columns)


@global_parameters.command("set")
def set_global(name: Name, value: Value, uri: Uri = None) -> None:
    """Add or replace one."""
    given = _value(value)
    with connect(uri) as connection:
        Admin(connection).global_parameters.put(name, given)
    output.say(f"global parameter {name} set")


@global_parameters.command("clear")
def clear_global(name: Name, uri: Uri = None) -> None:
    """Remove one."""
    with connect(uri) as connection:
        Admin(connection).global_parameters.delete(name)
    output.say(f"global parameter {name} cleared")


def _value(text: str) -> Any:
    try:
        return json_codec.loads(text)
    except ValueError as error:
        raise UsageError(f"the value is not JSON: {error}; got {text!r}") from error
