"""`warren policies` and `warren operator-policies`."""

from __future__ import annotations

import json as json_codec
from typing import Annotated, Any

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.permissions import MaybeVhost, Vhost
from warren.cli.target import Json, Uri, connect
from warren.errors import UsageError

Name = Annotated[str, typer.Argument(help="the policy's name")]
Pattern = Annotated[
    str, typer.Argument(help="a regular expression, found in the names of queues and exchanges")
]
Definition = Annotated[str, typer.Argument(help="JSON, as in '{\"max-length\": 1000}'")]
Priority = Annotated[
    int, typer.Option(help="of the policies that match, the one of the highest priority applies")
]
ApplyTo = Annotated[
    str, typer.Option(help="queues, classic_queues, quorum_queues, exchanges or all")
]


def _verbs(operator: bool) -> typer.Typer:
    """Return the verbs for policies, or for operator policies."""
    kind = "operator policy" if operator else "policy"
    verbs = typer.Typer(
        no_args_is_help=True,
        help="Limits that operators impose on queues, merged with their policies."
        if operator
        else "Settings of queues and exchanges by their names, changed at any time.",
    )

    @verbs.command("list")
    def list_policies(vhost: MaybeVhost = None, uri: Uri = None, json: Json = False) -> None:
        """All of them, those of the highest priority first."""
        with connect(uri) as connection:
            found = Admin(connection).policies.list(vhost, operator=operator)
        columns: dict[str, output.Column] = {
            "vhost": "vhost",
            "name": "name",
            "pattern": "pattern",
            "apply-to": "apply_to",
            "definition": lambda one: json_codec.dumps(one.definition, ensure_ascii=False),
            "priority": "priority",
        }
        output.listing(found, json, columns)

    @verbs.command("set")
    def set_policy(
        name: Name,
        pattern: Pattern,
        definition: Definition,
        priority: Priority = 0,
        apply_to: ApplyTo = "all",
        vhost: Vhost = "/",
        uri: Uri = None,
    ) -> None:
        """Add or replace one; live queues follow it at once."""
        given = _definition(definition)
        with connect(uri) as connection:
            Admin(connection).policies.put(
                vhost,
                name,
                pattern,
                given,
                priority=priority,
                apply_to=apply_to,
                operator=operator,
            )
        output.say(f"{kind} {name} in vhost {vhost} set")

    @verbs.command()
    def clear(name: Name, vhost: Vhost = "/", uri: Uri = None) -> None:
        """Remove one; queues follow at once what is left."""
        with connect(uri) as connection:
            Admin(connection).policies.delete(vhost, name, operator=operator)
        output.say(f"{kind} {name} in vhost {vhost} cleared")

    return verbs


def _definition(text: str) -> dict[str, Any]:
    try:
        given = json_codec.loads(text)
    except ValueError as error:
        raise UsageError(f"the definition is not JSON: {error}; got {text!r}") from error
    if not isinstance(given, dict):
        raise UsageError(f"the definition must be a JSON object, as {{…}}; got {text!r}")
    return given


policies = _verbs(operator=False)
operator_policies = _verbs(operator=True)
