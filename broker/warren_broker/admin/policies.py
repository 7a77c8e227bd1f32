"""Policies and operator policies as `/management` resources.

The paths, keys and tags are those of RabbitMQ's HTTP API without `/api`: policies need the tag
`policymaker`, operator policies `administrator`. The vhost is in the path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from warren_broker.admin import resource
from warren_broker.admin.resource import Body, ManagementRequest, Names, Query
from warren_machines.metadata.permissions import Tag
from warren_machines.metadata.records import Policy
from warren_wire.arguments import plain
from warren_wire.errors import PreconditionFailed
from warren_wire.policy_keys import check_policy, erlang, validation_failed

# ------------------------------------------------------------------ requests


class ListPoliciesRequest(ManagementRequest, frozen=True):
    """GET /policies, /policies/:vhost; the same with operator-policies.

    Answer: Listed (PolicyInfo), by vhost, then in the order in which they win.

    vhost  None: of all vhosts
    """

    vhost: str | None
    operator: bool


class PolicyRequest(ManagementRequest, frozen=True):
    """A request about one policy, or operator policy."""

    vhost: str
    name: str
    operator: bool


class GetPolicyRequest(PolicyRequest, frozen=True):
    """GET /policies/:vhost/:name. Answer: Shown (PolicyInfo); 404."""


class PutPolicyRequest(ManagementRequest, frozen=True):
    """PUT /policies/:vhost/:name. Answer: Put; 404 without the vhost."""

    policy: Policy


class DeletePolicyRequest(PolicyRequest, frozen=True):
    """DELETE /policies/:vhost/:name. Answer: Performed; 404."""


AnyPolicyRequest: TypeAlias = (
    ListPoliciesRequest | GetPolicyRequest | PutPolicyRequest | DeletePolicyRequest
)

# ------------------------------------------------------------------ bodies, routes


class PutPolicyBody(Body, frozen=True, rename={"apply_to": "apply-to"}):
    """PUT /policies/:vhost/:name."""

    pattern: Any
    definition: Any
    priority: Any = 0
    apply_to: Any = "all"
    vhost: Any = None
    name: Any = None


def _list(operator: bool) -> resource.Make:
    return lambda names, query, body: ListPoliciesRequest(
        vhost=names[0] if names else None, operator=operator
    )


def _one(make: Callable[..., ManagementRequest], operator: bool) -> resource.Make:
    return lambda names, query, body: make(vhost=names[0], name=names[1], operator=operator)


def _put(operator: bool) -> resource.Make:
    def made(names: Names, query: Query, body: Any) -> ManagementRequest:
        read = resource.read_body(PutPolicyBody, body)
        name = resource.filled("policy", names[1])
        try:
            given = {key: plain(getattr(read, key)) for key in ("pattern", "definition")}
        except PreconditionFailed as refusal:
            raise validation_failed(refusal.detail) from None
        pattern, definition = given["pattern"], given["definition"]
        priority, apply_to = read.priority, read.apply_to
        if not isinstance(pattern, str):
            raise validation_failed(f"pattern should be a binary but was {erlang(pattern)}")
        if not isinstance(definition, dict):
            raise validation_failed(f"definition must be a dictionary: {erlang(definition)}")
        if isinstance(priority, bool) or not isinstance(priority, int):
            shown = erlang(priority)
            raise validation_failed(f"priority should be a number, actually was {shown}")
        if not isinstance(apply_to, str):
            raise validation_failed(f"apply-to should be a text, actually was {erlang(apply_to)}")
        check_policy(name, pattern, definition, int(priority), apply_to, operator)
        return PutPolicyRequest(
            policy=Policy(
                names[0], name, pattern, definition, int(priority), apply_to, operator=operator
            )
        )

    return made


def _routes(kind: str, operator: bool) -> tuple[resource.ManagementRoute, ...]:
    tag: Tag = "administrator" if operator else "policymaker"
    return (
        resource.route("GET", f"/{kind}", _list(operator)),
        resource.route("GET", f"/{kind}/:vhost", _list(operator)),
        resource.route("GET", f"/{kind}/:vhost/:name", _one(GetPolicyRequest, operator)),
        resource.route("PUT", f"/{kind}/:vhost/:name", _put(operator), tag),
        resource.route("DELETE", f"/{kind}/:vhost/:name", _one(DeletePolicyRequest, operator)),
    )


ROUTES: tuple[resource.ManagementRoute, ...] = (
    *_routes("policies", False),
    *_routes("operator-policies", True),
)
