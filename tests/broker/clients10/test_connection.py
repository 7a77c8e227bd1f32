"""The 1.0 connection as a pure object: bytes in, requests out; hostile bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from typing import Any

import pytest
from proton import UNDESCRIBED, Array, Data, Message, symbol

from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.access.sasl10 import AMQP_HEADER, SASL_HEADER
from warren_broker.clients10 import connection_requests as asks
from warren_broker.clients10.connection import Connection10
from warren_wire import errors
from warren_wire.admin import exchanges as binding_resource
from warren_wire.admin import queues as queue_resource
from warren_wire.admin.overview import API_OFFERED, API_PROPERTY
from warren_wire.admin.queues import QueueInfo
from warren_wire.admin.requests import Listed
from warren_wire.amqp10.engine import Engine
from warren_wire.amqp10.fetched import (
    MalformedPiece,
    decode_piece,
    decode_section,
    encode_runs,
    encode_section_head,
)


def init_frame(mechanism: str = "PLAIN", response: bytes = b"\0guest\0guest") -> bytes:
    """A sasl-init frame, written by hand."""
    name = mechanism.encode()
    size, field = len(response), b"\xa3" + bytes([len(name)]) + name
    if size < 200:
        field += b"\xa0" + bytes([size]) + response
        body = b"\x00\x53\x41\xc0" + bytes([len(field) + 1, 2]) + field
    else:
        field += b"\xb0" + struct.pack(">I", size) + response
        body = b"\x00\x53\x41\xd0" + struct.pack(">II", len(field) + 4, 2) + field
    return struct.pack(">IBBH", 8 + len(body), 2, 1, 0) + body


def new(**limits: int) -> Connection10:
    return Connection10(container="node", config=ConnectionConfig(**limits))


def output(connection: Connection10) -> bytes:
    return b"".join(bytes(piece) for piece in connection.take_output())


class Client:
    """Proton's own client end, joined to a Connection10 without a socket."""

    def __init__(
        self, connection: Connection10, hostname: str = "vhost:/", frame_size: int = 1 << 20
    ) -> None:
        self.connection = connection
        self.windows: list[int] = []  # incoming windows of the broker's sessions
        self.engine = Engine(server=False, container="client")
        self.engine.transport.max_frame_size = frame_size
        self.engine.connection.user = self.engine.connection.password = "guest"
        self.engine.connection.hostname = hostname
        sasl = self.engine.transport.sasl()
        sasl.allow_insecure_mechs = True
        sasl.allowed_mechs("PLAIN")
        self.engine.bind()
        self.engine.connection.open()
        self.session = self.engine.connection.session()
        self.session.open()
        self.seen: list[str] = []
        self.answers: dict[type, asks.AnyAnswer] = {
            asks.Login: asks.LoggedIn(),
            asks.OpenVhost: asks.VhostOpened("n", "c"),
        }
        self.requests: list[asks.AnyRequest] = []

    def turn(self, times: int = 6) -> None:
        """Bytes both ways, requests answered where an answer is known."""
        for _ in range(times):
            for piece in self.engine.output(1 << 20):
                self.connection.receive(piece)
            for request in self.connection.take_requests():
                self.requests.append(request)
                if type(request) in self.answers:
                    self.connection.answer(request.token, self.answers[type(request)])
            for piece in self.connection.take_output():
                self.windows += begun_windows(bytes(piece))
                for _ in self.engine.receive(piece):
                    pass
            self.seen += [event.type.name for event in self.engine.events()]


def begun_windows(data: bytes) -> list[int]:
    """Return the incoming windows of the begin performatives in bytes of whole frames."""
    found, at = [], 0
    while at + 8 <= len(data):
        if data[at : at + 4] == b"AMQP":  # a protocol header
            at += 8
            continue
        size, offset = struct.unpack_from(">IB", data, at)
        body = data[at + 4 * offset : at + size]
        if body[:3] == b"\x00\x53\x11":  # begin: channel, next-outgoing-id, incoming-window
            fields = Data()
            fields.decode(body)
            fields.rewind()
            fields.next()
            found.append(int(list(fields.get_object().value)[2]))
        at += max(size, 8)
    return found


