"""What queues give a client that reads nothing, wherever its node is: at the leader, at a follower,
or without a copy of the queue. Memory is the most that any node had, as in test_bounds.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pamqp.commands as spec
import pytest
from proton.reactor import AtLeastOnce, AtMostOnce
from proton.utils import BlockingConnection

from live.conftest import eventually
from live.raw_client import RawClient, content, frame, method
from live.test_bounds import MIB, Node
from tests.patience import PATIENCE_S
from warren.local import LocalCluster

pytestmark = pytest.mark.live
BOUND = 16 * MIB
SLACK_BYTES = 112 * MIB
"""For the cache of blocks, what is on its way through the node, and what the allocator keeps. Nodes
without the bounds had two thirds of the messages, or all."""
MESSAGES = 240
CONSUMERS = 16
"""Of which each may have 32 MiB on its way by its own window."""
PLACES = {"leader": (3, 0), "follower": (3, 1), "elsewhere": (1, 1)}
"""Copies of the queue, the first at node 0, and the client's node."""


class Nodes:
    """The nodes of a cluster."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.all = [Node(cluster, number=number) for number in range(3)]

    def client(self, number: int) -> RawClient:
        return RawClient(self.all[number].address)

    def begin(self) -> None:
        for one in self.all:
            one.begin()

    def rest(self) -> None:
        """Wait until the queues have given what they give."""
        for one in self.all:
            eventually(one.rests, "a node is at rest")

    @property
    def grown(self) -> int:
        return max(one.grown for one in self.all)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    settings = {"limits": {"undelivered_bytes_max": BOUND}}
    place = tmp_path_factory.mktemp("nodes")
    with LocalCluster(nodes=3, directory=place, settings=settings) as cluster:
        yield Nodes(cluster)


def declared(client: RawClient, copies: int, kind: str = "quorum") -> str:
    """A new queue, led by the client's node."""
    name = uuid.uuid4().hex
    arguments: dict[str, Any] = {
        "x-queue-type": kind,
        "x-queue-leader-locator": "client-local",
    }
    if kind == "quorum":
        arguments["x-quorum-initial-group-size"] = copies
    client.send(method(spec.Queue.Declare(queue=name, durable=True, arguments=arguments)))
    client.expect(spec.Queue.DeclareOk)
    return name


def filled(nodes: Nodes, copies: int, kind: str = "quorum") -> str:
    """A queue of numbered messages of a mebibyte."""
    with nodes.client(0) as client:
        name = declared(client, copies, kind)
        client.send(method(spec.Confirm.Select()))
        client.expect(spec.Confirm.SelectOk)
        piece = bytes((1 << 17) - 16)
        for number in range(MESSAGES):
            sent = method(spec.Basic.Publish(exchange="", routing_key=name)) + content(MIB)
            sent += frame(3, 1, struct.pack(">I", number))
            left = MIB - 4
            while left:
                sent += frame(3, 1, piece[:left])
                left -= min(left, len(piece))
            client.send(sent)
        confirmed = 0
        while confirmed < MESSAGES:
            ack = client.find(spec.Basic.Ack)
            confirmed = ack.delivery_tag if ack.multiple else confirmed + 1
        return name


def ready(nodes: Nodes, queue: str) -> int:
    with nodes.client(0) as client:
        client.send(method(spec.Queue.Declare(queue=queue, passive=True)))
        return int(client.expect(spec.Queue.DeclareOk).message_count)


def consume(client: RawClient, queue: str, no_ack: bool) -> None:
    """Many consumers; nothing is read after the first answers."""
    client.send(method(spec.Basic.Qos(prefetch_count=0 if no_ack else 60_000)))
    client.expect(spec.Basic.QosOk)
    for number in range(CONSUMERS):
        asked = spec.Basic.Consume(queue=queue, consumer_tag=str(number), no_ack=no_ack)
        asked.nowait = True
        client.send(method(asked))


def is_served(nodes: Nodes, number: int) -> None:
    """Another client of that node publishes, and gets it."""
    with nodes.client(number) as client:
        client.send(method(spec.Queue.Declare(queue="", exclusive=True)))
        name = client.expect(spec.Queue.DeclareOk).queue
        client.send(method(spec.Basic.Consume(queue=name, no_ack=True)))
        client.expect(spec.Basic.ConsumeOk)
        for _ in range(5):
            client.send(
                method(spec.Basic.Publish(exchange="", routing_key=name)) + content(2, body=b"ok")
            )
            assert not client.find(spec.Basic.Deliver).redelivered
        client.send(method(spec.Queue.Delete(queue=name)))
        client.find(spec.Queue.DeleteOk)


