"""A closed connection holds nothing: not its buffers, not itself.

Forty clients began messages of 16 MB each, and hung up: the node kept 680 MB, with the memory alarm
on, until the garbage collector came by twenty minutes later. Here it never comes.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pamqp.commands as spec
import pytest

from tests.broker.clients091.peer import Peer, View
from tests.broker.listeners.listening import ListeningWorld
from tests.wire.kernel import frames as f
from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.access.requests import RequestDone
from warren_broker.clients091.client091 import Client091
from warren_broker.clients10.client10 import Client10
from warren_broker.cluster.strangers import Strangers
from warren_broker.cluster.turn_shares import TurnShares
from warren_broker.config import Limits
from warren_broker.counting.counters import Counters
from warren_broker.counting.message_stats import MessageCounts
from warren_broker.listeners.listener import HEADER_091, HEADER_10_SASL
from warren_raft.runtime.loop import Loop


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """References alone decide."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def unfinished(channel: int, size: int, sent: int) -> bytes:
    """A message of `size` bytes of which only some come, in frames of 100,000."""
    frames = [f.publish_method(channel, b"", b"q"), f.header(channel, size)]
    frames += [
        f.frame(3, channel, bytes(min(100_000, sent - at))) for at in range(0, sent, 100_000)
    ]
    return b"".join(frames)


class Ids:
    """Numbers in a row."""

    def __init__(self) -> None:
        self.last = 0

    def session(self) -> int:
        self.last += 1
        return self.last

    connection = consumer = session


def broker_of(loop: Loop) -> Any:
    """What a client asks of its broker until it has opened a channel."""
    view = View()
    known: dict[int, Any] = {}
    return SimpleNamespace(
        strangers=Strangers(loop, Limits()),
        ids=Ids(),
        connections=SimpleNamespace(add=known.__setitem__, remove=known.pop),
        events=SimpleNamespace(on=False),
        audit=SimpleNamespace(login=lambda *told: None),
        cluster=SimpleNamespace(
            loop=loop,
            counters=Counters(),
            queue_counts=MessageCounts(),
            forget_waiting=lambda key: None,
        ),
        replies=SimpleNamespace(close=lambda name: None),
        publishing=SimpleNamespace(shares=TurnShares(loop)),
        consuming=SimpleNamespace(resume=None, session_down=lambda session, failed: None),
        logins=SimpleNamespace(
            authenticate=lambda user, password, mechanism, done: done(RequestDone()),
            enter_vhost=lambda number, vhost, user, done, **more: done(RequestDone()),
        ),
        channels_max=lambda user: None,
        clients=SimpleNamespace(channels=lambda number, count: None),
        connection_gone=lambda number, done: done(RequestDone()),
        definitions=SimpleNamespace(state=SimpleNamespace(users={})),
        settings=SimpleNamespace(
            node="a",
            loopback_users=(),
            limits=SimpleNamespace(
                heartbeat_s=60,
                unfinished_bytes_max=1 << 27,
                undelivered_bytes_max=1 << 26,
                unsettled_max=100_000,
                received_bytes_max=1 << 28,
                message_size_max=1 << 24,
                frame_max=1 << 17,
            ),
        ),
        permissions=view.permissions,
        topic_permissions=view.topic_permissions,
        exchange=view.exchange,
        tags=lambda user: (),
        traced_vhosts=view.traced_vhosts,
        vhost_exists=lambda vhost: True,
        connected=lambda *given, **named: None,
        disconnected=lambda *given, **named: None,
    )


class World(ListeningWorld):
    """Clients of both protocols, and weak references to each of them."""

    def __init__(self) -> None:
        super().__init__()
        broker = broker_of(self.loop)
        self.refs: list[weakref.ref[Any]] = []

        def join091(stream: Any, peer: str) -> Client091:
            return self.known(Client091(broker, ConnectionConfig(), stream, peer))

        def join10(stream: Any, peer: str) -> Client10:
            return self.known(Client10(broker, ConnectionConfig(), stream, peer))

        self.listener.protocols[HEADER_091] = join091
        self.listener.protocols[HEADER_10_SASL] = join10

    def known(self, client: Any) -> Any:
        inner = client._session if isinstance(client, Client091) else client._connection
        self.refs += [weakref.ref(client), weakref.ref(inner)]
        return client


def test_an_amqp091_client_that_hangs_up_in_the_middle_of_messages() -> None:
    world = World()
    made = world.connect()
    made.sendall(HEADER_091)
    for frame, state in (
        (spec.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), "tuning"),
        (spec.Connection.TuneOk(2047, 131_072, 60), "opening"),
        (spec.Connection.Open("/"), "running"),
    ):
        made.sendall(_marshal(frame, 0))
        world.until(lambda state=state: world.refs and world.refs[1]().state.phase == state)
    made.sendall(
        b"".join(
            _marshal(spec.Channel.Open(), n) + unfinished(n, 1 << 20, 300_000) for n in range(1, 4)
        )
    )
    scanner = None

    def arrived() -> bool:
        nonlocal scanner
        client = world.refs and world.refs[0]()
        scanner = client._session.state.scanner if client else None
        return scanner is not None and scanner.pending_bytes == 900_000

    world.until(arrived)
    made.close()
    world.until(lambda: not world.listener.connections)
    assert scanner is not None and scanner.pending_bytes == 0, "buffers go at once"
    world.until(lambda: all(ref() is None for ref in world.refs))


def _marshal(frame: Any, channel: int) -> bytes:
    import pamqp.frame

    return bytes(pamqp.frame.marshal(frame, channel))


def test_an_amqp10_client_that_hangs_up() -> None:
    world = World()
    made = world.connect()
    made.sendall(HEADER_10_SASL)
    world.until(lambda: world.refs)
    made.close()
    world.until(lambda: all(ref() is None for ref in world.refs))


def test_a_channel_that_is_refused_drops_what_had_come() -> None:
    peer = Peer().connect().open().open(2)
    peer.conn.receive(unfinished(1, 1 << 20, 500_000))
    peer.conn.receive(unfinished(2, 1 << 20, 300_000))
    scanner = peer.conn.state.scanner
    assert scanner.pending_bytes == 800_000
    peer.conn.state.scanner.discard_channel(1)
    assert scanner.pending_bytes == 300_000


def test_a_connection_that_is_closed_by_us_drops_what_had_come() -> None:
    peer = Peer().connect().open()
    peer.conn.receive(unfinished(1, 1 << 20, 500_000))
    peer.send(spec.Channel.Open(), 1)  # in the middle of content: the connection ends
    assert peer.conn.state.phase == "closing"
    assert peer.conn.state.scanner.pending_bytes == 0


def test_unfinished_messages_are_bounded_for_a_connection() -> None:
    """Its own limit, whatever the channels; what is complete counts no more."""
    peer = Peer(unfinished_bytes_max=1 << 20).connect().open().open(2).open(3)
    peer.conn.receive(unfinished(1, 1 << 20, 1 << 20))  # complete
    peer.conn.receive(unfinished(2, 1 << 20, 600_000))
    assert peer.conn.state.phase == "running"
    peer.got()
    peer.conn.receive(unfinished(3, 1 << 20, 500_000))
    close = peer.one(spec.Connection.Close, 0)
    assert close.reply_code == 506 and "limits.unfinished_bytes_max" in close.reply_text
    assert (close.class_id, close.method_id) == (60, 40)
    assert peer.conn.state.scanner.pending_bytes == 0