@pytest.mark.parametrize("cut", range(len(SASL_HEADER + init_frame())))
def test_login_cut_anywhere(cut: int) -> None:
    data = SASL_HEADER + init_frame()
    connection = new()
    connection.receive(data[:cut])
    connection.receive(data[cut:])
    (request,) = connection.take_requests()
    assert isinstance(request, asks.Login)
    assert (request.user, request.password) == ("guest", "guest")
    assert "guest" not in repr(request).replace("user='guest'", "")
    assert output(connection).startswith(SASL_HEADER)
    connection.answer(request.token, asks.LoggedIn())
    assert output(connection).endswith(b"\x00\x53\x44\xd0\x00\x00\x00\x06\x00\x00\x00\x01\x50\x00")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (AMQP_HEADER, "wants SASL first"),
        (b"GET / HT", "wants SASL first"),
        (SASL_HEADER + init_frame("ANONYMOUS"), "offered are PLAIN AMQPLAIN"),
        (SASL_HEADER + init_frame(response=b"guest"), "PLAIN response of 5 bytes is invalid"),
        (SASL_HEADER + init_frame(response=b"\0\xff\0x"), "PLAIN response of 4 bytes is invalid"),
        (SASL_HEADER + struct.pack(">IBBH", 1 << 30, 2, 1, 0), "at most 8192"),
        (SASL_HEADER + struct.pack(">IBBH", 20, 2, 0, 0) + bytes(12), "type 0"),
        (SASL_HEADER + struct.pack(">IBBH", 12, 2, 1, 0) + b"\x00\x53\x41\xff", "not sasl-init"),
        (SASL_HEADER + init_frame() + bytes(70_000), "before the login was decided"),
    ],
)
def test_what_is_no_login_ends_the_connection(data: bytes, reason: str) -> None:
    connection = new()
    connection.receive(data)
    output(connection)
    assert connection.done
    assert reason in connection.failure
    assert connection.take_output() == []
    connection.free()


def test_a_wrong_password_gets_the_outcome_auth() -> None:
    connection = new()
    connection.receive(SASL_HEADER + init_frame(response=b"\0guest\0wrong"))
    (request,) = connection.take_requests()
    connection.answer(request.token, errors.LoginRefused("no"))
    assert output(connection).endswith(b"\x50\x01")
    assert connection.done
    assert "wrong" not in connection.failure


def test_everything_sent_at_once_without_waiting() -> None:
    """A client may send its whole opening, requests included, before it hears anything."""
    connection = new()
    client = Engine(server=False, container="c")
    client.connection.hostname = "vhost:/"
    client.bind()
    client.connection.open()
    session = client.connection.session()
    session.open()
    receiver = session.receiver("x")
    receiver.source.address = "/queues/q/browse?max=5"
    receiver.open()
    receiver.flow(5)
    opening = b"".join(bytes(piece) for piece in client.output(1 << 20))
    connection.receive(SASL_HEADER + init_frame() + opening)
    (login,) = connection.take_requests()
    connection.answer(login.token, asks.LoggedIn())
    (vhost,) = connection.take_requests()
    assert isinstance(vhost, asks.OpenVhost)
    assert (vhost.vhost, vhost.user) == ("/", "guest")
    connection.answer(vhost.token, asks.VhostOpened())
    (browse,) = connection.take_requests()
    assert isinstance(browse, asks.Browse)


def opened_sender(client: Client, name: str) -> Any:
    """Open a link that publishes blocks to the queue q."""
    sender = client.session.sender(name)
    sender.target.address = "/queues/q/blocks"
    sender.open()
    client.turn()
    return sender


def opened_receiver(client: Client, name: str, address: str) -> Any:
    """Open a link that receives from the address, without credit."""
    receiver = client.session.receiver(name)
    receiver.source.address = address
    receiver.open()
    client.turn()
    return receiver


@pytest.mark.parametrize(
    ("capabilities", "carries_blocks"),
    [
        (("warren:blocks",), True),
        (("other", "warren:blocks"), True),
        (("other",), False),
        ((), False),
    ],
)
def test_blocks_to_an_exchange_are_told_from_the_routing_key_of_that_name(
    capabilities: tuple[str, ...], carries_blocks: bool
) -> None:
    client = Client(new())
    sender = client.session.sender("sender-1")
    sender.target.address = "/exchanges/x/blocks"
    if len(capabilities) == 1:
        sender.target.capabilities.put_object(symbol(capabilities[0]))
    elif capabilities:
        names = [symbol(each) for each in capabilities]
        sender.target.capabilities.put_object(Array(UNDESCRIBED, Data.SYMBOL, *names))
    sender.open()
    client.turn()
    send(sender, encode_section_head(4) + b"WBLK")
    client.turn()
    requests = [r for r in client.requests if isinstance(r, asks.PublishBlock)]
    assert [request.exchange for request in requests] == ["x"] * carries_blocks


