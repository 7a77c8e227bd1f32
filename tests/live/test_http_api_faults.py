"""Faults around the HTTP API: process, node and leader are killed, clients misbehave."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pika
import pytest

from live.conftest import eventually
from live.http_client import SETTINGS, HttpAnswer, HttpClient, api_address, http_client, quoted
from tests.certificates import Authority
from tests.patience import PATIENCE_S
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow]
ROOT = quoted("/")


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, settings=SETTINGS) as made:
        yield made


def process_of(node: int) -> int:
    """The process of the API that the node has started; 0: there is none now."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == node and b"warren_broker.http.worker" in command:
            return int(path.parent.name)
    return 0


def runs(pid: int) -> bool:
    """Whether the process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def attempted(http: HttpClient, method: str, path: str, body: Any = None) -> HttpAnswer | None:
    """An answer, or None where the connection failed."""
    try:
        return http(method, path, body)
    except OSError:
        return None


def test_the_process_is_started_again_and_ends_with_its_node(cluster: LocalCluster) -> None:
    http = http_client(cluster)
    node = cluster.pid("node-0")
    assert http.get("/whoami")["name"] == "guest"
    for _ in range(2):
        first = eventually(lambda: process_of(node), "the process runs")
        os.kill(first, signal.SIGKILL)
        answered = eventually(lambda: attempted(http, "GET", "/whoami"), "it answers again")
        assert answered.status == 200, "the port stayed open, and the connection waited"
        assert process_of(node) not in (0, first)
        assert cluster.is_running(0) and cluster.pid("node-0") == node
    assert "it is started again" in cluster.log(0)

    orphan = process_of(node)
    cluster.kill(0)
    eventually(lambda: not runs(orphan), "the process of a killed node has ended")
    node = cluster.pid("node-1")
    stopped = eventually(lambda: process_of(node), "that of node-1")
    cluster.stop_node(1)
    eventually(lambda: not runs(stopped), "the process of a stopped node has ended")


def test_a_hanging_process_is_killed_with_its_node(cluster: LocalCluster) -> None:
    node = cluster.pid("node-2")
    http_client(cluster, 2).get("/whoami")
    process = process_of(node)
    os.kill(process, signal.SIGSTOP)
    cluster.stop_node(2)
    eventually(lambda: not runs(process), "it does not outlive its node")


def test_the_leader_dies_amid_requests(cluster: LocalCluster) -> None:
    http = http_client(cluster, 0)
    assert http("PUT", f"/queues/{ROOT}/q", {}).status == 201
    leader = http.get(f"/queues/{ROOT}/q")["leader"]
    asked = next(n for n in range(3) if f"node-{n}" != leader)
    http = http_client(cluster, asked)
    cluster.kill(leader)
    body = {"properties": {}, "routing_key": "q", "payload": "p", "payload_encoding": "string"}

    def published() -> bool:
        found = http("POST", f"/exchanges/{ROOT}/amq.default/publish", body)
        assert found.status in (200, 400, 503), found
        return bool(found.status == 200 and found.body["routed"])

    eventually(published, "it is published under the next leader")
    shown = eventually(
        lambda: (one := http.get(f"/queues/{ROOT}/q"))["messages"] and one, "it is counted"
    )
    assert shown["leader"] != leader and leader not in shown["online"]
    nodes = {one["name"]: one["running"] for one in http.get("/nodes")}
    assert not nodes[leader] and sum(nodes.values()) == 2
    critical = http("GET", "/health/checks/node-is-quorum-critical")
    assert (critical.status, critical.body["status"]) == (503, "failed")


def test_without_a_majority_changes_are_refused_in_time(cluster: LocalCluster) -> None:
    """Reads continue: this node knows the definitions."""
    settings = {**SETTINGS, "limits": {"operation_timeout_ms": 1_500}}
    with LocalCluster(nodes=3, settings=settings) as short:
        http = http_client(short, 0)
        eventually(lambda: http("PUT", f"/queues/{ROOT}/q", {}).status in (201, 204), "a queue")
        short.kill(1)
        short.kill(2)
        refused = http("PUT", f"/queues/{ROOT}/r", {})
        assert (refused.status, refused.body["error"]) == (503, "service_unavailable")
        body = {"properties": {}, "routing_key": "q", "payload": "p", "payload_encoding": "string"}
        publishing = ("POST", f"/exchanges/{ROOT}/amq.default/publish", body)
        with ThreadPoolExecutor(10) as threads:
            waiting = [threads.submit(http, *publishing) for _ in range(10)]
            assert {one.result(PATIENCE_S).status for one in waiting} == {503}
        refused = http(*publishing)
        assert refused.status == 503, "no thread waits for ever for a confirm"
        assert [one["name"] for one in http.get(f"/queues/{ROOT}?disable_stats=true")] == ["q"]
        short.start(1)
        eventually(lambda: http("PUT", f"/queues/{ROOT}/r", {}).status in (201, 204), "a majority")


def test_a_node_without_its_cluster_says_so() -> None:
    settings = {**SETTINGS, "limits": {"operation_timeout_ms": 1_500}}
    with LocalCluster(nodes=3, settings=settings) as made:
        made.stop_node(1)
        made.stop_node(2)
        made.stop_node(0)
        made.start(0)
        refused = http_client(made)("GET", "/overview")
        if refused.status != 200:
            assert (refused.status, refused.body["error"]) == (503, "service_unavailable")


# ------------------------------------------------------------------ clients


def sent(address: str, data: bytes, until: float = PATIENCE_S) -> bytes:
    """What comes back for these bytes, until the connection ends."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=until) as connection:
        connection.sendall(data)
        found = b""
        while piece := connection.recv(65_536):
            found += piece
        return found


