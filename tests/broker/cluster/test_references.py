"""Deliveries to a node that holds the entry itself go without their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.cluster import callbacks
from warren_broker.cluster import messages
from warren_broker.cluster.client.queue_client import LocalConsumer
from warren_broker.cluster.client.uplink import InFlight, Uplink
from warren_broker.cluster.cluster import Cluster
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.commands import Delivery, Enqueue, Resume, Submission
from warren_machines.queue.effects import Deliver
from warren_raft.runtime.host import MessageHandler
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.observer import Observer
from warren_raft.types import Entry, EntryKind
from warren_raft.versions import NEWEST
from warren_wire.block.block import Block, encode

GROUP, CONSUMER, BOOT = 7, 3, 1001
BODIES = [b"zero", b"one", b"two", b"three"]
ENTRY = encode_submission(
    Submission(BOOT, "a", 1, (Enqueue(),), NEWEST), encode(BODIES, [b"\0\0"] * 4, (b"", b"q"))
)


class Host:
    """As much of a host as deliveries need; `sent` keeps what was sent to others."""

    def __init__(self, terms: dict[int, int], log: dict[int, int]) -> None:
        self.boot_id, self.node_id = BOOT, "a"
        self.terms, self.log = terms, log
        self.sent: list[bytes] = []
        self.repair = SimpleNamespace(awaits=lambda group, index: False)

    def sent_term(self, group: int, node: str, index: int) -> int:
        return self.terms.get(index, 0)

    def entry(self, group: int, index: int, term: int) -> Entry | None:
        there = self.log.get(index) == term
        return Entry(index, term, EntryKind.COMMAND, 0, ENTRY) if there else None

    def read_data(self, group: int, indexes: Iterable[int]) -> Iterator[bytes]:
        return (ENTRY for _ in indexes)

    def send(self, node: str, buffers: list[Any]) -> bool:
        self.sent.append(b"".join(map(bytes, buffers)))
        return True

    def leader(self, group: int) -> None:
        return None

    def connected(self, node: str) -> bool:
        return False


class Receiver:
    """A client that notes the bodies it gets."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def deliver(self, consumer: int, delivery: Delivery, block: Block) -> None:
        self.bodies += [bytes(block.body(i)) for i in range(delivery.first, delivery.last + 1)]


def new_cluster(host: Host) -> Cluster:
    def make_host(observer: Observer, on_message: MessageHandler) -> Any:
        return host

    return Cluster(Loop(), make_host, 1 << 20, 1 << 20, callbacks.CLUSTER)


def sent_by_a_leader(terms: dict[int, int]) -> bytes:
    """What is sent to node b for a consumer there: 1 … 2 of entry 5, 0 … 3 of entry 6."""
    host = Host(terms, {})
    cluster = new_cluster(host)
    cluster._nodes[2002] = "b"
    deliveries = (Delivery(0, 5, 1, 2, 0, 0), Delivery(2, 6, 0, 3, 0, 0))
    cluster.effects._deliver(GROUP, Deliver(2002, CONSUMER, deliveries))
    (sent,) = host.sent
    return sent


@pytest.mark.parametrize("terms", [{}, {5: 9}, {6: 9}, {5: 9, 6: 9}])
def test_bytes_go_only_where_the_entry_is_not(terms: dict[int, int]) -> None:
    sent = sent_by_a_leader(terms)
    message, rest = messages.decode(sent)
    assert isinstance(message, messages.Delivered)
    assert message.terms == (terms.get(5, 0), terms.get(6, 0))
    blocks = [Block.decode(bytes(part)) for part in messages.cut(rest, message.lengths)]
    assert [block.count for block in blocks] == [
        count for index, count in ((5, 2), (6, 4)) if index not in terms
    ]


def received(log: dict[int, int], terms: dict[int, int]) -> tuple[list[bytes], list[Any]]:
    """What a client gets of the two deliveries, and what its node asks the queue."""
    asked: list[Any] = []
    cluster = new_cluster(Host({}, log))

    def encode_commands(seq: int, commands: tuple[Any, ...], block: Any, answered: int) -> bytes:
        asked.extend(commands)
        return b""

    uplink = Uplink(encode_commands, lambda parts, head: b"", Enqueue(), InFlight())
    client = cluster.open_client(GROUP, ("a", "b"), uplink)
    receiver = Receiver()
    client.consumers[CONSUMER] = LocalConsumer(CONSUMER, receiver, False)  # type: ignore[arg-type]
    message, rest = messages.decode(sent_by_a_leader(terms))
    assert isinstance(message, messages.Delivered)
    own = messages.Delivered(
        GROUP, BOOT, CONSUMER, message.deliveries, message.terms, message.lengths
    )
    cluster.handlers[messages.Delivered]("b", own, rest)
    uplink.take()
    return receiver.bodies, asked


@pytest.mark.parametrize("terms", [{}, {5: 9}, {6: 9}, {5: 9, 6: 9}])
def test_a_reference_and_the_bytes_give_the_same_messages(terms: dict[int, int]) -> None:
    assert received({5: 9, 6: 9}, terms) == ([b"one", b"two", *BODIES], [])


def test_an_entry_that_is_missing_is_asked_for_again_with_all_that_follows() -> None:
    assert received({6: 9}, {5: 9, 6: 9}) == ([], [Resume(CONSUMER, 0)])
    assert received({5: 9}, {5: 9, 6: 9}) == ([b"one", b"two"], [Resume(CONSUMER, 2)])


def test_another_entry_at_that_index_is_not_taken_for_it() -> None:
    assert received({5: 8, 6: 9}, {5: 9}) == ([], [Resume(CONSUMER, 0)])


def test_terms_that_do_not_fit_end_the_connection() -> None:
    cluster = new_cluster(Host({}, {}))
    cluster.open_client(
        GROUP, ("a",), Uplink(lambda *_: b"", lambda parts, head: b"", Enqueue(), InFlight())
    )
    wrong = messages.Delivered(GROUP, BOOT, CONSUMER, (Delivery(0, 5, 0, 0, 0, 0),), (), ())
    with pytest.raises(messages.MalformedPeerMessage):
        cluster.handlers[messages.Delivered]("b", wrong, memoryview(b""))