def test_no_request_is_made_in_a_vhost_that_was_refused() -> None:
    client = Client(new(), "vhost:secret")
    client.answers[asks.OpenVhost] = errors.vhost_refused("secret", "guest")
    opened_receiver(client, "x", "/queues/q/browse?max=5")
    assert [type(r) for r in client.requests] == [asks.Login, asks.OpenVhost]
    condition = client.engine.connection.remote_condition
    assert condition.name == "amqp:not-allowed"
    assert "access to vhost 'secret' refused" in str(condition.description)


def test_a_client_that_is_hung_up_on_got_no_open() -> None:
    client = Client(new(), "vhost:nowhere")
    del client.answers[asks.OpenVhost]
    client.turn()
    client.connection.hang_up(errors.unknown_vhost("nowhere"))
    assert client.connection.done and client.connection.failure == "vhost nowhere not found"
    assert client.connection.take_output() == []
    assert not client.engine.connection.remote_container
    assert [fault.refusal.detail for fault in client.connection.take_faults()] == [
        "vhost nowhere not found"
    ]


@pytest.mark.parametrize(
    ("frames_of", "told", "window"), [(32_768, 131_072, 400), (1 << 20, 1 << 20, 64)]
)
def test_open_tells_what_clients_of_rabbitmq_look_for(
    frames_of: int, told: int, window: int
) -> None:
    """A client that takes frames of 1 MiB sends blocks; others get RabbitMQ's limits."""
    client = Client(new(), frame_size=frames_of)
    client.turn()
    connection, transport = client.engine.connection, client.engine.transport
    properties = {str(key): value for key, value in dict(connection.remote_properties).items()}
    told_of_us = {"node": "n", "cluster_name": "c", API_PROPERTY: API_OFFERED}
    assert properties == {**ConnectionConfig().properties, **told_of_us}
    assert (properties["product"], properties["version"]) == ("RabbitMQ", "4.3.0")
    offered = connection.remote_offered_capabilities
    assert [str(name) for name in offered] == ["LINK_PAIR_V1_0", "ANONYMOUS-RELAY", "warren_relays"]
    assert transport.remote_max_frame_size == told
    assert transport.remote_idle_timeout == 30.0
    assert transport.remote_channel_max == 63
    assert client.windows == [window]


def attach_management(client: Client) -> tuple[Any, Any]:
    sender, receiver = client.session.sender("pair"), client.session.receiver("pair")
    for each in (sender, receiver):
        each.source.address = each.target.address = "/management"
        each.properties = {symbol("paired"): True}
        each.open()
    receiver.flow(10)
    client.turn()
    return sender, receiver


def send(link: Any, data: bytes) -> None:
    link.delivery("x")
    link.stream(data)
    link.advance()


def test_rabbitmq_clients_way_of_declaring_a_queue() -> None:
    client = Client(new())
    info = QueueInfo("q", "/", "quorum", True, False, False, "n1", ("n1", "n2"), messages_ready=7)
    client.answers[queue_resource.DeclareQueueRequest] = queue_resource.DeclaredQueue(True, info)
    sender, receiver = attach_management(client)
    message = Message(id="7", address="/queues/q%2F1", subject="PUT", reply_to="$me")
    message.body = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    message.inferred = True
    send(sender, message.encode())
    client.turn()
    asked = client.requests[-1]
    assert asked == queue_resource.DeclareQueueRequest(
        "q/1", arguments={"x-queue-type": "quorum"}, token=asked.token
    )
    reply: Any = Message()
    reply.decode(receiver.recv(receiver.current.pending))
    assert (reply.subject, reply.correlation_id) == ("201", "7")
    assert reply.properties == {"http:response": "1.1"}
    assert reply.body["message_count"] == 7
    assert list(reply.body["replicas"]) == ["n1", "n2"]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x53\x75\xb0\xff\xff\xff\xff", b"x" * 100])
def test_a_request_that_is_no_message_ends_its_link_only(data: bytes) -> None:
    client = Client(new())
    sender, receiver = attach_management(client)
    send(sender, data)
    client.turn()
    assert client.requests[2:] == []
    if sender.remote_condition is None:  # what decodes to an empty message is answered
        reply: Any = Message()
        reply.decode(receiver.recv(receiver.current.pending))
        assert reply.subject == "400"
    opened_receiver(client, "later", "/queues/q/browse?max=1")
    assert isinstance(client.requests[-1], asks.Browse)


def test_a_request_above_the_limit_ends_its_link() -> None:
    client = Client(new(request_bytes_max=1000))
    sender, _ = attach_management(client)
    send(sender, bytes(1001))
    client.turn()
    assert sender.remote_condition.name == "amqp:link:message-size-exceeded"
    assert "1000 is the limit" in sender.remote_condition.description


