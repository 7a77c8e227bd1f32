"""Requests of the HTTP API, and what RabbitMQ answered to them.

    RMQ_ROOT=… PYTHONPATH=tests:. python3 tests/live/http_api_requests.py

plays them against a RabbitMQ 4.3 (of RMQ_ROOT, or Debian's of the benchmarks) and writes what came
to `http_api_recorded.json`; `test_http_api_recorded.py` plays them against Warren.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench import rabbitmq
from bench.ports import free_ports
from connector.amqp.rabbitmq import OneRabbitMQ
from live.conftest import eventually
from live.http_client import HttpClient

RECORDED = Path(__file__).parent / "http_api_recorded.json"
PLUGINS = (
    "rabbitmq_management",
    "rabbitmq_federation",
    "rabbitmq_federation_management",
    "rabbitmq_shovel",
    "rabbitmq_shovel_management",
)
R = "%2F"
EVERY = {"configure": ".*", "write": ".*", "read": ".*"}
POLICY = {"pattern": "^q", "definition": {"max-length": 3}, "apply-to": "queues"}
MESSAGE = {"properties": {}, "routing_key": "q", "payload": "p", "payload_encoding": "string"}
LOOK = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
QUORUM = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
Asked = tuple[str, str, Any]


def twice(asked: Asked) -> tuple[Asked, Asked]:
    """The same request again: made and there, deleted and gone."""
    return asked, asked


CHECKS: tuple[Asked, ...] = tuple(
    ("GET", f"/health/checks/{check}", None)
    for check in (
        *("alarms", "local-alarms", "virtual-hosts", "node-is-quorum-critical", "is-in-service"),
        *("port-listener/1", "port-listener/x", "protocol-listener/mqtt", "protocol-listener/amqp"),
    )
)
REQUESTS: tuple[Asked, ...] = (
    *(("GET", f"/{path}", None) for path in ("overview", "cluster-name", "nodes", "whoami")),
    *twice(("PUT", f"/queues/{R}/q", QUORUM)),
    ("PUT", f"/queues/{R}/q", {"arguments": {"x-queue-type": "quorum", "x-max-length": 3}}),
    ("PUT", f"/queues/{R}/c", {"durable": "true", "arguments": {"x-queue-type": "classic"}}),
    ("PUT", f"/queues/{R}/c2", {"arguments": {"x-max-length": "a"}}),
    ("PUT", f"/queues/{R}/c3", {"durable": 1}),
    ("PUT", f"/queues/{R}/amq.r", {}),
    ("PUT", "/queues/none/q", {}),
    *(("PUT", f"/queues/{R}/c4", body) for body in (b"{", b"[]", b'"x"')),
    ("PUT", f"/queues/{R}/c5", {"arguments": []}),
    ("PUT", f"/exchanges/{R}/x5", {"type": "topic", "arguments": []}),
    ("POST", f"/bindings/{R}/e/x5/q/c5", {"routing_key": "k", "arguments": []}),
    ("DELETE", f"/exchanges/{R}/x5", None),
    ("DELETE", f"/queues/{R}/c5", None),
    ("GET", f"/queues/{R}/q", None),
    ("GET", "/queues", None),
    ("GET", "/queues/none", None),
    ("GET", f"/queues/{R}/none", None),
    *(("GET", f"/queues?{query}", None) for query in ("page=1&page_size=1", "page=9", "page=0")),
    *twice(("PUT", f"/exchanges/{R}/x", {"type": "topic", "durable": True})),
    ("PUT", f"/exchanges/{R}/x", {"type": "fanout", "durable": True}),
    ("PUT", f"/exchanges/{R}/y", {"type": "zzz"}),
    ("PUT", f"/exchanges/{R}/z", {}),
    ("GET", f"/exchanges/{R}/x", None),
    ("GET", f"/exchanges/{R}", None),
    ("GET", f"/exchanges/{R}/none", None),
    ("GET", f"/exchanges/{R}/amq.default", None),
    ("POST", f"/bindings/{R}/e/x/q/q", {"routing_key": "a", "arguments": {}}),
    ("POST", f"/bindings/{R}/e/x/q/none", {}),
    ("POST", f"/bindings/{R}/e/none/q/q", {}),
    ("GET", f"/bindings/{R}/e/x/q/q", None),
    ("GET", f"/bindings/{R}/e/x/q/q/a", None),
    ("GET", f"/bindings/{R}/e/x/q/q/none", None),
    ("GET", f"/queues/{R}/q/bindings", None),
    ("GET", f"/exchanges/{R}/x/bindings/source", None),
    ("GET", "/bindings", None),
    *twice(("DELETE", f"/bindings/{R}/e/x/q/q/a", None)),
    ("POST", f"/exchanges/{R}/amq.default/publish", MESSAGE),
    ("POST", f"/exchanges/{R}/amq.default/publish", {**MESSAGE, "routing_key": "none"}),
    ("POST", f"/exchanges/{R}/none/publish", MESSAGE),
    ("POST", f"/exchanges/{R}/amq.default/publish", {"routing_key": "q"}),
    ("POST", f"/exchanges/{R}/amq.default/publish", {**MESSAGE, "payload": 1}),
    ("POST", f"/exchanges/{R}/amq.default/publish", {**MESSAGE, "payload_encoding": "x"}),
    ("POST", f"/queues/{R}/q/get", LOOK),
    ("POST", f"/queues/{R}/q/get", {"count": 1, "ackmode": "ack_requeue_true"}),
    ("POST", f"/queues/{R}/q/get", {**LOOK, "ackmode": "x"}),
    ("POST", f"/queues/{R}/q/get", {**LOOK, "count": "a"}),
    ("POST", f"/queues/{R}/q/get", {**LOOK, "encoding": "x"}),
    ("POST", f"/queues/{R}/none/get", LOOK),
    ("DELETE", f"/queues/{R}/q?if-empty=true", None),
    ("DELETE", f"/queues/{R}/q/contents", None),
    ("DELETE", f"/queues/{R}/none/contents", None),
    *twice(("PUT", "/users/u", {"password": "p", "tags": "management"})),
    ("PUT", "/users/v", {"tags": "a"}),
    ("PUT", "/users/w", {"password": "x"}),
    ("PUT", "/users/n", {"password": "", "tags": ""}),
    *(("GET", f"/users{path}", None) for path in ("", "/u", "/none", "/without-permissions")),
    ("PUT", "/vhosts/v", {"description": "d", "tags": "a,b"}),
    ("PUT", "/vhosts/v", {}),
    *(("GET", f"/vhosts{path}", None) for path in ("", "/v", "/none")),
    *(("POST", f"/vhosts/{name}/deletion/protection", None) for name in ("v", "none")),
    ("DELETE", "/vhosts/v", None),
    ("PUT", "/vhosts/v/deletion/protection", None),
    *twice(("DELETE", "/vhosts/v/deletion/protection", None)),
    ("DELETE", "/vhosts/none/deletion/protection", None),
    *twice(("PUT", "/permissions/v/u", EVERY)),
    ("PUT", "/permissions/v/u", {"configure": ".*"}),
    ("PUT", "/permissions/v/none", EVERY),
    ("PUT", "/permissions/none/u", EVERY),
    *(("GET", f"/permissions{path}", None) for path in ("", "/v/u", "/v/none")),
    ("GET", "/users/u/permissions", None),
    ("GET", "/vhosts/v/permissions", None),
    ("PUT", "/topic-permissions/v/u", {"exchange": "amq.topic", "write": "a", "read": "b"}),
    ("GET", "/topic-permissions/v/u", None),
    ("DELETE", "/topic-permissions/v/u", None),
    *twice(("DELETE", "/permissions/v/u", None)),
    *twice(("PUT", f"/policies/{R}/p", POLICY)),
    ("PUT", f"/policies/{R}/p2", {"pattern": "^q"}),
    ("PUT", f"/policies/{R}/p2", {**POLICY, "pattern": "("}),
    *(("GET", f"/policies{path}", None) for path in ("", f"/{R}/p", f"/{R}/none")),
    *twice(("DELETE", f"/policies/{R}/p", None)),
    ("PUT", f"/operator-policies/{R}/p", POLICY),
    ("DELETE", f"/operator-policies/{R}/p", None),
    ("PUT", "/vhost-limits/v/max-queues", {"value": 3}),
    ("GET", "/vhost-limits/v", None),
    ("DELETE", "/vhost-limits/v/max-queues", None),
    ("PUT", "/vhost-limits/v/zzz", {"value": 3}),
    ("PUT", "/vhost-limits/none/max-queues", {"value": 3}),
    ("PUT", "/user-limits/u/max-channels", {"value": 3}),
    ("GET", "/user-limits/u", None),
    ("DELETE", "/user-limits/u/max-channels", None),
    ("PUT", f"/parameters/federation-upstream/{R}/up", {"value": {"uri": "amqp://x"}}),
    ("GET", f"/parameters/federation-upstream/{R}/up", None),
    *twice(("DELETE", f"/parameters/federation-upstream/{R}/up", None)),
    ("PUT", f"/parameters/zzz/{R}/up", {"value": 1}),
    *twice(("PUT", "/global-parameters/g", {"value": [1]})),
    ("GET", "/global-parameters/g", None),
    *twice(("DELETE", "/global-parameters/g", None)),
    *(("PUT", "/cluster-name", body) for body in ({"name": "n"}, {"name": ""}, {})),
    ("GET", "/global-parameters/cluster_name", None),
    *twice(("DELETE", "/global-parameters/cluster_name", None)),
    *(("PUT", f"/feature-flags/{name}/enable", {}) for name in ("none", "all")),
    *(("GET", f"/auth/attempts{path}", None) for path in ("", "/none", "/none/source")),
    ("GET", "/definitions", None),
    ("GET", f"/definitions/{R}", None),
    ("POST", "/definitions", {"vhosts": [{"name": "w"}]}),
    ("POST", "/definitions", b"{"),
    *(("GET", f"/{path}", None) for path in ("shovels", "federation-links", "connections")),
    ("GET", "/connections/none", None),
    *(("GET", f"/{path}", None) for path in ("channels", "consumers", "none")),
    *CHECKS,
    *(
        ("GET", f"/{path}", None)
        for path in (
            *(f"consumers/{R}", "consumers/none", "consumers?disable_stats=true"),
            *(f"aliveness-test/{R}", "aliveness-test/none", "healthchecks/node"),
            *("healthchecks/node/none", "nodes/none/memory", "auth/hash_password/secret"),
            *("overview?msg_rates_age=60&msg_rates_incr=5", "overview?lengths_age=60"),
            *("overview?msg_rates_age=x&msg_rates_incr=5", "overview?disable_stats=true"),
            *("all-configuration", "feature-flags", "deprecated-features/used"),
        )
    ),
    *(("POST", f"/queues/{R}/{name}/actions", {"action": "sync"}) for name in ("q", "none")),
    ("POST", f"/queues/{R}/q/actions", {}),
    *twice(("DELETE", "/reset", None)),
    ("DELETE", "/reset/none", None),
    ("POST", f"/vhosts/{R}/start/none", {}),
    ("POST", "/vhosts/none/start/none", {}),
    *((method, "/queues", {}) for method in ("PATCH", "POST", "PUT")),
    ("DELETE", f"/exchanges/{R}/x?if-unused=true", None),
    ("DELETE", f"/exchanges/{R}/x", None),
    ("DELETE", f"/exchanges/{R}/amq.direct", None),
    *twice(("DELETE", f"/queues/{R}/q", None)),
    *twice(("DELETE", "/users/u", None)),
    *twice(("DELETE", "/vhosts/v", None)),
)
"""Played in this order by an administrator."""

LOGINS = ("tagless", "management", "policymaker", "monitoring", "administrator", "wrong", "")
"""Users by their tag; the administrator has no permissions in any vhost."""


def by_user(name: str) -> tuple[Asked, ...]:
    """The requests of each user."""
    policy = {"pattern": "^x", "definition": {"max-length": 1}}
    looked = (
        *("overview", "whoami", "nodes", "users", "users/management", "vhosts", "vhosts/theirs"),
        *("permissions", f"permissions/{R}/management", "users/management/permissions"),
        *("queues", "queues/theirs", "queues/theirs/q", "exchanges/theirs", "bindings/theirs"),
        *("policies", f"policies/{R}", "operator-policies", "parameters", "global-parameters"),
        *("definitions", f"definitions/{R}", "vhost-limits", "vhost-limits/theirs"),
        *("user-limits", "user-limits/management", "connections", "shovels", "federation-links"),
        *("health/checks/alarms", "cluster-name", "extensions"),
        *("consumers", f"consumers/{R}", "consumers/theirs", f"aliveness-test/{R}"),
        *("aliveness-test/theirs", "auth/hash_password/secret", "nodes/none/memory"),
        *("auth/attempts/none", "auth/attempts/none/source"),
        "health/checks/below-node-connection-limit",
        "health/checks/reached-target-cluster-size",
    )
    return (
        *(("GET", f"/{path}", None) for path in looked),
        ("PUT", "/queues/theirs/new", {"durable": True}),
        ("DELETE", "/queues/theirs/none", None),
        ("PUT", f"/queues/{R}/of-{name}", {"durable": True}),
        ("POST", f"/queues/{R}/may-read/get", LOOK),
        ("POST", f"/queues/{R}/may-not/get", LOOK),
        ("DELETE", f"/queues/{R}/may-not/contents", None),
        ("POST", f"/exchanges/{R}/amq.default/publish", MESSAGE),
        ("PUT", f"/policies/{R}/of-{name}", policy),
        ("PUT", "/policies/theirs/x", policy),
        ("PUT", f"/operator-policies/{R}/x", policy),
        ("PUT", "/global-parameters/x", {"value": 1}),
        ("PUT", "/feature-flags/none/enable", {}),
        ("POST", "/vhosts/theirs/deletion/protection", None),
        ("DELETE", "/vhosts/theirs/deletion/protection", None),
        ("PUT", "/cluster-name", {"name": f"of-{name}"}),
        ("PUT", f"/vhosts/of-{name}", {}),
        ("PUT", f"/users/of-{name}", {"password": "p", "tags": ""}),
        ("POST", "/rebalance/queues", {}),
    )


def make_users(http: HttpClient) -> None:
    """Users of each tag, and what they ask for."""
    for path in ("/vhosts/theirs", "/queues/theirs/q"):
        http("PUT", path, {"durable": True})
    for queue in ("may-read", "may-not"):
        http("PUT", f"/queues/{R}/{queue}", {"durable": True})
    for name in LOGINS[:5]:
        tags = "" if name == "tagless" else name
        http("PUT", f"/users/{name}", {"password": "p", "tags": tags})
        if name != "administrator":
            http("PUT", f"/permissions/{R}/{name}", {**EVERY, "read": "^may-read"})


def played(http: HttpClient) -> dict[str, list[Any]]:
    """Status and error of each answer, by request; numbered, since some are made twice."""
    found: dict[str, list[Any]] = {}

    def note(user: str, asked: Asked, client: HttpClient) -> None:
        answer = client(*asked)
        error = answer.body.get("error") if isinstance(answer.body, dict) else None
        found[f"{len(found):03} {user} {asked[0]} {asked[1]}"] = [answer.status, error]

    for asked in REQUESTS:
        note("guest", asked, http)
    make_users(http)
    for name in LOGINS:
        login = "guest:wrong" if name == "wrong" else f"{name}:p" if name else ""
        for asked in by_user(name or "anonymous"):
            note(name or "anonymous", asked, http.as_user(login))
    return found


def main() -> None:
    """Record."""
    ports = free_ports(1)
    port = ports if isinstance(ports, int) else ports[0]
    listen = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n"
    with OneRabbitMQ(listen, PLUGINS, rabbitmq.find([])) as peer:
        http = HttpClient(f"http://127.0.0.1:{port}/api")
        for path in ("/overview", "/nodes"):  # 500 until it has its first statistics
            eventually(lambda path=path: http("GET", path).status == 200, f"{path} is answered")
        answers = played(http)
        lines = ",\n".join(f"{json.dumps(one)}: {json.dumps(answers[one])}" for one in answers)
        RECORDED.write_text(f'{{"of": "{peer.name}",\n"answers": {{\n{lines}\n}}}}\n')
    print(f"{len(answers)} answers of {peer.name}")


if __name__ == "__main__":
    main()
