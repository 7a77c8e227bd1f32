"""The two brokers: where they listen, and what their management does; each in its own words."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import quote

from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import NotFound, PeerError
from warren.uri import Address

HTTP_S = PATIENCE_S
SHOWN = ("policy", "operator_policy", "effective_policy_definition")
COUNTS = ("messages", "messages_ready", "messages_unacknowledged", "messages_dlx")
DONE = "done"


@dataclass(frozen=True)
class Policy:
    """What a policy says."""

    pattern: str
    definition: dict[str, Any]
    apply_to: str = "all"
    priority: int = 0


class Broker(Protocol):
    """What a script needs beside AMQP.

    name     with its version
    node     the node's name, which texts may contain
    address  of AMQP 0.9.1
    """

    name: str
    node: str
    address: tuple[str, int]

    def add_vhost(self, vhost: str) -> None:
        """Make an empty vhost, in place of one that an earlier run may have left."""

    def delete_vhost(self, vhost: str) -> None:
        """Delete it with all that is in it."""

    def trace(self, vhost: str, on: bool) -> None:
        """Turn tracing on or off."""

    def set_policy(self, vhost: str, name: str, policy: Policy, operator: bool) -> str:
        """Set a policy; return "set", or the refusal."""

    def clear_policy(self, vhost: str, name: str, operator: bool) -> str:
        """Clear a policy; return "cleared", or the refusal."""

    def policies_of(self, vhost: str, queue: str) -> dict[str, Any]:
        """Return the keys SHOWN of a queue."""

    def counts_of(self, vhost: str, queue: str) -> dict[str, int]:
        """Return COUNTS of a queue, as management shows them at this moment."""

    def change(self, method: str, path: str, body: Any) -> str:
        """Make a request to a resource that both have; return DONE, or the refusal."""

    def exported(self, vhost: str) -> dict[str, Any]:
        """Return the definitions of a vhost."""

    def imported(self, vhost: str, document: Any) -> str:
        """Import definitions into a vhost; return DONE, or the status of the refusal."""


class Warren:
    """A Warren node."""

    name = "Warren"

    def __init__(self, address: Address, node: str) -> None:
        self._address = address
        self.node = node
        self.address = address.hosts[0]
        self._connection = Connection(address)
        self._admin = Admin(self._connection)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def add_vhost(self, vhost: str) -> None:
        self.delete_vhost(vhost)
        self._admin.vhosts.put(vhost)
        self._admin.permissions.put(vhost, "guest", configure=".*", write=".*", read=".*")

    def delete_vhost(self, vhost: str) -> None:
        try:
            self._admin.vhosts.delete(vhost)
        except NotFound:
            pass

    def trace(self, vhost: str, on: bool) -> None:
        self._admin.vhosts.trace(vhost, on)

    def set_policy(self, vhost: str, name: str, policy: Policy, operator: bool) -> str:
        try:
            self._admin.policies.put(
                vhost,
                name,
                policy.pattern,
                policy.definition,
                apply_to=policy.apply_to,
                priority=policy.priority,
                operator=operator,
            )
        except PeerError as error:
            return f"{error.status} {_reason(error.detail)}"
        return "set"

    def clear_policy(self, vhost: str, name: str, operator: bool) -> str:
        try:
            self._admin.policies.delete(vhost, name, operator=operator)
        except PeerError as error:
            return str(error.status)
        return "cleared"

    def policies_of(self, vhost: str, queue: str) -> dict[str, Any]:
        with Connection(replace(self._address, vhost=vhost)) as connection:
            shown = Admin(connection).queues.get(queue)
        return {key: getattr(shown, key) or None for key in SHOWN}

    def counts_of(self, vhost: str, queue: str) -> dict[str, int]:
        with Connection(replace(self._address, vhost=vhost)) as connection:
            shown = Admin(connection).queues.get(queue)
        return {key: getattr(shown, key) for key in COUNTS}

    def change(self, method: str, path: str, body: Any) -> str:
        try:
            self._connection.request(method, path, body)
        except PeerError as error:
            return f"{error.status} {error.detail}"
        return DONE

    def exported(self, vhost: str) -> dict[str, Any]:
        document: dict[str, Any] = self._admin.definitions.export(vhost).document
        return document

    def imported(self, vhost: str, document: Any) -> str:
        try:
            self._admin.definitions.load(json.dumps(document).encode(), vhost)
        except PeerError as error:
            return str(error.status)
        return DONE


class RabbitMQ:
    """A RabbitMQ node with its management plugin.

    http  port of the HTTP API, on the host of `address`
    """

    def __init__(self, name: str, address: tuple[str, int], http: int) -> None:
        self.name = name
        self.address = address
        self._url = f"http://{address[0]}:{http}/api"
        self.node = str(self._request("GET", "/overview")["node"])

    def add_vhost(self, vhost: str) -> None:
        self.delete_vhost(vhost)
        self._request("PUT", f"/vhosts/{vhost}", {})
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        self._request("PUT", f"/permissions/{vhost}/guest", rights)

    def delete_vhost(self, vhost: str) -> None:
        try:
            self._request("DELETE", f"/vhosts/{vhost}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def trace(self, vhost: str, on: bool) -> None:
        self._request("PUT", f"/vhosts/{vhost}", {"tracing": on})

    def set_policy(self, vhost: str, name: str, policy: Policy, operator: bool) -> str:
        body = {
            "pattern": policy.pattern,
            "definition": policy.definition,
            "apply-to": policy.apply_to,
            "priority": policy.priority,
        }
        try:
            self._request("PUT", _policy_path(vhost, name, operator), body)
        except urllib.error.HTTPError as error:
            return f"{error.code} {_reason(json.loads(error.read())['reason'])}"
        return "set"

    def clear_policy(self, vhost: str, name: str, operator: bool) -> str:
        try:
            self._request("DELETE", _policy_path(vhost, name, operator))
        except urllib.error.HTTPError as error:
            return str(error.code)
        return "cleared"

    def policies_of(self, vhost: str, queue: str) -> dict[str, Any]:
        path = f"/queues/{vhost}/{quote(queue, safe='')}?disable_stats=true"
        shown = self._request("GET", path)
        return {key: shown.get(key) or None for key in SHOWN}

    def counts_of(self, vhost: str, queue: str) -> dict[str, int]:
        shown = self._request("GET", f"/queues/{vhost}/{quote(queue, safe='')}")
        return {key: shown.get(key, 0) for key in COUNTS}

    def change(self, method: str, path: str, body: Any) -> str:
        try:
            self._request(method, path, body)
        except urllib.error.HTTPError as error:
            text = error.read()
            return f"{error.code} {json.loads(text).get('reason', '') if text else ''}"
        return DONE

    def exported(self, vhost: str) -> dict[str, Any]:
        document: dict[str, Any] = self._request("GET", f"/definitions/{vhost}")
        return document

    def imported(self, vhost: str, document: Any) -> str:
        try:
            self._request("POST", f"/definitions/{vhost}", document)
        except urllib.error.HTTPError as error:
            return str(error.code)
        return DONE

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(),
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=HTTP_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def _reason(text: str) -> str:
    return text.removeprefix("Validation failed").strip()


def _policy_path(vhost: str, name: str, operator: bool) -> str:
    kind = "operator-policies" if operator else "policies"
    return f"/{kind}/{vhost}/{quote(name, safe='')}"
