"""Bodies of the HTTP API with values of every JSON type in every field, and RabbitMQ's statuses.

    RMQ_ROOT=… PYTHONPATH=tests:. python3 tests/live/http_body_types.py

plays them against a RabbitMQ 4.3 (of RMQ_ROOT, or Debian's of the benchmarks) and writes the
statuses to `http_body_types_recorded.json`; `test_http_body_types.py` plays them against Warren.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import rabbitmq
from bench.ports import free_ports
from connector.amqp.rabbitmq import OneRabbitMQ
from live.conftest import eventually
from live.http_api_requests import EVERY, MESSAGE, PLUGINS, POLICY, R
from live.http_client import HttpClient

RECORDED = Path(__file__).parent / "http_body_types_recorded.json"
VALUES: tuple[Any, ...] = (*(None, True, -1, 1.5, 1 << 70, "", "é\x00", [], [1], {}, {"a": 1}),)
"""One or more values of each type."""
WHOLE: tuple[Any, ...] = (b"", b"null", b"3", b'"x"', b"[]", b"[1]", b"[{}]", b"{}", b"\xff", b'{"')
"""What comes instead of the whole body."""
UPSTREAM = {"uri": "amqp://localhost", "expires": 1000, "ack-mode": "on-confirm"}
SHOVEL = {
    "src-protocol": "amqp091",
    "src-uri": "amqp://",
    "src-queue": "t",
    "dest-protocol": "amqp091",
    "dest-uri": "amqp://",
    "dest-queue": "u",
}
ENDPOINTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        *("PUT", f"/queues/{R}/NAME"),
        {"durable": True, "auto_delete": False, "arguments": {"x-queue-type": "classic"}},
    ),
    (
        *("PUT", f"/exchanges/{R}/NAME"),
        {
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        },
    ),
    ("POST", f"/bindings/{R}/e/amq.topic/q/typed", {"routing_key": "NAME", "arguments": {}}),
    ("POST", f"/exchanges/{R}/amq.default/publish", MESSAGE),
    (
        *("POST", f"/queues/{R}/typed/get"),
        {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 10},
    ),
    ("PUT", "/users/NAME", {"password": "p", "tags": "management"}),
    ("PUT", "/users/NAME", {"password_hash": "", "tags": "", "hashing_algorithm": "x"}),
    ("POST", "/users/bulk-delete", {"users": ["NAME"]}),
    ("PUT", "/vhosts/typed", {"description": "d", "tags": "a", "default_queue_type": "quorum"}),
    ("PUT", "/permissions/typed/guest", EVERY),
    (
        *("PUT", "/topic-permissions/typed/guest"),
        {"exchange": "amq.topic", "write": ".*", "read": ".*"},
    ),
    ("PUT", f"/policies/{R}/NAME", {**POLICY, "pattern": "^none$", "priority": 1}),
    ("PUT", f"/operator-policies/{R}/NAME", {**POLICY, "pattern": "^none$", "priority": 1}),
    ("PUT", f"/policies/{R}/NAME", {"pattern": "^none$", "definition": {"max-length": 3}}),
    ("PUT", "/vhost-limits/typed/max-queues", {"value": 30}),
    ("PUT", "/user-limits/guest/max-channels", {"value": 30000}),
    ("PUT", f"/parameters/federation-upstream/{R}/NAME", {"value": UPSTREAM}),
    ("PUT", "/global-parameters/NAME", {"value": 1}),
    ("POST", "/definitions", {"vhosts": [{"name": "typed"}]}),
    ("POST", f"/definitions/{R}", {"queues": [{"name": "imported", "durable": True}]}),
)
"""Method, path and a body that is taken; NAME becomes another one in each request."""
INSIDE: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("PUT", f"/policies/{R}/NAME", "definition", {"max-length": 3, "overflow": "drop-head"}),
    ("PUT", f"/queues/{R}/NAME", "arguments", {"x-max-length": 3, "x-message-ttl": 60_000}),
    ("PUT", f"/parameters/federation-upstream/{R}/NAME", "value", UPSTREAM),
    ("PUT", f"/parameters/shovel/{R}/NAME", "value", SHOVEL),
    (
        *("POST", f"/exchanges/{R}/amq.default/publish", "properties"),
        {"priority": 1, "headers": {"a": 1}, "delivery_mode": 2, "expiration": "1", "type": "t"},
    ),
    ("POST", "/definitions", "users", {"name": "NAME", "password_hash": "", "tags": ""}),
    ("POST", "/definitions", "vhosts", {"name": "typed", "metadata": {"description": "d"}}),
    (
        *("POST", "/definitions", "permissions"),
        {"user": "guest", "vhost": "typed", **EVERY},
    ),
    (
        *("POST", f"/definitions/{R}", "queues"),
        {"name": "imported", "durable": True, "auto_delete": False, "arguments": {}},
    ),
    (
        *("POST", f"/definitions/{R}", "exchanges"),
        {"name": "NAME", "type": "topic", "durable": True, "internal": False, "arguments": {}},
    ),
    (
        *("POST", f"/definitions/{R}", "bindings"),
        {
            "source": "amq.topic",
            "destination": "typed",
            "destination_type": "queue",
            "routing_key": "NAME",
            "arguments": {},
        },
    ),
    (
        *("POST", f"/definitions/{R}", "policies"),
        {**POLICY, "name": "NAME", "pattern": "^none$", "priority": 1},
    ),
)
"""The same of what is inside of a field: an object, or in definitions a list of one."""


def replaced(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Bodies with one field of another value, or without it, and what was changed."""
    for field in body:
        yield f"-{field}", {key: value for key, value in body.items() if key != field}
        for value in VALUES:
            yield f"{field}={json.dumps(value)}", {**body, field: value}


