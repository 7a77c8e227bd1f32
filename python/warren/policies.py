"""Policies and operator policies, as a policymaker or an administrator sees and changes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from warren.connection import Connection
from warren.errors import UsageError
from warren_wire.admin.policy_values import PolicyInfo


class PolicyCalls:
    """The part of `Admin` that concerns policies; each raises NotFound, AccessRefused, Unavailable.

    A policy that cannot be set is a PeerError, with the broker's text.

    Policies need the tag `policymaker`, operator policies (`operator=True`) `administrator`. Live
    queues follow a change at once.
    """

    connection: Connection

    def policies(self, vhost: str | None = None, *, operator: bool = False) -> list[PolicyInfo]:
        """Policies by vhost (None: of all), those of the highest priority first."""
        path = _kind(operator) + ("" if vhost is None else f"/{quote(vhost, safe='')}")
        found = self.connection.request("GET", path)
        return [msgspec.convert(body, PolicyInfo) for body in found]

    def policy(self, vhost: str, name: str, *, operator: bool = False) -> PolicyInfo:
        """One policy; NotFound."""
        return msgspec.convert(
            self.connection.request("GET", _path(vhost, name, operator)), PolicyInfo
        )

    def set_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        *,
        priority: int = 0,
        apply_to: str = "all",
        operator: bool = False,
    ) -> None:
        """Add or replace a policy.

        pattern     a regular expression, found in the names of the objects that it applies to
        definition  its keys and values, as in RabbitMQ
        apply_to    queues, classic_queues, quorum_queues, exchanges or all
        """
        body = {
            "pattern": pattern,
            "definition": dict(definition),
            "priority": priority,
            "apply-to": apply_to,
        }
        self.connection.request("PUT", _path(vhost, name, operator), body)

    def clear_policy(self, vhost: str, name: str, *, operator: bool = False) -> None:
        """Remove a policy; NotFound."""
        self.connection.request("DELETE", _path(vhost, name, operator))


def _kind(operator: bool) -> str:
    return "/operator-policies" if operator else "/policies"


def _path(vhost: str, name: str, operator: bool) -> str:
    if not vhost or not name:
        raise UsageError("a policy's vhost and name must not be empty")
    return f"{_kind(operator)}/{quote(vhost, safe='')}/{quote(name, safe='')}"
