"""AMQP 1.0 brokers for tests: Artemis and Qpid Broker-J of Maven's jars, RabbitMQ, Warren."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import quote

import pika
import pytest
from proton import Message
from proton.utils import BlockingConnection

from bench.ports import free_ports
from connector.amqp.rabbitmq import OneRabbitMQ
from live.conftest import STRICT
from tests.patience import PATIENCE_S
from warren.local import LocalCluster

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
JARS = ROOT / ".warren" / "jars"
INSTALL_S = 600
SHORT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Of a JVM that lives for seconds: less is compiled, and by the quick compiler."""
ARTEMIS_VERSION, QPID_VERSION = "2.42.0", "9.2.1"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>warren</groupId><artifactId>brokers</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
_ONE = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}"
    "</dependency>"
)
_WITHOUT_JE = (
    "<exclusions><exclusion><groupId>com.sleepycat</groupId><artifactId>je</artifactId>"
    "</exclusion></exclusions>"
)
PACKAGES = {
    "artemis": [
        ("org.apache.activemq", name, ARTEMIS_VERSION, "")
        for name in ("artemis-server", "artemis-amqp-protocol")
    ],
    "qpid": [("org.apache.qpid", "qpid-broker", QPID_VERSION, _WITHOUT_JE)],
}


def jars(name: str) -> Path:
    """Return the folder of a broker's jars, which Maven brings once; skips the test without it."""
    place = JARS / name
    done = place / "done"
    if not done.exists():
        place.mkdir(parents=True, exist_ok=True)
        pom = place / "pom.xml"
        pom.write_text(_POM.format("".join(_ONE.format(*each) for each in PACKAGES[name])))
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command.append(f"-DoutputDirectory={place}")
        why = "there is no JDK 17 and Maven on PATH"
        if shutil.which("mvn") and shutil.which("javac"):
            made = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_S, check=False
            )
            why = made.stdout[-500:]
            if made.returncode == 0:
                done.touch()
        if not done.exists():
            if os.environ.get(STRICT):
                pytest.fail(f"{STRICT} is set, and {name} is missing: {why}")
            pytest.skip(f"no {name} here: {why}")
    return place


class Broker10(Protocol):
    """A broker that speaks AMQP 1.0."""

    name: str

    @property
    def hosts(self) -> str: ...

    def create(self, queue: str) -> None: ...

    def count(self, queue: str) -> tuple[int, int]:
        """Return messages and consumers."""

    def delete(self, queue: str) -> None: ...

    def address(self, queue: str) -> str: ...

    def kill(self) -> None: ...

    def restart(self) -> None: ...