class Seen:
    """The messages that came, by consumer."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {}
        self.count = 0

    def note(self, consumer: str, body: bytes) -> None:
        self.numbers.setdefault(consumer, []).append(struct.unpack(">I", body[:4])[0])
        self.count += 1

    def check(self) -> None:
        """Each message came once, and to each consumer in order."""
        every = sorted(number for each in self.numbers.values() for number in each)
        assert every == list(range(MESSAGES))
        assert all(each == sorted(each) for each in self.numbers.values())


def read(client: RawClient, seen: Seen, until: Any = None, most: int = MESSAGES) -> None:
    """Read all messages, or up to that many answers of a kind."""
    left = CONSUMERS
    while seen.count < most if until is None else left:
        got = client.next()
        assert got is not None, "hung up"
        if until is not None and isinstance(got[1], until):
            left -= 1
        if isinstance(got[1], spec.Basic.Deliver):
            assert until is not None or not got[1].redelivered
            client.next()
            size, first = 0, b""
            while size < MIB:
                found = client.next()
                assert found is not None
                size += len(found[1].value)
                first = first or found[1].value[:4]
            seen.note(got[1].consumer_tag, first)


def places_with(flag: str) -> pytest.MarkDecorator:
    """Return each place with the flag set and not set; one of the six is in every run."""
    every = [(place, value) for place in PLACES for value in (True, False)]
    return pytest.mark.parametrize(
        f"place, {flag}",
        [
            pytest.param(*one, marks=() if one == ("leader", True) else pytest.mark.long)
            for one in every
        ],
    )


@places_with("no_ack")
def test_many_consumers_of_a_client_that_reads_nothing(
    nodes: Nodes, place: str, no_ack: bool
) -> None:
    """Before, without acknowledgements or without a copy: all that there was, in memory."""
    copies, number = PLACES[place]
    queue = filled(nodes, copies)
    nodes.begin()
    seen = Seen()
    with nodes.client(number) as client:
        consume(client, queue, no_ack)
        nodes.rest()
        is_served(nodes, number)
        read(client, seen)
        if not no_ack:
            client.send(method(spec.Basic.Ack(0, True)))
        assert nodes.grown < BOUND + SLACK_BYTES
        seen.check()
        assert ready(nodes, queue) == 0
        client.send(method(spec.Queue.Delete(queue=queue)))
        client.find(spec.Queue.DeleteOk)


@pytest.mark.parametrize(
    "place",
    [pytest.param(one, marks=pytest.mark.long if one == "follower" else ()) for one in PLACES],
)
def test_what_was_not_sent_without_acknowledgements_is_in_the_queue_after_cancels(
    nodes: Nodes, place: str
) -> None:
    """The end of a consumer settles what it holds: what had no room would be lost."""
    copies, number = PLACES[place]
    queue = filled(nodes, copies)
    seen = Seen()
    with nodes.client(number) as client:
        consume(client, queue, True)
        nodes.rest()
        for tag in range(CONSUMERS):
            client.send(method(spec.Basic.Cancel(consumer_tag=str(tag))))
        read(client, seen, spec.Basic.CancelOk)
        assert 0 < seen.count < MESSAGES
        assert seen.count + ready(nodes, queue) == MESSAGES
        client.send(method(spec.Queue.Delete(queue=queue)))
        client.find(spec.Queue.DeleteOk)


@places_with("settled")
def test_many_links_of_a_client_that_reads_nothing(nodes: Nodes, place: str, settled: bool) -> None:
    """And then everything, and settles at the end; before, the node kept what it had sent."""
    copies, number = PLACES[place]
    queue = filled(nodes, copies)
    nodes.begin()
    host, port = nodes.all[number].address
    made = BlockingConnection(f"amqp://guest:guest@{host}:{port}", timeout=PATIENCE_S)
    mode = AtMostOnce() if settled else AtLeastOnce()
    links = [
        made.create_receiver(f"/queues/{queue}", credit=0, name=str(at), options=mode)
        for at in range(CONSUMERS)
    ]
    for link in links:
        link.link.flow(10_000)
    steps = iter(range(20))
    made.wait(lambda: next(steps, None) is None)  # the credit has left
    nodes.rest()
    is_served(nodes, number)
    seen = Seen()
    held: list[Any] = []

    def all_read() -> bool:
        for link in links:
            while link.fetcher.incoming:
                message, delivery = link.fetcher.incoming.popleft()
                assert not message.delivery_count
                seen.note(link.link.name, bytes(message.body))
                held.append(delivery)
        return seen.count >= MESSAGES

    made.wait(all_read, timeout=PATIENCE_S)
    assert nodes.grown < BOUND + SLACK_BYTES
    seen.check()
    for delivery in held if not settled else ():
        delivery.update(delivery.ACCEPTED)
        delivery.settle()
    made.close()
    assert ready(nodes, queue) == 0
    with nodes.client(0) as client:
        client.send(method(spec.Queue.Delete(queue=queue)))
        client.find(spec.Queue.DeleteOk)


@pytest.mark.parametrize("place", PLACES)
def test_what_a_cancelled_consumer_holds_is_settled_afterwards(nodes: Nodes, place: str) -> None:
    """It is forgotten with the last of it; its tag is free at once; other queues are asked, too."""
    copies, number = PLACES[place]
    with nodes.client(0) as client:
        name = declared(client, copies)
        for body in (b"one", b"two", b"three"):
            sent = method(spec.Basic.Publish(exchange="", routing_key=name))
            client.send(sent + content(len(body), body=body))
    with nodes.client(number) as client:
        client.send(method(spec.Basic.Qos(prefetch_count=1)))
        client.expect(spec.Basic.QosOk)
        for turn in range(30):
            client.send(method(spec.Basic.Consume(queue=name, consumer_tag="t")))
            client.expect(spec.Basic.ConsumeOk)
            got = client.expect(spec.Basic.Deliver)
            assert got.redelivered is (turn > 0)
            client.next()
            assert client.next()[1].value == b"one"
            client.send(method(spec.Basic.Cancel(consumer_tag="t")))
            client.expect(spec.Basic.CancelOk)
            client.send(method(spec.Basic.Nack(got.delivery_tag, False, True)))
        for other in range(70):
            client.send(method(spec.Queue.Declare(queue=f"{name}-{other}", exclusive=True)))
            client.expect(spec.Queue.DeclareOk)
            client.send(method(spec.Basic.Get(queue=f"{name}-{other}")))
            client.expect(spec.Basic.GetEmpty)
            client.send(method(spec.Queue.Delete(queue=f"{name}-{other}")))
            client.expect(spec.Queue.DeleteOk)
        for body in (b"one", b"two", b"three"):
            client.send(method(spec.Basic.Get(queue=name)))
            got = client.expect(spec.Basic.GetOk)
            client.next()
            assert client.next()[1].value == body
            client.send(method(spec.Basic.Ack(got.delivery_tag)))
        client.send(method(spec.Basic.Get(queue=name)))
        client.expect(spec.Basic.GetEmpty)
        client.send(method(spec.Queue.Delete(queue=name)))
        client.find(spec.Queue.DeleteOk)


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.long)])
def test_consumers_under_a_prefetch_of_their_channel(nodes: Nodes, number: int) -> None:
    """Before: each had one message in memory beyond the limit of the channel, which was 1."""
    queue = filled(nodes, 1, "classic")
    nodes.begin()
    seen = Seen()
    with nodes.client(number) as client:
        client.send(method(spec.Basic.Qos(prefetch_count=1, global_=True)))
        client.expect(spec.Basic.QosOk)
        for consumer in range(MESSAGES):
            asked = spec.Basic.Consume(queue=queue, consumer_tag=str(consumer))
            asked.nowait = True
            client.send(method(asked))
        nodes.rest()
        is_served(nodes, number)
        for tag in range(1, MESSAGES + 1):
            read(client, seen, most=tag)
            client.send(method(spec.Basic.Ack(tag)))
        assert nodes.grown < BOUND + SLACK_BYTES
        every = sorted(body for each in seen.numbers.values() for body in each)
        assert every == list(range(MESSAGES))
        client.send(method(spec.Queue.Delete(queue=queue)))
        client.find(spec.Queue.DeleteOk)
    nodes.rest()
