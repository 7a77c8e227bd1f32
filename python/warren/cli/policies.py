"""`warren policies` and `warren operator-policies`."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.cli import output
from warren.cli.requests import RequestGroup, in_json, json_argument
from warren_wire.admin import policies as m

_DEFINITION = json_argument("definition", "JSON, as in '{\"max-length\": 1000}'", of_object=True)
_PRIORITY = Annotated[
    int, typer.Option(help="of the policies that match, the one of the highest priority applies")
]
_SHOWN: dict[str, output.Column] = {
    **{each: each for each in ("vhost", "name", "pattern", "apply_to")},
    "definition": in_json("definition"),
    "priority": "priority",
}


def _verbs(operator: bool) -> typer.Typer:
    """Return the verbs for policies, or for operator policies."""
    kind = "operator policy" if operator else "policy"
    verbs = RequestGroup(
        no_args_is_help=True,
        help="Limits that operators impose on queues, merged with their policies."
        if operator
        else "Settings of queues and exchanges by their names, changed at any time.",
    )
    verbs.lists(
        "list", m.ListPoliciesRequest, columns=_SHOWN, options=("vhost",), operator=operator
    )
    verbs.does(
        "set",
        m.PutPolicyRequest,
        f"{kind} {{name}} in vhost {{vhost}} set",
        takes={"definition": _DEFINITION, "priority": (_PRIORITY, 0)},
        operator=operator,
    )
    verbs.does(
        "clear",
        m.DeletePolicyRequest,
        f"{kind} {{name}} in vhost {{vhost}} cleared",
        operator=operator,
    )
    return verbs


policies = _verbs(operator=False)
operator_policies = _verbs(operator=True)