def test_blocks_in_flight_are_bounded_by_bytes() -> None:
    client = Client(new(in_flight_bytes_max=1000))
    sender = opened_sender(client, "blocks")
    for _ in range(10):
        send(sender, encode_section_head(400) + bytes(400))
    client.turn()
    taken = client.requests[2:]
    assert len(taken) == 3, "800 bytes leave room for one more, 1200 do not"
    for done in range(1, 8):
        client.connection.answer(client.requests[1 + done].token, asks.Published())
        client.turn()
        assert len(client.requests) - 2 == 3 + done
    assert client.connection.in_flight_bytes == 1200


def test_while_resources_are_short_no_block_is_taken_and_no_credit_given() -> None:
    client = Client(new())
    before = opened_sender(client, "before")
    credit = before.credit
    assert credit > 0
    client.connection.short = True
    late = client.session.sender("late")
    late.target.address = "/queues/q/blocks"
    late.open()
    for _ in range(3):
        send(before, encode_section_head(4) + b"abcd")
    client.turn()
    taken = len(client.requests)
    assert late.credit == 0 and before.credit == credit - 3
    requests, _ = attach_management(client)  # everything else continues
    send(requests, Message(id=1, address="/queues", subject="GET").encode())
    client.turn()
    assert len(client.requests) == taken + 1
    client.connection.short = False
    client.turn()
    blocks = [r for r in client.requests if isinstance(r, asks.PublishBlock)]
    assert len(blocks) == 3 and late.credit == credit == before.credit


def test_a_slow_reader_is_not_written_ahead_of_for_ever() -> None:
    """Pieces stop being fetched when the client gives no credit."""
    client = Client(new(send_ahead_bytes_max=10_000))
    receiver = opened_receiver(client, "pieces", "/queues/q/browse?max=100000")
    for _ in range(50):
        if not isinstance(client.requests[-1], asks.Browse):
            break
        asked = client.requests.pop()
        pieces = (asks.Piece(((1, 0, 0, 0, 0),), bytes(4000)),) * 2
        client.connection.answer(asked.token, asks.Fetched(pieces, 2, cursor=1))
        client.turn()
    assert len(client.seen) and not isinstance(client.requests[-1], asks.Browse)
    receiver.flow(100)
    client.turn()
    assert isinstance(client.requests[-1], asks.Browse)


def test_answers_after_the_end_are_dropped() -> None:
    client = Client(new())
    sender = opened_sender(client, "blocks")
    send(sender, encode_section_head(4) + b"abcd")
    client.turn()
    token = client.requests[-1].token
    client.engine.connection.close()
    client.turn()
    client.connection.answer(token, asks.Published())
    client.connection.end_of_input()
    assert client.connection.done
    client.connection.free()
    client.connection.answer(token, asks.Published())


def recorded() -> list[bytes]:
    """What a client sends from its header to a request and a block, in pieces."""
    pieces: list[bytes] = []
    client = Client(new())
    take = client.connection.receive

    def receive(data: Iterable[int]) -> None:
        pieces.append(bytes(data))
        take(data)

    client.connection.receive = receive  # type: ignore[method-assign]
    sender, _ = attach_management(client)
    send(sender, Message(id=1, address="/queues", subject="GET").encode())
    blocks = client.session.sender("b")
    blocks.target.address = "/exchanges//stage?sink=s&batch=0&partition=0&attempt=0&seq=1"
    blocks.open()
    client.turn()
    send(blocks, encode_section_head(300) + bytes(300))
    client.turn()
    return pieces


def test_damaged_streams_end_the_connection_and_nothing_else() -> None:
    """Every byte that a client sends, changed one at a time: refused or harmless, never an
    exception."""
    pieces = recorded()
    data = b"".join(pieces)
    rng = random.Random(7)
    ended = 0
    login = len(SASL_HEADER + init_frame())
    places = [(at, 1 << bit) for at in range(8, login) for bit in range(8)]
    places += [(at, 1 << rng.randrange(8)) for at in range(login, len(data))]
    for at, change in places:
        damaged = bytearray(data)
        damaged[at] ^= change
        connection = new()
        connection.receive(bytes(damaged))
        for _ in range(10):
            for request in connection.take_requests():
                answer = {asks.Login: asks.LoggedIn(), asks.OpenVhost: asks.VhostOpened()}
                refusal = errors.NotFound("no")
                connection.answer(request.token, answer.get(type(request), refusal))
            output(connection)
        ended += connection.failure != ""
        connection.free()
    assert ended > len(data) // 10


