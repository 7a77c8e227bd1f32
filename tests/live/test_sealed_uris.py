"""No file of a node has the password of a link; a link runs with it all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from live.conftest import eventually
from live.http_client import SETTINGS, HttpClient, http_client
from warren.admin import Admin
from warren.local import LocalCluster
from warren.local_node import cluster_secret
from warren.producer import Producer
from warren_wire.admin.shovels import RUNNING, TERMINATED

pytestmark = pytest.mark.live
PASSWORD = "Aec5-never-on-disk"
URI = f"amqp://mover:{PASSWORD}@/%2F"
SEALED_ELSEWHERE = "was sealed with another secret of the cluster"


def shovel(number: int, uri: Any = URI) -> dict[str, Any]:
    """The value of a shovel from one queue to another."""
    return {
        "src-uri": uri,
        "src-queue": f"from-{number}",
        "dest-uri": "amqp:///%2F",
        "dest-queue": f"to-{number}",
        "reconnect-delay": 1,
    }


def files_with(directory: Path, text: str) -> list[Path]:
    """Files below a directory that have a text in their bytes."""
    files = [one for one in directory.rglob("*") if one.is_file()]
    assert files
    return [one for one in files if text.encode() in one.read_bytes()]


def set_links(http: HttpClient) -> None:
    """A shovel and an upstream by their requests, and one more of each by an import."""
    user = {"password": PASSWORD, "tags": ""}
    assert http("PUT", "/users/mover", user).status == 201
    every = {"configure": ".*", "write": ".*", "read": ".*"}
    for vhost in ("up-1", "up-2"):
        assert http("PUT", f"/vhosts/{vhost}").status == 201
    for vhost in ("%2F", "up-1", "up-2"):
        assert http("PUT", f"/permissions/{vhost}/mover", every).status == 201
    up = {"uri": f"amqp://mover:{PASSWORD}@/up-1", "reconnect-delay": 1}
    for path, value in (("shovel/%2F/one", shovel(1)), ("federation-upstream/%2F/far-1", up)):
        assert http("PUT", f"/parameters/{path}", {"value": value}).status == 201
    both = {"uri": [f"amqp://mover:{PASSWORD}@/up-2"], "reconnect-delay": 1}
    parameters = [
        {"component": "shovel", "name": "two", "value": shovel(2, [URI])},
        {"component": "federation-upstream", "name": "far-2", "value": both},
        {"component": "shovel", "name": "plain", "value": shovel(3, "amqp:///%2F")},
    ]
    definition = {"federation-upstream-set": "all"}
    policy = {"name": "fed", "pattern": "^fed$", "apply-to": "exchanges", "definition": definition}
    document = {
        "parameters": [{"vhost": "/", **one} for one in parameters],
        "policies": [{"vhost": "/", "priority": 0, **policy}],
        "exchanges": [{"vhost": "/", "name": "fed", "type": "fanout", "durable": True}],
    }
    assert http("POST", "/definitions", document).status in (200, 204)


def states(admin: Admin) -> dict[str, str]:
    """The state of each shovel and link by its name."""
    return {one.name: one.state for one in [*admin.shovels.list(), *admin.federation.links()]}


def all_run(admin: Admin) -> None:
    wanted = dict.fromkeys(("one", "two", "plain", "far-1", "far-2"), RUNNING)
    eventually(lambda: states(admin) == wanted, "all links run")


def moves(cluster: LocalCluster, number: int) -> None:
    """A shovel passes a message on."""
    with cluster.connect() as connection:
        admin = Admin(connection)
        before = admin.queues.get(f"to-{number}").messages_ready
        with Producer(connection) as producer:
            producer.send(b"m", f"from-{number}").wait()
        arrived = before + 1
        eventually(lambda: admin.queues.get(f"to-{number}").messages_ready == arrived, "it arrives")


@pytest.mark.long
def test_no_file_has_a_password_of_a_link(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, directory=tmp_path, settings=SETTINGS) as cluster:
        with cluster.connect() as connection:
            admin = Admin(connection)
            for number in (1, 2, 3):
                for queue in (f"from-{number}", f"to-{number}"):
                    admin.queues.declare(queue)
            set_links(http_client(cluster))
            all_run(admin)
            exported = admin.definitions.export().document
            assert json.dumps(exported).count(PASSWORD) == 4, "as they were given"
            listed = str(admin.parameters.list())
            assert PASSWORD not in listed and listed.count("amqp://mover:***@/") == 4
            report = admin.definitions.load(json.dumps(exported).encode())
            assert not report.changed, "it is what the cluster has"
        cluster.stop_node(0)
        assert not files_with(tmp_path, PASSWORD)
        assert files_with(tmp_path, "sealed:1:"), "the definitions are among the files"
        cluster.start()
        with cluster.connect() as connection:
            all_run(Admin(connection))
        moves(cluster, 1)
        moves(cluster, 2)
        cluster.stop_node(0)
        config, secret = cluster.nodes[0].config_file, cluster_secret(tmp_path)
        config.write_text(config.read_text().replace(secret, secret[::-1]))
        cluster.start()
        _with_another_secret(cluster)
        assert not files_with(tmp_path, PASSWORD)


def _with_another_secret(cluster: LocalCluster) -> None:
    """What cannot be read says so, all else continues, and a link that is set again runs."""
    with cluster.connect() as connection:
        admin = Admin(connection)
        lost = dict.fromkeys(("one", "two", "far-1", "far-2"), TERMINATED)
        wanted = {**lost, "plain": RUNNING}
        eventually(lambda: states(admin) == wanted, "links without a password run")
        moves(cluster, 3)
        for one in [*admin.shovels.list(), *admin.federation.links()]:
            assert one.name == "plain" or SEALED_ELSEWHERE in one.reason, one
        exported = admin.definitions.export()
        assert PASSWORD not in str(exported.document) and len(exported.notes) == 4
        assert SEALED_ELSEWHERE in exported.notes[0]
        admin.parameters.put("shovel", "/", "one", shovel(1))
        eventually(
            lambda: admin.shovels.get("/", "one").state == RUNNING, "it is set again, and runs"
        )
    moves(cluster, 1)
