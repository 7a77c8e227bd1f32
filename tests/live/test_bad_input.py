"""Clients that say what they must not, beside one that behaves and loses nothing."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pamqp.commands as spec
import pika
import pytest

from live.conftest import Broker, eventually
from live.raw_client import RawClient, content, frame, long, method, raw_method, short
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.local import LocalCluster
from warren.uri import Address

pytestmark = pytest.mark.live
QUEUE = "behaves"


def nested(depth: int, kind: bytes = b"F", name: bytes = b"\1b") -> bytes:
    """A value that holds tables (or lists) within one another."""
    value = b"V"
    for _ in range(depth):
        value = kind + long(name + value)
    return value


class Behaving(threading.Thread):
    """Publishes with confirms, consumes, compares: the whole time, on one connection of its own."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        self.rounds = 0
        self.problem: BaseException | None = None
        self.enough = threading.Event()

    def run(self) -> None:
        try:
            with self.broker.connect() as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
                while not self.enough.is_set():
                    self.round(channel)
                channel.queue_delete(QUEUE)
        except BaseException as problem:  # told to the test that waits for rounds
            self.problem = problem

    def round(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        sent = [f"{self.rounds}.{i}".encode() for i in range(5)]
        for body in sent:
            channel.basic_publish("", QUEUE, body, pika.BasicProperties(delivery_mode=2))
        for body in sent:
            got, _, came = channel.basic_get(QUEUE)
            assert got is not None and came == body, (came, body)
            channel.basic_ack(got.delivery_tag)
        self.rounds += 1

    def goes_on(self) -> None:
        """Wait for two more rounds: the second began after this call."""
        wanted = self.rounds + 2
        eventually(lambda: self.rounds >= wanted or self.problem, "the good client's next round")
        assert self.problem is None, self.problem


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node of its own: no other test should suffer, and its log is read at the end."""
    directory = tmp_path_factory.mktemp("hostile")
    settings = {
        "limits": {
            "message_size_max": 1 << 20,
            "connections_max": 400,
            "handshake_timeout_ms": 600_000,
        }
    }
    with LocalCluster(nodes=1, directory=directory, settings=settings) as cluster:
        yield Broker(tuple(f"amqp://guest:guest@{host}/%2F" for host in cluster.addresses), cluster)
        log = Path(cluster.nodes[0].log_file).read_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]


@pytest.fixture(scope="module")
def good(node: Broker) -> Iterator[Behaving]:
    """The client that must not notice anything."""
    client = Behaving(node)
    client.start()
    yield client
    client.enough.set()
    client.join(PATIENCE_S)
    assert client.problem is None, client.problem


@pytest.fixture
def address(node: Broker, good: Behaving) -> Iterator[tuple[str, int]]:
    """Use as the bad client; afterwards the good one must still be served."""
    host, port = node.cluster.addresses[0].split(":")
    good.goes_on()
    yield host, int(port)
    good.goes_on()
    assert node.cluster.is_running(0)


def closed_with(client: RawClient, code: int, *words: str) -> None:
    """The broker closes the connection with that code, then the socket."""
    closes = [got for got in client.everything() if isinstance(got, spec.Connection.Close)]
    assert closes, "it hung up without a word"
    assert closes[0].reply_code == code, dict(closes[0])
    for word in words:
        assert word in closes[0].reply_text, closes[0].reply_text


# ------------------------------------------------------------------ bytes that mean nothing


@pytest.mark.parametrize("stage", RawClient.STAGES)
def test_random_bytes_at_every_stage(address: tuple[str, int], stage: str) -> None:
    drawn = random.Random(RawClient.STAGES.index(stage))
    for _ in range(8):
        with RawClient(address, stage) as client:
            client.send(drawn.randbytes(drawn.choice((1, 7, 8, 100, 5000))) + b"\0" * 8)
            client.socket.shutdown(socket.SHUT_WR)
            client.everything()


@pytest.mark.parametrize("stage", RawClient.STAGES[1:])
def test_damaged_frames_at_every_stage(address: tuple[str, int], stage: str) -> None:
    """A good conversation with a few octets changed."""
    drawn = random.Random(stage)
    good = b"".join(
        (
            method(
                spec.Queue.Declare(
                    queue="damaged",
                    auto_delete=True,
                    arguments={
                        "x-expires": 5000,
                        "deep": {"er": [1, "two", None, True, {"x": "y"}]},
                    },
                )
            ),
            method(spec.Exchange.Declare(exchange="damaged", exchange_type="headers")),
            method(
                spec.Queue.Bind(queue="damaged", exchange="damaged", arguments={"x-match": "any"})
            ),
            method(spec.Confirm.Select()),
            method(spec.Basic.Qos(0, 3)),
            method(
                spec.Basic.Consume(queue="damaged", consumer_tag="c", arguments={"x-priority": 1})
            ),
            method(spec.Basic.Publish(routing_key="damaged")),
            content(5, struct.pack(">H", 0x2000) + long(short(b"h") + b"I\0\0\0\1"), body=b"hello"),
            method(spec.Basic.Ack(1)),
            method(spec.Basic.Get(queue="damaged")),
            method(spec.Tx.Select()),
            method(spec.Channel.Close(200, "", 0, 0)),
        )
    )
    for _ in range(40):
        data = bytearray(good)
        for _ in range(drawn.randint(1, 6)):
            data[drawn.randrange(len(data))] = drawn.randrange(256)
        with RawClient(address, stage) as client:
            client.send(bytes(data))
            client.socket.shutdown(socket.SHUT_WR)
            client.everything()


def test_other_protocols(address: tuple[str, int]) -> None:
    for first, answer in (
        (b"GET / HTTP/1.1\r\n\r\n", b"AMQP\0\0\x09\1"),
        (b"AMQP\0\0\x09\0", b"AMQP\0\0\x09\1"),
        (b"AMQP\1\1\0\x0a", b"AMQP\0\0\x09\1"),
        (b"\x16\x03\x01\x02\0\1\0\1\xfc\x03\x03", b"AMQP\0\0\x09\1"),
    ):
        with RawClient(address, "socket") as client:
            client.send(first)
            assert client.next() == (0, answer)
            assert client.next() is None


def test_random_bytes_for_the_other_protocol(address: tuple[str, int]) -> None:
    drawn = random.Random(10)
    for size in (1, 8, 50, 3000):
        with RawClient(address, "socket") as client:
            client.send(b"AMQP\3\1\0\0" + drawn.randbytes(size))
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(65536):
                pass


def test_random_bytes_for_the_peers_port(node: Broker, address: tuple[str, int]) -> None:
    drawn = random.Random(11)
    for size in (1, 8, 50, 3000, 100_000):
        there = (address[0], node.cluster.nodes[0].peers_port)
        with socket.create_connection(there, timeout=PATIENCE_S) as stranger:
            try:
                stranger.sendall(drawn.randbytes(size))
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(65536):
                    pass
            except OSError:
                pass  # hung up on already


# ------------------------------------------------------------------ handshakes


def test_half_handshakes_end_by_themselves(tmp_path: Path) -> None:
    settings = {"limits": {"handshake_timeout_ms": 2000}}
    with LocalCluster(nodes=1, directory=tmp_path, settings=settings) as cluster:
        host, port = cluster.addresses[0].split(":")
        for stage in RawClient.STAGES[:4]:
            with suppress(AssertionError):  # this machine stood: it ended before it came so far
                with RawClient((host, int(port)), stage) as client:
                    client.everything()


def test_wrong_password(address: tuple[str, int]) -> None:
    said = method(
        spec.Connection.StartOk(
            {"capabilities": {"authentication_failure_close": True}},
            "PLAIN",
            "\0guest\0wrong",
            "en_US",
        ),
        0,
    )
    with RawClient(address, "header") as client:
        client.send(said)
        closed_with(client, 403, "Login was refused using authentication mechanism PLAIN")
    with RawClient(address, "header") as client:
        client.send(method(spec.Connection.StartOk({}, "PLAIN", "\0nobody\0x", "en_US"), 0))
        assert client.next() is None  # a client that cannot read a close is only disconnected


@pytest.mark.parametrize(
    "response", ["", "guest", "\0\0\0\0", "\0guest\0guest\0more", "\xff\0\xfe"]
)
def test_responses_that_are_none(address: tuple[str, int], response: str) -> None:
    with RawClient(address, "header") as client:
        client.send(method(spec.Connection.StartOk({}, "PLAIN", response, "en_US"), 0))
        assert not [got for got in client.everything() if isinstance(got, spec.Connection.Tune)]


def test_an_unknown_mechanism(address: tuple[str, int]) -> None:
    with RawClient(address, "header") as client:
        client.send(method(spec.Connection.StartOk({}, "MAGIC", "please", "en_US"), 0))
        assert not [got for got in client.everything() if isinstance(got, spec.Connection.Tune)]


def test_an_unknown_vhost(address: tuple[str, int]) -> None:
    with RawClient(address, "tuned") as client:
        client.send(method(spec.Connection.Open("nowhere"), 0))
        closed_with(client, 530, "vhost nowhere not found")


@pytest.mark.parametrize(
    "tuned", [(2047, 100, 0), (2048, 131_072, 0), (0, 0, 0), (2047, 131_073, 0)]
)
def test_limits_that_were_not_offered(
    address: tuple[str, int], tuned: tuple[int, int, int]
) -> None:
    with RawClient(address, "started") as client:
        client.send(method(spec.Connection.TuneOk(*tuned), 0))
        closed_with(client, 530, "negotiated")


# ------------------------------------------------------------------ methods, contents


UNREADABLE = {
    "unknown class": raw_method(99, 1),
    "unknown method": raw_method(60, 99),
    "no arguments": raw_method(50, 10),
    "arguments too short": raw_method(50, 10, b"\0\0\x20abc"),
    "bytes left over": raw_method(20, 10, b"\0more"),
    "a table longer than its frame": raw_method(50, 10, b"\0\0\1q\0\xff\xff\xff\xff"),
    "a field of no known type": raw_method(50, 10, b"\0\0\1q\0" + long(b"\1x?\0")),
    "tables in tables": raw_method(50, 10, b"\0\0\1q\0" + long(b"\1x" + nested(200))),
    "a name that is not UTF-8": raw_method(50, 10, b"\0\0\2\xc3\x28\0" + long(b"")),
    "a routing key that is not UTF-8": raw_method(50, 20, b"\0\0\1q\0\2\xff\xfe\0" + long(b"")),
    "a frame that does not end": frame(1, 1, b"\0\x14\0\x0a\0", b"\0"),
    "a frame of no known kind": frame(9, 1, b"what"),
    "a frame above frame_max": frame(1, 1, bytes(200_000)),
    "a body without its header": frame(3, 1, b"body"),
    "a header without its publish": content(4),
    "a method inside a content": method(spec.Basic.Publish()) + method(spec.Channel.Flow(True)),
    "more body than said": method(spec.Basic.Publish()) + content(3, body=b"four"),
    "a content of another class": method(spec.Basic.Publish())
    + frame(2, 1, struct.pack(">HHQ", 50, 0, 0) + b"\0\0"),
    "properties that go beyond": method(spec.Basic.Publish()) + content(0, b"\x80\0\xffabc"),
    "headers that are no table": method(spec.Basic.Publish())
    + content(0, b"\x20\0" + long(b"\1x?")),
    "content on channel 0": method(spec.Basic.Publish(), 0) + content(0, channel=0),
    "a channel method on channel 0": method(spec.Channel.Open(), 0),
    "a connection method on channel 1": method(spec.Connection.Open("/"), 1),
    "a second connection.open": method(spec.Connection.Open("/"), 0),
    "a second channel.open": method(spec.Channel.Open(), 1),
    "a channel that is not open": method(spec.Basic.Get(queue="q"), 7),
    "our own method": method(spec.Queue.DeclareOk("q", 1, 2)),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read_ends_the_connection(address: tuple[str, int], what: str) -> None:
    with RawClient(address) as client:
        client.send(UNREADABLE[what] + method(spec.Channel.Flow(True)))
        closes = [got for got in client.everything() if isinstance(got, spec.Connection.Close)]
        assert closes[0].reply_code in (501, 502, 503, 504, 505, 540), what


def refused(client: RawClient, code: int, *words: str) -> None:
    """The channel is closed with that code; the connection serves on."""
    close = client.find(spec.Channel.Close)
    assert close.reply_code == code, dict(close)
    for word in words:
        assert word in close.reply_text, close.reply_text
    client.send(method(spec.Channel.CloseOk()) + method(spec.Channel.Open()))
    client.expect(spec.Channel.OpenOk)


def test_a_message_above_the_limit(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        client.send(method(spec.Basic.Publish()) + content((1 << 20) + 1, body=b"x" * 1000))
        refused(client, 406, "message size 1048577 is larger than configured max size 1048576")
    with RawClient(address) as client:
        client.send(method(spec.Basic.Publish()) + content((1 << 64) - 1))
        refused(client, 406, "larger than configured max size")


@pytest.mark.parametrize(
    "arguments",
    [
        b"\2\xff\xfeI\0\0\0\1",
        b"\1tF" + long(b"\2\xc3\x28S" + long(b"x")),
        b"\1tA" + long(b"F" + long(b"\1\xffV")),
    ],
)
def test_argument_names_that_are_not_utf8(address: tuple[str, int], arguments: bytes) -> None:
    with RawClient(address) as client:
        client.send(raw_method(50, 10, b"\0\0" + short(b"odd") + b"\0" + long(arguments)))
        refused(client, 406, "not UTF-8")
        client.send(
            raw_method(40, 10, b"\0\0" + short(b"odd") + short(b"fanout") + b"\0" + long(arguments))
        )
        refused(client, 406, "not UTF-8")
        client.send(
            raw_method(
                50, 20, b"\0\0" + short(b"odd") + short(b"amq.direct") + b"\0\0" + long(arguments)
            )
        )
        refused(client, 406, "not UTF-8")


def test_values_that_are_not_utf8_are_kept(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        for _ in range(2):  # the second time it must be found equivalent
            client.send(
                raw_method(
                    50,
                    10,
                    b"\0\0"
                    + short(b"odd")
                    + b"\0"
                    + long(
                        b"\1bx"
                        + long(b"\xff\xfe")
                        + b"\1sS"
                        + long(b"\xc3\x28")
                        + b"\1dd\x7f\xf8"
                        + bytes(6)
                        + b"\1DD\xff\xff\xff\xff\xff"
                        + b"\1TT"
                        + b"\xff" * 8
                    ),
                )
            )
            client.expect(spec.Queue.DeclareOk)
        host, port = address
        with Connection(Address(((host, port),))) as connection:  # AMQP 1.0 shows it, in lists too
            shown = {queue.name: queue.arguments for queue in Admin(connection).queues.list()}
        assert shown["odd"]["T"] == (1 << 64) - 1
        client.send(method(spec.Queue.Delete(queue="odd")))
        client.expect(spec.Queue.DeleteOk)


HEADERS = {
    "x-death is a number": b"\7x-deathI\0\0\0\1",
    "x-death counts in words": b"\7x-deathA"
    + long(
        b"F"
        + long(
            b"\5countS"
            + long(b"many")
            + b"\5queueS"
            + long(b"dying")
            + b"\6reasonS"
            + long(b"rejected")
        )
    ),
    "x-death counts too far": b"\7x-deathA"
    + long(
        b"F"
        + long(
            b"\5countl\x7f"
            + b"\xff" * 7
            + b"\5queueS"
            + long(b"dying")
            + b"\6reasonS"
            + long(b"rejected")
        )
    ),
    "x-death of other things": b"\7x-deathA" + long(b"V" + b"I\0\0\0\1" + b"F" + long(b"\1\xffV")),
    "names that are not UTF-8": b"\2\xff\xfeS" + long(b"\xff") + b"\1aF" + long(b"\1\xfeV"),
    "decimals, timestamps": b"\1DD\xff\xff\xff\xff\xff"
    b"\1TT" + b"\xff" * 8 + b"\1dd\x7f\xf8" + bytes(6),
    "sixty tables deep": b"\1a" + nested(60),
    "lists of lists": b"\1a" + nested(60, b"A", b""),
    "a delivery count": b"\x10x-delivery-countS" + long(b"no number"),
}


@pytest.mark.parametrize("what", HEADERS)
def test_headers_that_lie_go_through_a_whole_life(address: tuple[str, int], what: str) -> None:
    """Routed by headers, returned, delivered again, dead-lettered, fetched: none of it breaks."""
    correlation = short(b"\xff\xfe")  # and a property that is not UTF-8
    properties = struct.pack(">H", 0x2400) + long(HEADERS[what]) + correlation
    with RawClient(address) as client:
        for name, arguments in (
            ("dead", {}),
            ("dying", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}),
        ):
            client.send(method(spec.Queue.Declare(queue=name, durable=True, arguments=arguments)))
            client.expect(spec.Queue.DeclareOk)
        client.send(
            method(
                spec.Queue.Bind(
                    queue="dying", exchange="amq.headers", arguments={"x-match": "any", "none": 1}
                )
            )
            + method(spec.Queue.Bind(queue="dying", exchange="amq.fanout"))
            + method(spec.Confirm.Select())
        )
        for kind in (spec.Queue.BindOk, spec.Queue.BindOk, spec.Confirm.SelectOk):
            client.expect(kind)
        client.send(
            method(spec.Basic.Publish(exchange="amq.headers"))
            + content(0, properties)
            + method(spec.Basic.Publish(exchange="amq.fanout"))
            + content(0, properties)
        )
        acked = 0
        while acked < 2:
            ack = client.expect(spec.Basic.Ack)
            acked = ack.delivery_tag if ack.multiple else acked + 1
        client.send(method(spec.Basic.Get(queue="dying")))
        client.find(spec.Basic.GetOk)
        client.send(
            method(spec.Basic.Reject(1, requeue=True)) + method(spec.Basic.Get(queue="dying"))
        )
        client.find(spec.Basic.GetOk)
        client.send(method(spec.Basic.Reject(2, requeue=False)))

        def died() -> bool:
            client.send(method(spec.Basic.Get(queue="dead", no_ack=True)))
            while True:
                got = client.next()
                assert got is not None
                if isinstance(got[1], spec.Basic.GetEmpty | spec.Basic.GetOk):
                    return isinstance(got[1], spec.Basic.GetOk)

        eventually(died, "the dead letter")
        client.send(
            method(spec.Queue.Delete(queue="dying")) + method(spec.Queue.Delete(queue="dead"))
        )
        client.find(spec.Queue.DeleteOk)
        client.find(spec.Queue.DeleteOk)


def test_a_carbon_copy_that_is_no_list(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        client.send(method(spec.Confirm.Select()))
        client.expect(spec.Confirm.SelectOk)
        client.send(
            method(spec.Basic.Publish(routing_key="x"))
            + content(0, b"\x20\0" + long(b"\2CCI\0\0\0\1"))
        )
        refused(client, 406, "CC")


def test_tags_that_were_never_given(address: tuple[str, int]) -> None:
    highest = struct.pack(">Q", (1 << 64) - 1)
    for bad in (
        method(spec.Basic.Ack(1)),
        raw_method(60, 120, highest + b"\1"),
        raw_method(60, 80, highest + b"\1"),
        method(spec.Basic.Reject(7)),
    ):
        with RawClient(address) as client:
            client.send(bad)
            refused(client, 406, "unknown delivery tag")


# ------------------------------------------------------------------ too much, too early gone


def test_gone_in_the_middle_of_a_publish(node: Broker, address: tuple[str, int]) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("half", durable=True)
        for cut in (1, 8, 30, 60, 120, 1000):
            with RawClient(address) as client:
                whole = method(spec.Basic.Publish(routing_key="half"))
                client.send((whole + content(50_000, body=b"x" * 40_000))[:cut])
                client.socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )  # a reset, not a farewell
        assert channel.queue_declare("half", passive=True).method.message_count == 0
        channel.queue_delete("half")


def test_a_flood_of_connections(address: tuple[str, int]) -> None:
    for _ in range(3):
        flood = []
        for _ in range(500):  # connections_max is 400 here
            try:
                flood.append(socket.create_connection(address, timeout=PATIENCE_S))
            except OSError:
                pass
        for one in flood[::2]:
            try:
                one.sendall(b"AMQP")
            except OSError:
                pass
        for one in flood:
            one.close()


def test_more_channels_than_agreed_on(address: tuple[str, int]) -> None:
    with RawClient(address, "open") as client:
        client.send(b"".join(method(spec.Channel.Open(), n) for n in range(1, 2049)))
        closed_with(client, 530, "number of channels opened (2047) has reached")


def test_many_queues_at_once_and_gone(address: tuple[str, int]) -> None:
    with RawClient(address) as client:
        client.send(
            b"".join(
                method(spec.Queue.Declare(queue=f"many.{n}", exclusive=True, nowait=True))
                for n in range(1000)
            )
        )
        client.send(method(spec.Channel.Flow(True)))
        client.expect(spec.Channel.FlowOk)
    with RawClient(address) as client:  # the connection's end takes them all

        def gone() -> bool:
            client.send(method(spec.Queue.Declare(queue="many.999", passive=True)))
            found = client.find(spec.Channel.Close).reply_code == 404
            client.send(method(spec.Channel.CloseOk()) + method(spec.Channel.Open()))
            client.expect(spec.Channel.OpenOk)
            return found

        eventually(gone, "the last exclusive queue is deleted")


def test_who_does_not_read_what_it_asked_for(node: Broker, address: tuple[str, int]) -> None:
    """Its messages wait for it, and go back when it is gone."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("unread", durable=True)
        for _ in range(100):
            channel.basic_publish("", "unread", bytes(200_000))
        with RawClient(address) as client:
            client.send(method(spec.Basic.Consume(queue="unread")))
            client.expect(spec.Basic.ConsumeOk)

            def taken() -> bool:
                return channel.queue_declare("unread", passive=True).method.message_count < 100

            eventually(taken, "it was sent something")
        eventually(
            lambda: channel.queue_declare("unread", passive=True).method.message_count == 100,
            "all are back",
        )
        channel.queue_delete("unread")