def test_random_bytes_after_the_login() -> None:
    rng = random.Random(11)
    for _ in range(300):
        connection = new()
        connection.receive(SASL_HEADER + init_frame())
        (login,) = connection.take_requests()
        connection.answer(login.token, asks.LoggedIn())
        connection.receive(AMQP_HEADER + rng.randbytes(rng.randrange(1, 300)))
        output(connection)
        connection.end_of_input()
        connection.free()


def test_pieces_round_trip_and_refuse_what_they_are_not() -> None:
    runs = ((1, 0, 3, 0, 0), (1 << 60, 7, 7, 2, 3))
    data = encode_runs(runs) + b"block"
    assert decode_piece(memoryview(data)) == (runs, b"block")
    assert len(encode_section_head(5)) == 8
    assert decode_section(memoryview(encode_section_head(5) + b"block")) == b"block"
    for bad in (b"", b"\0" * 8, data[:20], b"\xff" * 8 + data):
        with pytest.raises(MalformedPiece):
            decode_piece(memoryview(bad))
    for bad in (b"", b"block", encode_section_head(5) + b"bloc", b"\0\x53\x77\xb0\0\0\0\0"):
        with pytest.raises(MalformedPiece):
            decode_section(memoryview(bad))


def test_blocks_that_are_not_complete_are_bounded_over_all_links() -> None:
    client = Client(new(unfinished_bytes_max=100_000))
    senders = []
    for number in range(4):
        sender = client.session.sender(f"blocks {number}")
        sender.target.address = "/queues/q/blocks"
        sender.open()
        senders.append(sender)
    client.turn()
    for sender in senders[:2]:
        sender.delivery("x")
        sender.stream(encode_section_head(90_000) + bytes(40_000))
        client.turn()
    assert 80_000 <= client.connection.unfinished_bytes < 81_000
    senders[0].stream(bytes(50_000))
    senders[0].advance()
    client.turn()
    assert 40_000 <= client.connection.unfinished_bytes < 41_000, "one is complete"
    senders[1].close()
    client.turn()
    assert client.connection.unfinished_bytes == 0, "the other one's link is gone"
    for sender in senders[2:]:
        sender.delivery("x")
        sender.stream(encode_section_head(90_000) + bytes(60_000))
        client.turn()
    assert "limits.unfinished_bytes_max" in client.connection.failure
    assert "CONNECTION_REMOTE_CLOSE" in str(client.seen)


def asked(
    name: str, properties: dict[Any, Any], answer: Any, method: str, path: str, body: Any = None
) -> Any:
    """Return the answer to one request on links of that name and properties."""
    client = Client(new())
    sender, receiver = client.session.sender(name), client.session.receiver(name)
    for each in (sender, receiver):
        each.source.address = each.target.address = "/management"
        each.properties = {symbol("paired"): True, **properties}
        each.open()
    receiver.flow(10)
    request = Message(id="7", address=path, subject=method, reply_to="$me", body=body)
    client.answers[queue_resource.GetQueueRequest] = answer
    client.answers[binding_resource.ListBindingsRequest] = answer
    client.turn()
    send(sender, request.encode())
    client.turn()
    reply: Any = Message()
    reply.decode(receiver.recv(receiver.current.pending))
    return reply


@pytest.mark.parametrize(
    ("name", "properties", "of_warren"),
    [
        ("pair", {symbol("warren:answers"): True}, True),
        ("pair", {}, False),
    ],
)
def test_each_client_reads_answers_in_its_own_form(
    name: str, properties: dict[Any, Any], of_warren: bool
) -> None:
    absent = errors.no_queue("q", "/")
    refused = asked(name, properties, absent, "GET", "/queues/q")
    assert refused.subject == "404"
    if of_warren:
        assert refused.body == {"condition": "amqp:not-found", "detail": absent.detail}
    else:
        assert refused.body == "queue 'q' in vhost '/' not found"
    info = QueueInfo("q", "/", "quorum", True, False, False, "", ("n1", "n2"))
    shown = asked(name, properties, info, "GET", "/queues/q")
    assert isinstance(shown.body["replicas"], list if of_warren else Array)
    assert list(shown.body["replicas"]) == ["n1", "n2"]
    assert ("leader" in shown.body) == of_warren
    binding = binding_resource.BindingInfo("x", "q", routing_key="k")
    bindings = Listed((binding,))
    listed = asked(name, properties, bindings, "GET", "/bindings?src=x&dstq=q&key=k")
    assert [each["location"] for each in listed.body] == ["/bindings/src=x;dstq=q;key=k;args="]


def test_a_token_is_binary() -> None:
    assert asked("pair", {}, None, "PUT", "/auth/tokens", "text").subject == "400"
