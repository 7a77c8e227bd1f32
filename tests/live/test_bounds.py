"""The memory that one client can make a node hold, measured on a node: see limits.md.

What is measured is the most that the node's process ever had in memory, less what it had before.
That does not depend on the machine's speed: a client sends until it may send no more.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pamqp.commands as spec
import pytest
from proton.utils import BlockingConnection

from live.conftest import eventually
from live.raw_client import RawClient, content, frame, method
from live.test_bad_input10 import opened as opened10
from live.test_bad_input10 import until
from tests.broker.clients10.test_endings import BEGIN
from tests.broker.clients10.test_endings import attach as attach10
from tests.broker.clients10.test_endings import frame as frame10
from tests.patience import PATIENCE_S
from warren.local import LocalCluster

pytestmark = pytest.mark.live
MIB = 1 << 20
SLACK_BYTES = 160 * MIB
"""For the cache of blocks, what is on its way through the node, and what the allocator keeps."""
REST_S = 1.0
REST_CPU_S = 0.1
"""A node that used no more than that in REST_S seals no files, and reads or writes no blocks."""
MESSAGES = 400
BODY = b"x" * MIB


@dataclass
class Node:
    """A node, and what it had in memory when the test began."""

    cluster: Any
    before: int = 0
    number: int = 0

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.cluster.addresses[self.number].split(":")
        return host, int(port)

    def _status(self, key: str) -> int:
        text = Path(f"/proc/{self.cluster.pid(self.number)}/status").read_text()
        return int(text.partition(f"{key}:")[2].split()[0]) * 1024

    def _cpu_s(self) -> float:
        """Return the processor time that its process has used."""
        fields = (
            Path(f"/proc/{self.cluster.pid(self.number)}/stat")
            .read_text()
            .rpartition(")")[2]
            .split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rests(self) -> bool:
        """Return whether it has used next to no processor time for a while."""
        used = self._cpu_s()
        threading.Event().wait(REST_S)
        return self._cpu_s() - used <= REST_CPU_S

    def begin(self) -> None:
        """Count from here on, when the node has done what it had to do before."""
        eventually(self.rests, "the node is at rest")
        Path(f"/proc/{self.cluster.pid(self.number)}/clear_refs").write_text("5")
        self.before = self._status("VmRSS")

    @property
    def grown(self) -> int:
        """The most that it has had since then, and more than then."""
        return self._status("VmHWM") - self.before


@contextmanager
def node(place: Path, **limits: int) -> Iterator[Node]:
    """A node with these limits."""
    with LocalCluster(nodes=1, directory=place, settings={"limits": limits}) as cluster:
        yield Node(cluster)


def publish(body: bytes, channel: int = 1) -> bytes:
    """The frames of a message to the queue `q`."""
    sent = method(spec.Basic.Publish(exchange="", routing_key="q"), channel)
    return sent + content(len(body), channel=channel, body=body)


def test_transactions(tmp_path: Path) -> None:
    """Before: all that a client published before its commit, which may never come."""
    with node(tmp_path, transaction_bytes_max=8 * MIB) as one:
        with RawClient(one.address) as client:
            client.send(method(spec.Tx.Select()))
            client.expect(spec.Tx.SelectOk)
            one.begin()
            for _ in range(400):
                client.send(publish(b"x" * 100_000) * 10)
            close = client.expect(spec.Channel.Close)
            assert close.reply_code == 406 and "limits.transaction_bytes_max" in close.reply_text
            assert one.grown < 8 * MIB + SLACK_BYTES


def full_queue(one: Node) -> None:
    """A queue `q` of MESSAGES of a mebibyte, and most of the caches of the node full."""
    with RawClient(one.address) as client:
        client.send(method(spec.Queue.Declare(queue="q", durable=True)))
        client.expect(spec.Queue.DeclareOk)
        client.send(method(spec.Confirm.Select()))
        client.expect(spec.Confirm.SelectOk)
        sent = method(spec.Basic.Publish(exchange="", routing_key="q")) + content(MIB)
        for at in range(0, MIB, 1 << 17):
            piece = BODY[at : at + (1 << 17) - 8]
            sent += frame(3, 1, piece)
        rest = MIB - sum(len(BODY[at : at + (1 << 17) - 8]) for at in range(0, MIB, 1 << 17))
        sent += frame(3, 1, bytes(rest))
        for _ in range(MESSAGES):
            client.send(sent)
        confirmed = 0
        while confirmed < MESSAGES:
            ack = client.find(spec.Basic.Ack)
            confirmed = ack.delivery_tag if ack.multiple else confirmed + 1


def test_deliveries_that_a_client_does_not_read(tmp_path: Path) -> None:
    """Before: the queue gave all that the prefetch permits, and the node kept it: 330 MiB here."""
    with node(tmp_path, undelivered_bytes_max=16 * MIB) as one:
        full_queue(one)
        one.begin()
        with RawClient(one.address) as client:
            client.send(method(spec.Basic.Qos(prefetch_count=60_000)))
            client.expect(spec.Basic.QosOk)
            client.send(method(spec.Basic.Consume(queue="q")))
            client.expect(spec.Basic.ConsumeOk)
            with RawClient(one.address) as other:  # the node has given what it gives at once
                for _ in range(20):
                    other.send(method(spec.Queue.Declare(queue="q", passive=True)))
                    other.expect(spec.Queue.DeclareOk)
            for tag in range(1, MESSAGES + 1):
                assert client.find(spec.Basic.Deliver).delivery_tag == tag
            client.send(method(spec.Basic.Ack(0, True)))
            # The answer says that the acknowledgement was read. A socket that is closed with
            # the last body unread is reset, and the kernel may drop what the node has not read.
            client.send(method(spec.Queue.Declare(queue="q", passive=True)))
            client.find(spec.Queue.DeclareOk)
        assert one.grown < 16 * MIB + SLACK_BYTES
        with RawClient(one.address) as other:
            other.send(method(spec.Queue.Declare(queue="q", passive=True)))
            assert other.expect(spec.Queue.DeclareOk).message_count == 0


@pytest.mark.long
def test_links_deliveries_that_a_client_does_not_read(tmp_path: Path) -> None:
    """Before: as many as the link had credit for."""
    with node(tmp_path, undelivered_bytes_max=16 * MIB, unsettled_max=50) as one:
        full_queue(one)
        one.begin()
        host, port = one.address
        made = BlockingConnection(f"amqp://guest:guest@{host}:{port}", timeout=PATIENCE_S)
        receiver = made.create_receiver("/queues/q", credit=10_000)
        with RawClient(one.address) as other:
            for _ in range(20):
                other.send(method(spec.Queue.Declare(queue="q", passive=True)))
                other.expect(spec.Queue.DeclareOk)
        for number in range(MESSAGES):
            assert len(receiver.receive(PATIENCE_S).body) == MIB
            if number >= 40:
                receiver.accept()
        assert one.grown < 16 * MIB + SLACK_BYTES
        made.close()


def test_gets_of_a_client_that_does_not_read(tmp_path: Path) -> None:
    """Before: each of its requests of some octets brought a message into the node's memory."""
    with node(tmp_path, undelivered_bytes_max=16 * MIB) as one:
        full_queue(one)
        one.begin()
        with RawClient(one.address) as client:
            client.send(method(spec.Basic.Get(queue="q")) * MESSAGES)
            with RawClient(one.address) as other:
                for _ in range(20):
                    other.send(method(spec.Queue.Declare(queue="q", passive=True)))
                    other.expect(spec.Queue.DeclareOk)
            for tag in range(1, MESSAGES + 1):
                assert client.find(spec.Basic.GetOk).delivery_tag == tag
        assert one.grown < 16 * MIB + SLACK_BYTES


