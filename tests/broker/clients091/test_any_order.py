"""A client that does anything, a broker that answers anything at any time: nothing breaks.

Seeded worlds; a failure names its seed.
"""

from __future__ import annotations

import random
from array import array
from itertools import pairwise
from typing import Any

import pamqp.commands as spec
import pytest

from tests.broker.clients091.peer import Peer, messages, run
from warren_broker.access import requests
from warren_machines.queue import commands
from warren_wire import errors
from warren_wire.amqp091 import codec, methods
from warren_wire.kernel import Selection

CHANNELS = (1, 2, 3)
RESULTS: dict[type[Any], Any] = {
    requests.QueueDeclareRequest: lambda request, rng: requests.QueueDeclared(request.name, 1, 2),
    requests.QueueDeleteRequest: lambda request, rng: requests.MessageCount(3),
    requests.QueuePurgeRequest: lambda request, rng: requests.MessageCount(4),
    requests.GetRequest: lambda request, rng: rng.choice(
        [requests.GotNothing(), requests.GotMessage(run(rng.randrange(100)), messages(1), 5)]
    ),
}
REFUSED = (
    requests.QueueDeclareRequest,
    requests.QueueDeleteRequest,
    requests.QueuePurgeRequest,
    requests.ConsumeRequest,
    requests.GetRequest,
    requests.DefineRequest,
)


