"""The metrics of a node, sent to a collector of OpenTelemetry that is down at first."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from live.conftest import eventually
from live.test_prometheus import connect, declare, scraped
from warren.local import LocalCluster
from warren.ports import ReservedPorts

pytestmark = pytest.mark.live


class Collector(HTTPServer):
    """Takes requests at /v1/metrics with the right token."""

    def __init__(self, port: int) -> None:
        self.taken: list[Any] = []
        super().__init__(("127.0.0.1", port), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        right = self.headers["Authorization"] == "Bearer t" and self.path == "/v1/metrics"
        if right:
            self.server.taken.append(json.loads(body))
        self.send_response(200 if right else 401)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_metrics_reach_a_collector_once_it_is_there(tmp_path: Path) -> None:
    port = ReservedPorts()
    number = port.take()
    settings = {
        "prometheus": {"enabled": True, "tcp": {"port": 0}},
        "otlp": {
            "endpoint": f"http://127.0.0.1:{number}/v1/metrics",
            "interval_ms": 1000,
            "headers": {"Authorization": "Bearer t"},
        },
    }
    with LocalCluster(1, tmp_path / "cluster", settings=settings) as cluster:
        refused = "OTLP: metrics are not taken by"
        eventually(lambda: refused in cluster.log(0), "it is logged that the collector is down")
        with connect(cluster) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            declare(channel, "q")
            for size in (50, 500):
                channel.basic_publish("", "q", bytes(size))
        collector = Collector(number)
        thread = threading.Thread(target=collector.serve_forever, daemon=True)
        thread.start()
        try:
            eventually(lambda: len(collector.taken) > 1, "it takes metrics")
            eventually(lambda: "takes metrics again" in cluster.log(0), "which is logged, too")
        finally:
            collector.shutdown()
            collector.server_close()
        assert cluster.log(0).count(refused) == 1, "once, however often it was tried"
        samples = scraped(cluster, 0)
    [resource] = collector.taken[-1]["resourceMetrics"]
    of = {one["key"]: one["value"]["stringValue"] for one in resource["resource"]["attributes"]}
    assert of["service.instance.id"] == cluster.nodes[0].name
    [scope] = resource["scopeMetrics"]
    families = {one["name"]: one for one in scope["metrics"]}
    shown = {name.removesuffix("_total") for name, _ in samples}
    bases = {name.rpartition("_")[0] for name in shown}
    assert {*families} <= shown | bases
    [ready] = families["rabbitmq_queue_messages_ready"]["gauge"]["dataPoints"]
    assert ready["asDouble"] == 2 and int(ready["timeUnixNano"]) > int(ready["startTimeUnixNano"])
    counted = families["rabbitmq_global_messages_received"]["sum"]
    assert counted["isMonotonic"] and counted["aggregationTemporality"] == 2
    by = {one["attributes"][0]["value"]["stringValue"]: one for one in counted["dataPoints"]}
    assert by["amqp091"]["asDouble"] == 2 and by["amqp10"]["asDouble"] == 0
    points = families["rabbitmq_message_size_bytes"]["histogram"]["dataPoints"]
    [sizes] = [one for one in points if one["attributes"][0]["value"]["stringValue"] == "amqp091"]
    assert (sizes["count"], sizes["sum"]) == ("2", 550)
    assert len(sizes["bucketCounts"]) == len(sizes["explicitBounds"]) + 1
    assert sizes["bucketCounts"][:2] == ["1", "1"] and sizes["explicitBounds"][:2] == [100, 1000]