def requests() -> Iterator[tuple[str, str, str, Any]]:
    """What names each request, its method, path, and body."""
    number = 0
    for method, path, body in ENDPOINTS:
        for what, changed in (*replaced(body), *((repr(one)[1:], one) for one in WHOLE)):
            number += 1
            yield (
                f"{method} {path} {sorted(body)[0]} {what}",
                method,
                *named(path, changed, f"typed{number}"),
            )
    for method, path, field, body in INSIDE:
        for what, changed in replaced(body):
            number += 1
            whole = {field: [changed] if "definitions" in path else changed}
            whole |= MESSAGE_REST if "publish" in path else {}
            whole |= POLICY_REST if path.startswith("/policies") else {}
            yield (
                f"{method} {path} {field}.{what}",
                method,
                *named(path, whole, f"typed{number}"),
            )


MESSAGE_REST = {key: value for key, value in MESSAGE.items() if key != "properties"}
POLICY_REST = {"pattern": "^none$", "apply-to": "queues"}


def named(path: str, body: Any, name: str) -> tuple[str, Any]:
    """Path and body with NAME replaced."""
    if isinstance(body, bytes):
        return path.replace("NAME", name), body
    return path.replace("NAME", name), json.loads(json.dumps(body).replace("NAME", name))


def played(http: HttpClient) -> dict[str, int]:
    """Make the requests; return their statuses."""
    for path in ("typed", "imported"):
        assert http("PUT", f"/queues/{R}/{path}", {"durable": True}).status == 201
    assert http("PUT", "/vhosts/typed", {}).status == 201
    found = {}
    for one, method, path, body in requests():
        assert one not in found, one
        found[one] = http(method, path, body).status
        if found[one] < 300 and method == "PUT" and "shovel" in path:
            http("DELETE", path)
    return found


def main() -> None:
    """Record."""
    port = free_ports(1)
    listen = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n"
    with OneRabbitMQ(listen, PLUGINS, rabbitmq.find([])) as peer:
        http = HttpClient(f"http://127.0.0.1:{port}/api")
        eventually(lambda: http("GET", "/overview").status == 200, "it is answered")
        statuses = played(http)
    lines = ",\n".join(f"{json.dumps(one)}: {statuses[one]}" for one in statuses)
    RECORDED.write_text(f'{{"of": "{peer.name}",\n"statuses": {{\n{lines}\n}}}}\n')
    print(f"{len(statuses)} statuses of {peer.name}")


if __name__ == "__main__":
    main()