def test_hostile_requests_are_refused_and_nothing_ends(cluster: LocalCluster) -> None:
    http, address = http_client(cluster), api_address(cluster, 0)
    node = cluster.pid("node-0")
    http.get("/whoami")
    process = process_of(node)
    queue = f"/queues/{ROOT}/q"
    for body in (
        b"{",
        b"\xff\xfe",
        b"[]",
        b'"a"',
        b"1e999",
        b'{"arguments": ' + b"[" * 100_000,
        b'{"arguments": {"a": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}}",
        b'{"arguments": {"x-max-length": 99999999999999999999999}}',
        b'{"arguments": {"x-max-length": -9223372036854775808}}',
        b'{"arguments": {"x-max-length": 1.5}}',
        b'{"arguments": {"x-max-length": "many"}}',
        b'{"arguments": "none"}',
        b'{"durable": 1}',
        b'{"auto_delete": []}',
    ):
        refused = http("PUT", queue, body)
        assert refused.status == 400 and refused.body["reason"], (body[:40], refused)
    largest = {"x-max-length": (1 << 64) - 1}
    assert http("PUT", queue, {"arguments": largest}).status == 201
    assert [one["arguments"] for one in http.get("/queues") if one["name"] == "q"] == [largest]
    message = {"properties": {}, "routing_key": "q", "payload": "1", "payload_encoding": "string"}
    sending = f"/exchanges/{ROOT}/amq.default/publish"
    assert http("POST", sending, message).body == {"routed": True}
    eventually(lambda: http.get(queue)["messages"] == 1, "the message is in the queue")
    assert http("DELETE", queue).status == 204
    for path in (
        f"/queues/{ROOT}/",
        "/queues/%FF/q",
        f"/queues/{ROOT}/" + "a" * 256,
        f"/queues/{ROOT}/amq.reserved",
    ):
        assert http("PUT", path, {}).status in (400, 401, 404, 405), path
    for path in ("/../../etc/passwd", "/queues/..%2f..%2fetc", "/%00", "//", "/" + "a/" * 500):
        assert http("GET", path).status in (400, 404), path
    assert http("GET", "/queues?" + "&".join(f"a{n}=1" for n in range(100))).status == 400
    assert http("GET", "/queues?page=" + "9" * 4_000).status == 400
    large = b'{"arguments": {"a": "' + b"a" * 20_000_000 + b'"}}'
    refused_large = attempted(http, "PUT", queue, large)
    assert refused_large is None or refused_large.status == 400
    for data in (
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /api/overview HTTP/1.1\r\nHost: x\r\nAuthorization: Basic !!\r\n"
        b"Connection: close\r\n\r\n",
        b"POST /api/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ):
        assert b"HTTP/1.1 40" in sent(address, data), data[:40]
    assert http.get("/whoami")["name"] == "guest"
    assert process_of(node) == process and cluster.is_running(0)
    assert "Traceback" not in cluster.log(0)


def test_a_request_with_two_lengths_is_the_last_of_its_connection(cluster: LocalCluster) -> None:
    """A proxy that goes by the other length would see a request in its body: another client's."""
    address = api_address(cluster, 0)
    smuggled = b"GET /api/whoami HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    data = (
        b"PUT /api/queues/%2F/q HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    answer = sent(address, data + smuggled)
    assert answer.count(b"HTTP/1.1 ") == 1 and b"connection: close" in answer.lower()


def test_large_headers_are_refused_also_in_one_piece(cluster: LocalCluster) -> None:
    http, address = http_client(cluster), api_address(cluster, 0)
    http.get("/whoami")
    for size in (40_000, 70_000, 200_000):  # they were taken when they came at once
        data = b"GET /api/x HTTP/1.1\r\nHost: x\r\nX: " + b"a" * size + b"\r\n\r\n"
        with suppress(ConnectionError):  # it is closed with some of them unread
            assert sent(address, data)[:12] in (b"HTTP/1.1 400", b""), size
    data = b"GET /api/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: " + b"a" * 30_000
    assert sent(address, data + b"\r\n\r\n").startswith(b"HTTP/1.1 401")
    assert http.get("/whoami")["name"] == "guest"


def test_clients_that_hang_do_not_keep_others_out(cluster: LocalCluster) -> None:
    http, address = http_client(cluster), api_address(cluster, 0)
    host, _, port = address.rpartition(":")
    hanging = [socket.create_connection((host, int(port))) for _ in range(200)]
    try:
        for at, one in enumerate(hanging):
            one.sendall(b"GET /api/overview HTTP/1.1\r\nHost: x\r\n"[: at % 40])
        assert http.get("/whoami")["name"] == "guest"
        with pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].amqp_port)
        ) as connection:
            assert connection.channel().queue_declare("", exclusive=True)
    finally:
        for one in hanging:
            one.close()


