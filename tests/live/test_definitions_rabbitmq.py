"""Exports of Warren are imported by a real RabbitMQ 4.3 server, where Debian's can be installed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench import rabbitmq
from bench.generator import Missing
from live import rabbitmq_exports as peers
from live.conftest import STRICT
from machines.definition_files.around import sample
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = pytest.mark.live


def peer_root() -> Path:
    """Where RabbitMQ 4 is; the test is skipped where it is not available."""
    notes: list[str] = []
    try:
        root = rabbitmq.find(notes)
    except Missing as error:
        notes.append(str(error))
        root = Path("/")
    if " 4." not in (rabbitmq.RabbitMQ(root).name if rabbitmq.server(root) else ""):
        reason = f"no RabbitMQ 4 here: {'; '.join(notes)}"
        if os.environ.get(STRICT):
            pytest.fail(f"{STRICT} is set, and there is {reason}")
        pytest.skip(reason)
    return root


@pytest.mark.long
def test_rabbitmq_imports_an_export_of_warren(tmp_path: Path) -> None:
    with peers.one_node(peer_root()) as peer:
        with LocalCluster(nodes=1, directory=tmp_path) as cluster, cluster.connect() as connection:
            admin = Admin(connection)
            admin.definitions.load(sample("4.3.6"))
            admin.vhosts.put("mine", description="d")
            admin.policies.put("mine", "p", "^q", {"max-length": 5}, apply_to="queues")
            admin.queues.declare("without a type", durable=True)
            admin.queues.declare("results", durable=True, auto_delete=True)
            admin.queues.declare("limited", arguments={"x-queue-type": "quorum", "x-max-length": 7})
            admin.exchanges.declare("inside", "topic", internal=True)
            admin.bindings.put(
                "inside", destination_queue="limited", routing_key="a.#", arguments={"k": [1, "x"]}
            )
            wanted = admin.definitions.export()
        inside, outside = peers.exchange_file(peer, "warren.json")
        outside.write_bytes(wanted.data)
        peers.control(peer, "import_definitions", inside)
        found = peers.exported(peer)
        for kind in ("users", "vhosts", "permissions", "topic_permissions", "policies", "queues"):
            names = {(one.get("vhost"), one.get("name", one.get("user"))) for one in found[kind]}
            expected = {
                (one.get("vhost"), one.get("name", one.get("user")))
                for one in wanted.document[kind]
            }
            assert expected <= names, kind
        there = {(one["vhost"], one["name"]): one for one in found["queues"]}
        for queue in wanted.document["queues"]:
            known = there[queue["vhost"], queue["name"]]
            for key in ("durable", "auto_delete", "arguments"):
                assert known[key] == queue[key], (queue, known)
            # An auto-delete queue that is replicated here is a classic one there.
            assert known["type"] == queue["arguments"]["x-queue-type"], (queue, known)
            assert known["type"] == queue["type"] or queue["name"] == "results"
        bound = [json.dumps(one, sort_keys=True) for one in found["bindings"]]
        for binding in wanted.document["bindings"]:
            if binding["source"] != "inside":  # internal exchanges are not in RabbitMQ's exports
                assert json.dumps(binding, sort_keys=True) in bound
        assert peers.control(peer, "authenticate_user", "operator", "made-up-1")
        parameters = {one["component"] for one in found["parameters"]}
        assert {"operator_policy", "vhost-limits", "federation-upstream", "shovel"} <= parameters
