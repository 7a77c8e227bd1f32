"""Clients of another address that do not log in, against a node with all its ports."""

from __future__ import annotations

import json
import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families

from live.conftest import eventually
from live.http_client import api_address, http_client
from tests.patience import PATIENCE_S
from warren.local import LocalCluster
from warren_broker.config import Limits
from warren_broker.settings.http_settings import HttpBounds

pytestmark = pytest.mark.live
SETTINGS = {
    "prometheus": {"enabled": True, "tcp": {"port": 0}},
    "management": {"enabled": True, "tcp": {"port": 0}},
}
MORE = 40


def evicted(cluster: LocalCluster) -> dict[str, float]:
    """Which have lost their place to others that waited, as the metrics say."""
    said = json.loads((cluster.nodes[0].data_dir / "listening.json").read_text())
    with urllib.request.urlopen(f"http://{said['prometheus']}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        sample.labels["what"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "warren_before_login_turned_away_total"
        and sample.labels["reason"] == "evicted"
    }


def flood(kept: ExitStack, port: int, count: int, says: bytes) -> None:
    """Connect from another address, and say something."""
    for _ in range(count):
        made = socket.create_connection(
            ("127.0.0.1", port), PATIENCE_S, source_address=("127.0.0.2", 0)
        )
        kept.enter_context(made)
        made.sendall(says)


def test_an_address_has_its_share_and_clients_of_another_one_are_served(tmp_path: Path) -> None:
    bounds = Limits().unauthenticated_per_address_max, HttpBounds().unauthenticated_per_address_max
    with (
        LocalCluster(nodes=1, directory=tmp_path, settings=SETTINGS) as cluster,
        ExitStack() as kept,
    ):
        amqp = cluster.nodes[0].amqp_port
        flood(kept, amqp, bounds[0] + MORE, b"AMQP")
        http = int(api_address(cluster, 0).rpartition(":")[2])
        flood(kept, http, bounds[1] + MORE, b"GET / HTTP/1.1\r\nX: ")

        def counted() -> bool:
            found = evicted(cluster)
            return found["connections"] > 0 < found.get("http_connections", 0)

        eventually(counted, "those that waited have got places, and metrics say so")
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp)).close()
        assert http_client(cluster).get("/whoami")["name"] == "guest"