STALLED_S = 15.0
"""A socket that takes nothing for so long is full: its peer does not read."""
HEARTBEAT_S = 12
"""Less than that, and more than a machine stands still: the client is not read, and not taken for
one that is silent."""
DETACH = b"\x00\x53\x16"
LOOP = attach10(0, b"n" * 200) + frame10(DETACH + b"\xc0\x04\x02\x52\x00\x41")


def sent_until_full(peer: socket.socket, data: bytes, bytes_max: int) -> int:
    """Send `data` again and again, and read nothing; return how many bytes the peer took."""
    peer.settimeout(STALLED_S)
    sent = 0
    with suppress(TimeoutError):
        while sent < bytes_max:
            sent += peer.send(memoryview(data)[sent % len(data) :])
    return sent


@pytest.mark.long
def test_links_of_a_client_that_reads_nothing(tmp_path: Path) -> None:
    """Before: each link was kept, with the answers to its attach and detach: 2,241 MiB here."""
    with node(tmp_path, heartbeat_s=HEARTBEAT_S) as one, opened10(one) as peer:
        peer.sendall(frame10(BEGIN))
        until(peer, b"\x00\x53\x11")
        one.begin()
        sent = sent_until_full(peer, LOOP, 64 * MIB)
        assert sent < 64 * MIB, "the node does not read"
        assert one.grown < 96 * MIB
        peer.settimeout(PATIENCE_S)
        asked = -(-sent // len(LOOP))
        found, left = 0, b""
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(peer.sendall, LOOP[sent % len(LOOP) :] if sent % len(LOOP) else b"")
            while found < asked:
                got = peer.recv(MIB)
                assert got, "the connection stays, though the node heard nothing for a time"
                if rest.done():
                    peer.sendall(frame10(b""))  # a heartbeat
                found += (left + got).count(DETACH)
                left = got[-2:]
            rest.result(PATIENCE_S)
        assert found == asked, "every one is answered"