class World:
    """One connection, both sides played at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.peer = Peer().connect()
        self.open_requests: list[Any] = []
        self.parts: list[tuple[int, int]] = []
        self.up: dict[int, int] = {}
        self.down: list[int] = []
        self.left = 0
        self.next_msg_id: dict[int, int] = {}

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.rng.choices(
                [self.client, self.answer, self.deliver, self.confirm, self.other], [8, 5, 3, 3, 1]
            )[0]()
            self.collect()
            self.check()
        self.peer.conn.disconnected()
        self.collect()
        for request in self.open_requests:
            if hasattr(request, "token"):
                self.peer.conn.answer(request.token, requests.RequestDone())
        assert sorted(self.up) == sorted(self.down), "every session ends once"
        assert self.left == 1
        assert not self.peer.conn.state.consumers

    def collect(self) -> None:
        for request in self.peer.asked():
            if isinstance(request, requests.SessionUpRequest):
                self.up[request.session] = request.channel
            elif isinstance(request, requests.SessionDownRequest):
                if request.session in self.up:
                    self.down.append(request.session)
                self.open_requests.append(request)
            elif isinstance(request, requests.CloseConnectionRequest):
                self.left += 1
                self.open_requests.append(request)
            elif hasattr(request, "token"):
                assert request.session not in self.down, "asked for a session that is down"
                self.open_requests.append(request)
                if isinstance(request, requests.ConsumeRequest):
                    self.next_msg_id[request.command.consumer] = 0
            elif isinstance(request, (commands.Settle, commands.Return, commands.Discard)):
                assert all(first <= last for first, last in request.msg_ids)
                assert all(one[1] + 1 < two[0] for one, two in pairwise(request.msg_ids))

    def check(self) -> None:
        self.peer.got()  # pamqp reads all of it
        conn = self.peer.conn
        for channel in conn.state.channels.values():
            channel.deliveries.check()
            assert not channel.waiting or channel.waiting in conn.state.asked
            if not channel.waiting and channel.state == "open":
                assert not channel.inbox
        for number, consumer in conn.state.consumers.items():
            assert consumer.number == number
            assert consumer.channel.state == "open"
        for asked in conn.state.asked.values():
            assert (
                asked.channel is None
                or asked.channel.session in conn.state.sessions
                or asked.channel.state in ("closing", "ending")
            )

    # -------------------------------------------------------------- client

    def client(self) -> None:
        rng, peer = self.rng, self.peer
        number = rng.choice(CHANNELS)
        channel = peer.conn.state.channels.get(number)
        if channel is None:
            peer.send(spec.Channel.Open(), number)
            return
        if channel.state == "closing":
            peer.send(spec.Channel.CloseOk(), number)
            return
        if rng.random() < 0.3:
            peer.publish(
                exchange=rng.choice(["", "amq.direct", "amq.topic"]),
                mandatory=rng.random() < 0.3,
                channel=number,
                count=rng.randint(1, 4),
            )
            return
        peer.conn.receive(codec.method_frame(number, self.method(channel)))

    def method(self, channel: Any) -> methods.Method:
        rng = self.rng
        queue = rng.choice(["q", "r", ""])
        tag = rng.randint(1, 12)
        if channel.deliveries.runs and rng.random() < 0.8:
            held = rng.choice(channel.deliveries.runs)
            tag = rng.randint(held.first, held.last)
        elif rng.random() < 0.95:
            return self.definition(channel, queue)
        return rng.choice(
            [
                self.definition(channel, queue),
                *[
                    methods.BasicAck(delivery_tag=tag, multiple=rng.random() < 0.5),
                    methods.BasicAck(delivery_tag=0, multiple=True),
                    methods.BasicNack(
                        delivery_tag=tag, multiple=rng.random() < 0.5, requeue=rng.random() < 0.5
                    ),
                    methods.BasicReject(delivery_tag=tag, requeue=rng.random() < 0.5),
                ],
            ]
        )

    def definition(self, channel: Any, queue: str) -> methods.Method:
        rng = self.rng
        return rng.choice(
            [
                methods.QueueDeclare(queue=queue, no_wait=rng.random() < 0.2),
                methods.QueueDelete(queue="q"),
                methods.QueuePurge(queue="q"),
                methods.QueueBind(queue="q", exchange="amq.direct", routing_key="k"),
                methods.ExchangeDeclare(exchange="x", kind="fanout"),
                methods.BasicConsume(queue=queue, no_ack=rng.random() < 0.3),
                methods.BasicConsume(queue="q"),
                methods.BasicConsume(queue="q"),
                methods.BasicCancel(consumer_tag=rng.choice([*channel.consumers, "none"])),
                methods.BasicGet(queue="q", no_ack=rng.random() < 0.5),
                methods.BasicQos(prefetch_count=rng.randint(0, 3), global_=rng.random() < 0.5),
                methods.BasicRecover(requeue=True),
                methods.ConfirmSelect() if channel.tx is None else methods.TxCommit(),
                methods.TxSelect() if not channel.confirm else methods.ChannelFlow(active=True),
                methods.TxRollback() if channel.tx is not None else methods.BasicCancelOk(),
                methods.ChannelClose() if rng.random() < 0.2 else methods.ChannelFlow(active=True),
            ]
        )

    # -------------------------------------------------------------- broker

    def answer(self) -> None:
        if not self.open_requests:
            return
        request = self.open_requests.pop(self.rng.randrange(len(self.open_requests)))
        if isinstance(request, requests.PublishRequest):
            self.route(request)
            return
        make = RESULTS.get(type(request))
        result = requests.RequestDone() if make is None else make(request, self.rng)
        if isinstance(request, REFUSED) and self.rng.random() < 0.1:
            result = errors.no_queue("q", "/")
        self.peer.conn.answer(request.token, result)

    def route(self, publish: requests.PublishRequest) -> None:
        rng = self.rng
        count = publish.last - publish.first
        parts = []
        for _ in range(rng.randint(0, 3)):
            some = sorted(rng.sample(range(publish.first, publish.last), rng.randint(1, count)))
            parts.append(
                Selection(
                    publish.table,
                    publish.first,
                    publish.last,
                    None if len(some) == count else array("I", some),
                )
            )
        self.peer.conn.routed(publish.token, parts)
        if publish.confirm:
            self.parts.extend((publish.token, number) for number in range(len(parts)))

    def confirm(self) -> None:
        if self.parts:
            token, number = self.parts.pop(self.rng.randrange(len(self.parts)))
            self.peer.conn.confirmed(token, number, self.rng.random() < 0.9)

    def deliver(self) -> None:
        conn = self.peer.conn
        if conn.state.consumers:
            number = self.rng.choice(list(conn.state.consumers))
            count = self.rng.randint(1, 4)
            failed = self.rng.randint(0, 1)
            conn.deliver(
                number,
                run(self.next_msg_id[number], count, failed=failed, acquired=failed),
                messages(count),
            )
            self.next_msg_id[number] += count

    def other(self) -> None:
        conn = self.peer.conn
        choice = self.rng.randrange(4)
        if choice == 0 and conn.state.consumers:
            conn.cancelled(
                self.rng.choice(list(conn.state.consumers)), self.rng.choice(["timeout", "deleted"])
            )
        elif choice == 1:
            conn.blocked("low on memory")
        elif choice == 2:
            conn.unblocked()
        else:
            conn.tick(self.rng.randrange(1000))


@pytest.mark.parametrize("seed", range(150))
def test_anything(seed: int) -> None:
    World(seed).run(150)


@pytest.mark.parametrize("seed", range(100))
def test_damaged_bytes(seed: int) -> None:
    """However a frame is damaged, the connection continues or closes properly; nothing raises."""
    rng = random.Random(seed)
    peer = Peer().connect().open()
    raw = bytearray()
    for method in rng.sample(list(codec.METHODS.values()), 20):
        raw += codec.method_frame(1, method())
    for _ in range(rng.randint(1, 10)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    cut = rng.randrange(len(raw))
    for part in (raw[:cut], raw[cut:]):
        peer.conn.receive(bytes(part))
        for request in peer.asked():
            if hasattr(request, "token") and not isinstance(request, requests.PublishRequest):
                make = RESULTS.get(type(request))
                peer.conn.answer(
                    request.token, requests.RequestDone() if make is None else make(request, rng)
                )
    peer.got()
    peer.conn.disconnected()
    assert peer.conn.closed
