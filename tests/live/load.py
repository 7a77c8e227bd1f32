"""Clients that work while nodes come and go, and records of what became of their messages."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field

import pika
from pika.exceptions import AMQPError

from live.conftest import eventually
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.errors import Unavailable
from warren.local import LocalCluster
from warren_wire.sessions.pika_connections import blocking_connection

PAUSE_S = 0.05
MOVE_ON_S = 20.0
"""A client tries another node when one has not answered for so long."""
EVERY_S = 0.005
"""A publisher's pause after each message: as fast as they can, a few take the whole machine."""
QUIET_S = 0.5
"""Nothing came for so long: there may be nothing."""


def connect(
    cluster: LocalCluster, node: int, within_s: float = PATIENCE_S
) -> pika.BlockingConnection:
    """Connect to one node, with one attempt; raises AMQPError."""
    host, _, port = cluster.addresses[node % len(cluster.addresses)].rpartition(":")
    parameters = pika.ConnectionParameters(
        host,
        int(port),
        blocked_connection_timeout=within_s,
        socket_timeout=within_s,
        connection_attempts=1,
        stack_timeout=within_s,
    )
    return blocking_connection(parameters)


def _is_empty(cluster: LocalCluster, queue: str) -> bool:
    try:
        with cluster.connect() as connection:
            return Admin(connection).queues.get(queue).messages == 0
    except Unavailable:
        return False  # it has no leader, say


def drain(cluster: LocalCluster, queue: str, node: int, count: int | None = None) -> list[bytes]:
    """Take and acknowledge what the queue delivers through that node.

    count  stop after that many; None: when the queue has no messages, delivered ones included
    """
    got: list[bytes] = []
    with connect(cluster, node) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=500)
        deadline = time.monotonic() + PATIENCE_S
        for method, _, body in channel.consume(queue, inactivity_timeout=QUIET_S):
            if method is None:
                # Nothing comes from a node that hangs, either.
                if _is_empty(cluster, queue):
                    break
                assert time.monotonic() < deadline, f"{queue!r} delivers nothing; {len(got)} came"
                continue
            got.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(got) == count:
                break
        channel.cancel()
    return got


@dataclass
class _Client(threading.Thread):
    cluster: LocalCluster
    queue: str
    number: int
    stop: threading.Event

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.reconnects = 0

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        """Work, at the next node whenever a connection ends."""
        node = self.number
        while not self.stop.is_set():
            try:
                with connect(self.cluster, node, MOVE_ON_S) as connection:
                    self.work(connection)
            except (AMQPError, OSError):
                self.reconnects += 1
                node += 1
                self.stop.wait(PAUSE_S)

    def work(self, connection: pika.BlockingConnection) -> None:
        """Until told to stop."""
        raise AssertionError("a subclass's")


@dataclass
class Publisher(_Client):
    """Publishes with confirms, one after the other, and records what was confirmed."""

    confirmed: list[bytes] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    sequence: int = 0

    __hash__ = _Client.__hash__

    def work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        while not self.stop.wait(EVERY_S):
            self.sequence += 1  # before: whether one that failed has arrived is not known
            body = b"%d:%d" % (self.number, self.sequence)
            channel.basic_publish("", self.queue, body, mandatory=True)
            self.confirmed.append(body)
            self.moments.append(time.monotonic())


@dataclass
class Consumer(_Client):
    """Consumes with acknowledgements."""

    got: list[bytes] = field(default_factory=list)

    __hash__ = _Client.__hash__

    def work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=50)
        for method, _, body in channel.consume(self.queue, inactivity_timeout=0.2):
            if method is not None:
                self.got.append(body)
                channel.basic_ack(method.delivery_tag)
            elif self.stop.is_set():
                return


class Load:
    """Publishers and consumers on one queue; `finish` checks that all confirmed messages came."""

    def __init__(
        self, cluster: LocalCluster, queue: str, *, publishers: int = 2, consumers: int = 2
    ) -> None:
        self.cluster, self.queue = cluster, queue
        self._stop_publishing, self._stop_consuming = threading.Event(), threading.Event()
        self.publishers = [
            Publisher(cluster, queue, number, self._stop_publishing) for number in range(publishers)
        ]
        self.consumers = [
            Consumer(cluster, queue, number, self._stop_consuming) for number in range(consumers)
        ]

    def __enter__(self) -> Load:
        for client in (*self.publishers, *self.consumers):
            client.start()
        self.goes_on(20)
        return self

    def __exit__(self, *error: object) -> None:
        self._stop_publishing.set()
        self._stop_consuming.set()
        for client in (*self.publishers, *self.consumers):
            client.join(PATIENCE_S)

    @property
    def confirmed(self) -> int:
        """Publishes confirmed so far."""
        return sum(len(publisher.confirmed) for publisher in self.publishers)

    def goes_on(self, messages: int = 20) -> None:
        """Every publisher has so many more confirmed."""
        wanted = [len(publisher.confirmed) + messages for publisher in self.publishers]
        eventually(
            lambda: all(
                len(each.confirmed) >= count
                for each, count in zip(self.publishers, wanted, strict=True)
            ),
            "publishing continues",
        )

    def finish(self) -> None:
        """Everything that was confirmed is received."""
        self._stop_publishing.set()
        for publisher in self.publishers:
            publisher.join(PATIENCE_S)
            assert not publisher.is_alive(), "a publisher hangs"
        confirmed = {body for publisher in self.publishers for body in publisher.confirmed}
        if not self.consumers:
            self.consumers = [Consumer(self.cluster, self.queue, 0, self._stop_consuming)]
            self.consumers[0].start()

        def missing() -> set[bytes]:
            return confirmed - {body for consumer in self.consumers for body in consumer.got}

        try:
            eventually(lambda: not missing(), "all that was confirmed arrives")
        except AssertionError:
            lost = sorted(missing())
            raise AssertionError(
                f"{len(lost)} of {len(confirmed)} confirmed messages are lost: {lost[:5]} …"
            ) from None
        self._stop_consuming.set()
        for consumer in self.consumers:
            consumer.join(PATIENCE_S)
            assert not consumer.is_alive(), "a consumer hangs"
        print(
            f"{len(confirmed)} confirmed, "
            f"{sum(len(consumer.got) for consumer in self.consumers)} received, longest gap "
            f"{self.longest_gap_s():.2f} s"
        )

    def longest_gap_s(self) -> float:
        """The longest time without a confirm."""
        moments = sorted(moment for each in self.publishers for moment in each.moments)
        return max((b - a for a, b in itertools.pairwise(moments)), default=0.0)