class JavaNode:
    """A broker in a JVM of its own, with its data in a directory; a context manager."""

    name = ""
    source = ""

    def __init__(self) -> None:
        self._jars = jars(self.name)
        self.data = Path(tempfile.mkdtemp(prefix=f"warren-{self.name}-"))
        self.port = free_ports(1)
        self.hosts = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None

    def arguments(self) -> list[str]:
        """Return what the program is given."""
        raise NotImplementedError

    def __enter__(self) -> JavaNode:
        self.restart()
        return self

    def __exit__(self, *failure: object) -> None:
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Send SIGKILL; its data stay."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def restart(self) -> None:
        """Start it, and wait until it answers."""
        classes = f"{self._jars}/*"
        program = str(HERE / "java" / self.source)
        with (self.data / "log").open("a") as log:
            self._process = subprocess.Popen(
                ["java", *SHORT, "-Xmx256m", "-cp", classes, program, *self.arguments()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._line() == "started", (self.data / "log").read_text()[-3000:]

    def _line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        out: IO[str] = self._process.stdout
        return out.readline().strip()

    def order(self, text: str) -> str:
        """Give the program an order; return its answer."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        return self._line()

    def address(self, queue: str) -> str:
        """Return a queue's address."""
        return queue


class Artemis(JavaNode):
    """ActiveMQ Artemis."""

    name = "artemis"
    source = "ArtemisNode.java"

    def arguments(self) -> list[str]:
        """See JavaNode."""
        return [f"tcp://127.0.0.1:{self.port}?protocols=AMQP", str(self.data)]

    def create(self, queue: str) -> None:
        """Create a durable queue."""
        assert self.order(f"create {queue}") == "done"

    def count(self, queue: str) -> tuple[int, int]:
        """See Broker10."""
        messages, consumers = self.order(f"count {queue}").split()
        return int(messages), int(consumers)

    def delete(self, queue: str) -> None:
        """Delete a queue, with consumers."""
        assert self.order(f"delete {queue}") == "done"


class Qpid(JavaNode):
    """Qpid Broker-J."""

    name = "qpid"
    source = "QpidNode.java"

    def __init__(self) -> None:
        super().__init__()
        self._queues: list[str] = []

    def arguments(self) -> list[str]:
        """See JavaNode."""
        users = [{"name": "guest", "type": "managed", "password": "guest"}]
        aliases = [{"name": each, "type": each} for each in ("nameAlias", "hostnameAlias")]
        port: dict = {"name": "AMQP", "port": self.port, "authenticationProvider": "plain"}
        port |= {"virtualhostaliases": aliases}
        node = {
            "name": "default",
            "type": "JSON",
            "defaultVirtualHostNode": "true",
            "virtualHostInitialConfiguration": json.dumps({"type": "DERBY"}),
        }
        made = {
            "name": "broker",
            "modelVersion": "9.0",
            "authenticationproviders": [
                {"name": "plain", "type": "Plain", "users": users, "secureOnlyMechanisms": []}
            ],
            "ports": [{**port, "protocols": ["AMQP_1_0"], "bindingAddress": "127.0.0.1"}],
            "virtualhostnodes": [node],
        }
        place = self.data / "initial.json"
        place.write_text(json.dumps(made))
        return [str(place), str(self.data)]

    def create(self, queue: str) -> None:
        """Create a durable queue, by the broker's own management over AMQP."""
        self._manage("CREATE", "org.apache.qpid.Queue", queue, {"durable": True})

    def count(self, queue: str) -> tuple[int, int]:
        """See Broker10."""
        names = ["queueDepthMessages", "consumerCount"]
        said = self._manage("getStatistics", "org.apache.qpid.Queue", queue, {"statistics": names})
        return int(said["queueDepthMessages"]), int(said["consumerCount"])

    def delete(self, queue: str) -> None:
        """Delete a queue."""
        self._manage("DELETE", "org.apache.qpid.Queue", queue, {})

    def _manage(self, operation: str, kind: str, queue: str, body: dict[str, object]) -> dict:
        made = BlockingConnection(f"amqp://guest:guest@{self.hosts}", timeout=PATIENCE_S)
        try:
            asked = {"operation": operation, "type": kind}
            if operation == "CREATE":
                body = {**body, "name": queue}
            else:
                asked |= {"index": "object-path", "key": queue}
            answers = made.create_receiver(None, dynamic=True)
            reply_to = answers.remote_source.address
            made.create_sender("$management").send(
                Message(properties=asked, body=body, reply_to=reply_to, id=queue)
            )
            answer = answers.receive(PATIENCE_S)
            answers.accept()
            status = answer.properties["statusCode"]
            assert 200 <= status < 300, (operation, answer.properties)
            return answer.body if isinstance(answer.body, dict) else {}
        finally:
            made.close()


class RabbitMQ10:
    """RabbitMQ 4 over AMQP 1.0."""

    name = "rabbitmq"

    def __init__(self, node: OneRabbitMQ, kind: str = "quorum") -> None:
        self._node, self._kind = node, kind
        self.hosts = node.hosts

    def create(self, queue: str) -> None:
        """Declare it."""
        with self._node.connect() as connection:
            connection.channel().queue_declare(
                queue, durable=True, arguments={"x-queue-type": self._kind}
            )

    def count(self, queue: str) -> tuple[int, int]:
        """See Broker10."""
        with self._node.connect() as connection:
            found = connection.channel().queue_declare(queue, passive=True).method
        return int(found.message_count), int(found.consumer_count)

    def delete(self, queue: str) -> None:
        """Delete it."""
        with self._node.connect() as connection:
            connection.channel().queue_delete(queue)

    def address(self, queue: str) -> str:
        """See Broker10."""
        return f"/queues/{quote(queue, safe='')}"

    def kill(self) -> None:
        """See Broker10."""
        self._node.kill()

    def restart(self) -> None:
        """See Broker10."""
        self._node.restart()


class Warren10(RabbitMQ10):
    """One node of Warren over AMQP 1.0."""

    name = "warren"

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster, self._kind = cluster, "quorum"
        self.hosts = cluster.hosts
        self._node = self  # type: ignore[assignment]

    def connect(self) -> pika.BlockingConnection:
        """Open a connection as guest."""
        host, _, port = self.hosts.partition(":")
        return pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))

    def kill(self) -> None:
        """See Broker10."""
        self._cluster.kill(0)

    def restart(self) -> None:
        """See Broker10."""
        self._cluster.start(0)


class Queue10:
    """A queue of a broker, with messages by another client; see `amqp.query.Queue`."""

    def __init__(self, broker: Broker10, ids: bool = True) -> None:
        self.broker, self.ids = broker, ids
        self.name = f"q-{uuid.uuid4().hex[:8]}"
        self.bodies: list[bytes] = []
        broker.create(self.name)

    def publish(self, count: int) -> None:
        """Publish numbered messages, each accepted."""
        first = len(self.bodies)
        self.bodies += [b"message %06d" % number for number in range(first, first + count)]
        ids = [str(number) if self.ids else None for number in range(first, first + count)]
        self._send(list(zip(self.bodies[first:], ids, strict=True)))

    def publish_equal(self, body: bytes, count: int) -> None:
        """Publish messages that are equal, without ids."""
        self._send([(body, None)] * count)

    def _send(self, messages: list[tuple[bytes, str | None]]) -> None:
        made = BlockingConnection(f"amqp://guest:guest@{self.broker.hosts}", timeout=PATIENCE_S)
        try:
            sender = made.create_sender(self.broker.address(self.name))
            for body, named in messages:
                sender.send(Message(body=body, durable=True, inferred=True, id=named))
        finally:
            made.close()

    def ready(self) -> int:
        """Return how many messages are there, with those that a consumer has."""
        return self.broker.count(self.name)[0]

    def check_empty(self) -> None:
        """Nothing is left in the queue once no consumer is there."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.broker.count(self.name)) != (0, 0):
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def delete(self) -> None:
        """Delete it."""
        self.broker.delete(self.name)