def test_wrong_passwords_do_not_slow_down_others(cluster: LocalCluster) -> None:
    http = http_client(cluster)
    wrong = http.as_user("guest:wrong")
    guessing = [threading.Thread(target=wrong, args=("GET", "/whoami")) for _ in range(100)]
    for one in guessing:
        one.start()
    began = time.monotonic()
    assert http.get("/whoami")["name"] == "guest"
    assert time.monotonic() - began < PATIENCE_S / 2
    for one in guessing:
        one.join(PATIENCE_S)
    assert "login of user 'guest' from 127.0.0.1" in cluster.log(0)
    assert "wrong" not in cluster.log(0)


def test_a_changed_password_holds_at_the_next_request(cluster: LocalCluster) -> None:
    http = http_client(cluster)
    assert http("PUT", "/users/u", {"password": "a", "tags": "management"}).status == 201
    user = http.as_user("u:a")
    assert user("GET", "/whoami").status == 200
    assert http("PUT", "/users/u", {"password": "b", "tags": "management"}).status == 204
    assert user("GET", "/whoami").status == 401
    assert http("DELETE", "/users/u").status == 204
    assert http.as_user("u:b")("GET", "/whoami").status == 401


# ------------------------------------------------------------------ where it listens


def test_a_port_that_is_taken_is_named() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        settings = {"management": {"enabled": True, "tcp": {"port": port}}}
        with pytest.raises(Exception, match=f"management: cannot listen on 127.0.0.1:{port}"):
            LocalCluster(nodes=1, settings=settings).start()


def test_https(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("node")
    tls = {"port": 0, "certfile": str(certificate.cert), "keyfile": str(certificate.key)}
    settings = {"management": {"enabled": True, "ssl": tls}}
    with LocalCluster(nodes=1, settings=settings) as cluster:
        address = api_address(cluster, 0)
        context = ssl.create_default_context(cafile=str(authority.cert))
        request = urllib.request.Request(f"https://{address}/api/whoami")
        request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
            assert json.loads(answer.read())["name"] == "guest"
        assert b"HTTP" not in sent(address, b"GET /api/whoami HTTP/1.1\r\n\r\n")


def test_a_node_in_maintenance_answers_and_is_revived(cluster: LocalCluster) -> None:
    http = http_client(cluster, 1)
    assert http("PUT", f"/queues/{ROOT}/drained", {}).status in (201, 204)
    assert http("POST", "/nodes/node-1/drain", {}).status in (200, 202)
    message = {"properties": {}, "routing_key": "drained", "payload": "1"}
    message["payload_encoding"] = "string"
    publishing = ("POST", f"/exchanges/{ROOT}/amq.default/publish", message)

    def refused() -> str:
        answer = http(*publishing)
        return str(answer.body["reason"]) if answer.status == 503 else ""

    assert "ask another node" in eventually(refused, "it accepts no clients")
    assert http("GET", "/health/checks/is-in-service").status == 503
    assert http.get("/whoami")["name"] == "guest"
    assert http("POST", "/nodes/node-1/revive", {}).status in (200, 202)
    eventually(lambda: http(*publishing).status == 200, "it accepts clients again")
    assert http("GET", "/health/checks/is-in-service").status == 200
    assert http("DELETE", f"/queues/{ROOT}/drained").status == 204
