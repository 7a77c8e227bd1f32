"""Real broker processes for the tests below, or any AMQP broker named by WARREN_TEST_URI.

The same tests run against RabbitMQ itself: that is how they were checked to ask for the right
thing.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from warren.admin import Admin

# 1. A test leaves its connection alone while pages, programs or commands run.  2. On a busy machine
# they take longer than a heartbeat: the broker rightly closes it, and the test fails at its end.
pika.connection.Parameters.DEFAULT_HEARTBEAT_TIMEOUT = 600
DEADLINE_S = PATIENCE_S
POLL_S = 0.02
POLL_MAX_S = 0.25
DISK_BYTES = 64 << 20
RESOURCE_LOCKED = 405
STRICT = "WARREN_STRICT"
Mount = Callable[[Path], Path]


@dataclass(frozen=True)
class Broker:
    """Where the tests connect; cluster is None for a broker that is not ours."""

    uris: tuple[str, ...]
    cluster: Any = None

    @property
    def uri(self) -> str:
        """The first node."""
        return self.uris[0]

    def parameters(self, node: int = 0) -> pika.URLParameters:
        """pika's, for that node."""
        parameters = pika.URLParameters(self.uris[node % len(self.uris)])
        parameters.blocked_connection_timeout = DEADLINE_S
        parameters.socket_timeout = DEADLINE_S
        return parameters

    def connect(self, node: int = 0) -> pika.BlockingConnection:
        """A blocking connection to that node."""
        return pika.BlockingConnection(self.parameters(node))


@pytest.fixture(scope="session", autouse=True)
def nodes_are_warm() -> Iterator[None]:
    """Clusters of these tests start their nodes without importing the broker each time."""
    from tests.warm_nodes import warm_nodes

    with warm_nodes():
        yield


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A cluster of three that lives as long as the test session."""
    named = os.environ.get("WARREN_TEST_URI")
    if named:
        yield Broker(tuple(named.split(",")))
        return
    from warren.local import LocalCluster

    with LocalCluster(nodes=3, directory=tmp_path_factory.mktemp("cluster")) as cluster:
        uris = tuple(f"amqp://guest:guest@{host}/%2F" for host in cluster.addresses)
        yield Broker(uris, cluster)


@pytest.fixture
def connection(broker: Broker) -> Iterator[pika.BlockingConnection]:
    """A connection of the test's own."""
    made = broker.connect()
    yield made
    if made.is_open:
        made.close()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> Any:
    """A channel of the test's own."""
    return connection.channel()


@pytest.fixture
def queue_name(request: pytest.FixtureRequest, broker: Broker) -> Iterator[str]:
    """A name no other test uses; the queue is deleted afterwards.

    An exclusive queue is deleted with its connection. A test that closed its socket without
    connection.close leaves the broker to find out, so the queue may still be locked here.
    """
    name = f"test.{request.node.name}.{time.monotonic_ns()}"
    yield name
    deadline = time.monotonic() + DEADLINE_S
    with broker.connect() as connection:
        while True:
            try:
                connection.channel().queue_delete(name)
                return
            except pika.exceptions.ChannelClosedByBroker as closed:
                if closed.reply_code != RESOURCE_LOCKED or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    """Warren's management over a connection of the test's own."""
    from warren.admin import Admin
    from warren.connection import Connection

    if broker.cluster is None:
        pytest.skip("needs Warren's management")
    with Connection(broker.cluster.address) as connection:
        yield Admin(connection)


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Put a file system of fixed size under a directory; they go with the test."""
    mounted: list[Path] = []

    def made(place: Path) -> Path:
        place.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "warren-test", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            if os.environ.get(STRICT):
                pytest.fail(f"{STRICT} is set, and no file system can be mounted: {done.stderr}")
            pytest.skip(f"no file system of fixed size can be mounted here: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield made
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


def eventually(holds: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Wait for a condition; its first true value.

    It is asked less often the longer it takes: most conditions make a connection.
    """
    began = time.monotonic()
    while True:
        value = holds()
        if value:
            return value
        waited = time.monotonic() - began
        assert waited < deadline_s, f"not within {deadline_s} s: {what}"
        time.sleep(min(POLL_MAX_S, max(POLL_S, waited / 10)))
