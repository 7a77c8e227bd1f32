"""RabbitMQ's own command line for the HTTP API, `rabbitmqadmin`, against a cluster.

It is Debian's (of the package rabbitmq-server), or the one that RABBITMQADMIN names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live.conftest import STRICT, eventually
from live.http_client import SETTINGS, api_address, http_client
from tests.patience import PATIENCE_S
from tools import debian
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = pytest.mark.live


def script() -> str:
    """The script; skips where there is none."""
    found = debian.unpacked("rabbitmqadmin")
    if found is not None:
        return found
    reason = "no rabbitmqadmin here: apt-get install rabbitmq-server, or RABBITMQADMIN=PATH"
    if os.environ.get(STRICT):
        pytest.fail(f"{STRICT} is set, and there is {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    script()
    with LocalCluster(nodes=3, settings=SETTINGS) as made:
        yield made


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with cluster.connect() as connection:
        yield Admin(connection)


def run(cluster: LocalCluster, *arguments: str, said: str = "", code: int = 0) -> str:
    """Run it; `said` goes to its standard input."""
    port = api_address(cluster, 0).rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, script(), "-H", "127.0.0.1", "-P", port, *arguments],
        input=said,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout + done.stderr


def listed(cluster: LocalCluster, *arguments: str) -> Any:
    """What `list` prints, as JSON."""
    return json.loads(run(cluster, "-f", "raw_json", "list", *arguments))


def test_it_declares_shows_and_deletes(cluster: LocalCluster, admin: Admin) -> None:
    assert "queue declared" in run(
        cluster, "declare", "queue", "name=q", "durable=true", 'arguments={"x-max-length": 5}'
    )
    run(cluster, "declare", "queue", "name=classic", "queue_type=classic")
    run(cluster, "declare", "exchange", "name=x", "type=topic")
    run(cluster, "declare", "binding", "source=x", "destination=q", "routing_key=a.#")
    assert admin.queues.get("q").arguments["x-max-length"] == 5
    assert admin.queues.get("classic").type == "classic"
    table = run(cluster, "list", "queues", "name", "messages")
    assert "| q       | 0        |" in table, table
    assert {one["name"] for one in listed(cluster, "queues")} == {"q", "classic"}
    bound = [one for one in listed(cluster, "bindings") if one["source"] == "x"]
    assert (bound[0]["destination"], bound[0]["routing_key"]) == ("q", "a.#")
    assert "x" in {one["name"] for one in listed(cluster, "exchanges", "name")}

    assert "Message published" in run(
        cluster, "publish", "exchange=x", "routing_key=a.b", "payload=hello"
    )
    assert "NOT routed" in run(cluster, "publish", "exchange=x", "routing_key=b", "payload=hello")
    run(cluster, "publish", "routing_key=q", said="from standard input")
    eventually(lambda: admin.queues.get("q").messages == 2, "both are there")
    taken = run(cluster, "get", "queue=q", "count=2", "ackmode=ack_requeue_true")
    assert "hello" in taken and "from standard input" in taken
    assert "hello" in run(cluster, "get", "queue=q", "ackmode=ack_requeue_false")
    run(cluster, "purge", "queue", "name=q")
    assert admin.queues.get("q").messages == 0

    key = bound[0]["properties_key"]
    run(
        cluster,
        *("delete", "binding", "source=x", "destination_type=queue", "destination=q"),
        f"properties_key={key}",
    )
    assert not [one for one in listed(cluster, "bindings") if one["source"] == "x"]
    for kind, name in (("exchange", "x"), ("queue", "q"), ("queue", "classic")):
        run(cluster, "delete", kind, f"name={name}")
    assert admin.queues.list() == []
    assert "Not found" in run(cluster, "delete", "queue", "name=q", code=1)


def test_it_manages_users_vhosts_permissions_policies_and_limits(
    cluster: LocalCluster, admin: Admin
) -> None:
    run(cluster, "declare", "vhost", "name=v")
    run(cluster, "declare", "user", "name=u", "password=p", "tags=monitoring")
    every = ("configure=.*", "write=.*", "read=.*")
    run(cluster, "declare", "permission", "vhost=v", "user=u", *every)
    assert {"vhost": "v", "user": "u", "configure": ".*", "write": ".*", "read": ".*"} in listed(
        cluster, "permissions"
    )
    policy = ("pattern=^q", 'definition={"max-length": 3}', "priority=4", "apply-to=queues")
    run(cluster, "declare", "policy", "name=p", *policy)
    (shown,) = listed(cluster, "policies")
    assert (shown["name"], shown["definition"], shown["priority"]) == ("p", {"max-length": 3}, 4)
    run(cluster, "declare", "operator_policy", "name=o", *policy)
    assert [one["name"] for one in listed(cluster, "operator_policies")] == ["o"]
    run(cluster, "declare", "vhost_limit", "vhost=v", "name=max-queues", "value=2")
    assert listed(cluster, "vhost_limits") == [{"vhost": "v", "value": {"max-queues": 2}}]
    value = 'value={"uri": "amqp://127.0.0.1:1"}'
    run(cluster, "declare", "parameter", "component=federation-upstream", "name=up", value)
    assert [one["name"] for one in listed(cluster, "parameters")] == ["up"]
    assert {"guest", "u"} <= {one["name"] for one in listed(cluster, "users")}
    assert {"/", "v"} <= {one["name"] for one in listed(cluster, "vhosts")}
    assert len(listed(cluster, "nodes")) == 3
    admin.overview()
    assert listed(cluster, "channels") == []
    (connection,) = listed(cluster, "connections", "name", "user")
    assert connection["user"] == "guest"
    run(cluster, "close", "connection", f"name={connection['name']}")
    eventually(lambda: listed(cluster, "connections") == [], "it is closed")
    login = ("-u", "u", "-p", "p")
    assert "v" in run(cluster, *login, "list", "vhosts", "name")
    assert "Access refused" in run(cluster, *login, "list", "users", code=1)

    run(cluster, "delete", "parameter", "component=federation-upstream", "name=up")
    run(cluster, "delete", "vhost_limit", "vhost=v", "name=max-queues")
    run(cluster, "delete", "operator_policy", "name=o")
    run(cluster, "delete", "policy", "name=p")
    run(cluster, "delete", "permission", "vhost=v", "user=u")
    run(cluster, "delete", "user", "name=u")
    run(cluster, "delete", "vhost", "name=v")
    assert {one.name for one in admin.users.list()} == {"guest"}
    assert {one.name for one in admin.vhosts.list()} == {"/"}


def test_it_exports_imports_and_shows_the_overview(cluster: LocalCluster, tmp_path: Path) -> None:
    run(cluster, "declare", "queue", "name=kept", 'arguments={"x-max-length": 8}')
    path = tmp_path / "definitions.json"
    run(cluster, "export", str(path))
    run(cluster, "delete", "queue", "name=kept")
    run(cluster, "import", str(path))
    http = http_client(cluster)
    assert http.get("/queues/%2F/kept")["arguments"]["x-max-length"] == 8
    shown = run(cluster, "show", "overview")
    assert "local" in shown and "rabbitmq_version" in shown
    run(cluster, "delete", "queue", "name=kept")
