"""Policies and operator policies, and the requests for them; the keys are RabbitMQ's.

Policies need the tag `policymaker`, operator policies `administrator`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from warren_wire.admin.requests import AdminRequest, Name, route

T = TypeVar("T")
_KEYS: Final = {"apply_to": "apply-to"}


class PolicyInfo(msgspec.Struct, frozen=True, rename=_KEYS):
    """A policy, or an operator policy, of a vhost.

    pattern   found in the names of the objects that it applies to
    apply_to  queues, classic_queues, quorum_queues, exchanges or all
    """

    vhost: str
    name: str
    pattern: str
    apply_to: str
    definition: dict[str, Any]
    priority: int


class ListPoliciesRequest(AdminRequest[list[PolicyInfo]], frozen=True):
    """Return policies by vhost, then in the order in which they win. Answer: Listed (PolicyInfo).

    vhost  None: of all
    """

    ROUTES: ClassVar = (
        route("GET /policies/:vhost", "policymaker", http=True, operator=False),
        route("GET /policies", "policymaker", http=True, operator=False),
        route("GET /operator-policies/:vhost", "administrator", http=True, operator=True),
        route("GET /operator-policies", "administrator", http=True, operator=True),
    )
    vhost: str | None = None
    operator: bool = False


class PolicyRequest(AdminRequest[T], Generic[T], frozen=True):
    """A request about one policy, or operator policy.

    name  the policy's name
    """

    vhost: str
    name: str


class GetPolicyRequest(PolicyRequest[PolicyInfo], frozen=True):
    """Return one policy; 404. Answer: PolicyInfo."""

    ROUTES: ClassVar = (
        route("GET /policies/:vhost/:name", "policymaker", http=True, operator=False),
        route("GET /operator-policies/:vhost/:name", "administrator", http=True, operator=True),
    )
    operator: bool = False


class PutPolicyRequest(PolicyRequest[None], frozen=True, rename=_KEYS):
    """Add or replace a policy, which live queues follow at once; 404. Answer: Put.

    pattern     a regular expression, found in the names of the objects that it applies to
    definition  its keys and values, as in RabbitMQ
    apply_to    queues, classic_queues, quorum_queues, exchanges or all
    """

    ROUTES: ClassVar = (
        route("PUT /policies/:vhost/:name", "policymaker", http=True, operator=False),
        route("PUT /operator-policies/:vhost/:name", "administrator", http=True, operator=True),
    )
    name: Name
    pattern: Any
    definition: Any
    priority: Any = 0
    apply_to: Any = "all"
    operator: bool = False


class DeletePolicyRequest(PolicyRequest[None], frozen=True):
    """Remove a policy; queues follow at once what is left; 404. Answer: Performed."""

    ROUTES: ClassVar = (
        route("DELETE /policies/:vhost/:name", "policymaker", http=True, operator=False),
        route("DELETE /operator-policies/:vhost/:name", "administrator", http=True, operator=True),
    )
    operator: bool = False
