"""What an operator reads: connections, refusals, errors of clients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pamqp.commands as spec
import pika
import pytest

from live.conftest import eventually
from live.raw_client import PROTOCOL_HEADER, RawClient, method
from warren.admin import Admin
from warren.claims import browse
from warren.connection import Connection
from warren.errors import AccessRefused, NotFound, WarrenError
from warren.local import LocalCluster
from warren.uri import Address

pytestmark = pytest.mark.live
EVIL = "bye\n2026-01-01T00:00:00.000 CRITICAL warren: all is lost\x1b[2J"
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} [A-Z]+ [\w.]+: |  \| |warren ready ")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1, directory=tmp_path_factory.mktemp("log")) as cluster:
        yield cluster


class Log:
    """What the node writes from here on."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._start = len(cluster.log(0))

    def new(self) -> str:
        return self._cluster.log(0)[self._start :]

    def line(self, *parts: str) -> str:
        """The first new line that has all these in it."""

        def found() -> str | None:
            return next(
                (line for line in self.new().splitlines() if all(part in line for part in parts)),
                None,
            )

        return str(eventually(found, f"a line with {parts}; there are:\n{self.new()}"))


@pytest.fixture
def log(node: LocalCluster) -> Log:
    return Log(node)


def connect(
    node: LocalCluster,
    user: str = "guest",
    password: str = "guest",
    vhost: str = "/",
    **properties: str,
) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1",
            node.nodes[0].amqp_port,
            vhost,
            pika.PlainCredentials(user, password),
            client_properties=properties,
        )
    )


def test_a_stranger_forges_no_line_before_the_login(node: LocalCluster, log: Log) -> None:
    port = node.nodes[0].amqp_port
    with RawClient(("127.0.0.1", port), "header") as client:
        client.send(method(spec.Connection.Close(320, EVIL, 0, 0), 0))
        while not isinstance(client.next()[1], spec.Connection.CloseOk):
            pass  # then it is the client that hangs up
    with RawClient(("127.0.0.1", port), "header") as client:
        client.send(method(spec.Connection.StartOk({}, EVIL, "", "en_US"), 0))
        client.everything()
    with RawClient(("127.0.0.1", port), "header") as client:
        client.send(method(spec.Connection.StartOk({}, "PLAIN", f"\0{EVIL}\0x", "en_US"), 0))
        client.everything()
    with RawClient(("127.0.0.1", port), "socket") as client:
        client.send(b"\nHTTP\x1b[")
        client.everything()
    log.line("ERROR", "login refused", "user 'bye\\n2026")
    log.line("protocol header", "\\nHTTP")
    text = log.new()
    assert "\x1b" not in text and "closed: 'bye\\n2026-01-01T00" in text
    strange = [line for line in text.splitlines() if not LINE.match(line)]
    assert not strange, strange
    assert not re.search(r"^2026-01-01", text, re.M)


def test_who_connects_and_goes(node: LocalCluster, log: Log) -> None:
    with connect(node, connection_name="billing\n") as connection:
        line = log.line(
            "INFO", "AMQP 0.9.1", "user 'guest' authenticated and granted access to vhost '/'"
        )
        assert "client 'Pika Python Client Library'" in line and "name 'billing\\n'" in line
        assert re.search(r"connection 127\.0\.0\.1:\d+ ", line)
        connection.channel()
    log.line("INFO", "AMQP 0.9.1, user 'guest', vhost '/'", "closed: ")
    with Connection(node.address, name="job 7") as warren:
        Admin(warren).overview()
        line = log.line("INFO", "(AMQP 1.0)", "user 'guest' authenticated", "vhost '/'")
        assert "name 'job 7" in line
    log.line("INFO", "AMQP 1.0, user 'guest', vhost '/'", "closed: ")


def test_a_client_that_goes_without_a_word(node: LocalCluster, log: Log) -> None:
    with RawClient(("127.0.0.1", node.nodes[0].amqp_port)):
        pass
    log.line("WARNING", "user 'guest', vhost '/'", "ended unexpectedly: 'the client closed the TCP")


def test_who_is_refused(node: LocalCluster, log: Log) -> None:
    with pytest.raises(pika.exceptions.AMQPError):
        connect(node, password="wrong")
    log.line("ERROR", "login refused: user 'guest', mechanism 'PLAIN': invalid credentials")
    with pytest.raises(pika.exceptions.AMQPError):
        connect(node, vhost="no\nsuch")
    log.line(
        "ERROR",
        "the connection: operation connection.open caused NOT_ALLOWED",
        "vhost no\\nsuch not found",
    )
    wrong = Address(hosts=node.address.hosts, password="wrong")
    with pytest.raises(WarrenError), Connection(wrong) as warren:
        Admin(warren).overview()
    log.line("(AMQP 1.0)", "ERROR", "login refused: user 'guest'", "invalid credentials")


def channel_error(channel: Any) -> None:
    channel.queue_declare("no\x1bsuch", passive=True)


def test_which_operation_failed(node: LocalCluster, log: Log) -> None:
    with connect(node) as connection:
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel_error(channel)
    log.line(
        "ERROR",
        "user 'guest'",
        "channel 1: operation queue.declare caused NOT_FOUND",
        "no queue \\'no\\x1bsuch\\' in vhost",
    )
    with RawClient(("127.0.0.1", node.nodes[0].amqp_port)) as client:
        client.send(method(spec.Basic.Publish(exchange="", routing_key="q", immediate=True)))
        client.everything()
    log.line("ERROR", "the connection: operation basic.publish caused NOT_IMPLEMENTED")


def test_which_link_failed(node: LocalCluster, log: Log) -> None:
    with Connection(node.address) as warren, pytest.raises((NotFound, AccessRefused)):
        list(browse(warren, "no such queue", 1))
    log.line("ERROR", "AMQP 1.0", "link '", "caused NOT_FOUND", "no such queue")


def test_a_port_check_is_no_error(node: LocalCluster, log: Log) -> None:
    with RawClient(("127.0.0.1", node.nodes[0].amqp_port), "socket"):
        pass
    with RawClient(("127.0.0.1", node.nodes[0].amqp_port), "socket") as client:
        client.send(PROTOCOL_HEADER)
    log.line("INFO", "ended before it was opened")
    assert " ERROR " not in log.new() and " WARNING " not in log.new()


def test_the_log_files_lines_are_all_whole(node: LocalCluster) -> None:
    text = Path(node.nodes[0].log_file).read_text()
    assert all(LINE.match(line) for line in text.splitlines()), text
