"""Links and sessions that end: they end alone, and nothing of them stays."""

from __future__ import annotations

import gc
import struct
from pathlib import Path
from typing import Any

import pytest
from cproton import retained_count
from proton import Link, Message

from tests.broker.clients10.stream_fuzz import ANSWERS, FRAMES, LOGIN, carry_out
from tests.broker.clients10.test_connection import Client, new, output, send
from tests.broker.clients10.test_links import CONSUMER, asked, consumer, deliver, opened
from warren_broker.clients10 import link_requests as asks
from warren_broker.clients10.connection import DISCARDED_MAX, Connection10
from warren_machines.queue.commands import Delivery as Run
from warren_wire import errors
from warren_wire.amqp10.engine import CHANNEL_MAX
from warren_wire.block.block import Block, encode

SMALL_FRAMES = 32_768
"""A client with such frames has a session window of 400 frames, as with RabbitMQ."""
TARGET = 5


def publisher(client: Client, name: str, number: int = 0) -> Any:
    """A sender to a queue, with credit."""
    client.answers[asks.OpenTarget] = asks.TargetOpened(number)
    sender = client.session.sender(name)
    sender.target.address = "/queues/q"
    sender.open()
    client.turn()
    assert sender.credit > 0
    return sender


def small_frames() -> Client:
    """A client of which all links are accepted, and every message."""
    client = Client(new(), frame_size=SMALL_FRAMES)
    client.turn()
    return client


def confirm(client: Client) -> int:
    """Accept the messages that were published; return their number."""
    published = 0
    while batches := asked(client, asks.PublishMessages):
        for batch in batches:
            published += batch.table.count
            every = list(range(batch.table.count))
            outcomes = asks.PublishOutcomes(accepted=every, last=True)
            client.connection.answer(batch.token, outcomes)
        client.turn()
    return published


def under_way(client: Client) -> list[bytes]:
    """Take what the client has written, as if it were on its way."""
    return [bytes(piece) for piece in client.engine.output(1 << 30)]


def publish(client: Client, sender: Any, messages: int) -> int:
    """Publish so many messages, as far as credit and window allow; return those that arrived."""
    arrived = 0
    for number in range(messages):
        if sender.credit <= 0:
            client.turn()
            arrived += confirm(client)
        if sender.credit <= 0:
            break
        send(sender, Message(body=b"later", inferred=True).encode())
        if number % 100 == 99:
            client.turn()
            arrived += confirm(client)
    client.turn()
    return arrived + confirm(client)


@pytest.mark.parametrize("body_bytes", [0, 10, 3_000, 50_000])
@pytest.mark.parametrize("messages", [150, 350])
def test_a_link_that_the_broker_ends_with_transfers_under_way_ends_alone(
    messages: int, body_bytes: int
) -> None:
    client = small_frames()
    ended, other = publisher(client, "ended", TARGET), publisher(client, "other")
    written = [ended.delivery(str(number)) for number in range(messages)]
    for _ in written:
        ended.stream(Message(body=bytes(body_bytes), inferred=True).encode())
        ended.advance()
    sent = under_way(client)
    client.connection.target_deleted(TARGET, errors.ResourceDeleted("queue 'q' was deleted"))
    client.turn()
    assert ended.remote_condition.name == "amqp:resource-deleted"
    for piece in sent:
        client.connection.receive(piece)
        client.turn()
    assert publish(client, other, 1_000) == 1_000, "the session's window is whole"
    ended.close()
    assert publish(client, other, 3_000) == 3_000, "the session's window is whole"
    assert client.connection.failure == "" and "TRANSPORT_ERROR" not in client.seen
    assert client.engine.connection.remote_condition is None
    assert all(delivery.settled for delivery in written)


def test_discarded_messages_are_released() -> None:
    client = small_frames()
    sender = publisher(client, "ended", TARGET)
    send(sender, Message(body=b"m").encode())
    sent = under_way(client)
    client.connection.target_deleted(TARGET, errors.ResourceDeleted("queue 'q' was deleted"))
    client.turn()
    delivery = sender.delivery("x")
    sender.stream(b"\x00\x53\x75\xa0\x01x")
    sender.advance()
    for piece in sent + under_way(client):
        client.connection.receive(piece)
    client.turn()
    assert int(delivery.remote_state) == 0x26, "released"
    assert delivery.settled


def test_the_rest_of_a_message_above_the_limit_does_not_use_up_the_window() -> None:
    client = Client(new(message_bytes_max=100_000), frame_size=SMALL_FRAMES)
    client.turn()
    for number in range(8):
        large, other = publisher(client, f"large {number}"), publisher(client, f"o {number}")
        send(large, Message(body=bytes(9_000_000), inferred=True).encode())
        for piece in under_way(client):
            client.connection.receive(piece)
        client.turn()
        assert large.remote_condition.name == "amqp:link:message-size-exceeded"
        large.close()
        assert publish(client, other, 500) == 500
    assert "TRANSPORT_ERROR" not in client.seen


QUEUE = b"\xc0\x0c\x01\xa1\x09/queues/q"


def attach(handle: int, name: bytes, queue: bytes = QUEUE) -> bytes:
    """A sender's attach to a queue."""
    fields = b"\xa1" + bytes([len(name)]) + name + b"\x52" + bytes([handle])
    fields += b"\x42" + b"\x40" * 3 + b"\x00\x53\x29" + queue + b"\x40\x40\x43"
    return frame(b"\x00\x53\x12\xc0" + bytes([len(fields) + 1, 10]) + fields)


def receiver(handle: int, name: bytes) -> bytes:
    """A receiver's attach to a queue."""
    fields = b"\xa1" + bytes([len(name)]) + name + b"\x52" + bytes([handle])
    fields += b"\x41" + b"\x40" * 2 + b"\x00\x53\x28" + QUEUE + b"\x00\x53\x29\x45"
    return frame(b"\x00\x53\x12\xc0" + bytes([len(fields) + 1, 7]) + fields)


def credit(handle: int) -> bytes:
    """A flow: an incoming window of one frame, credit for ten messages."""
    fields = b"\x43\x52\x01\x43\x52\x7f\x52" + bytes([handle]) + b"\x43\x52\x0a"
    return frame(b"\x00\x53\x13\xc0" + bytes([len(fields) + 1, 7]) + fields)


def transfer(handle: int, number: int) -> bytes:
    """A whole small message."""
    fields = b"\x52" + bytes([handle]) + b"\x70" + struct.pack(">I", number) + b"\xa0\x01t\x43\x41"
    listed = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 5]) + fields
    return frame(listed + b"\x00\x53\x75\xa0\x01x")


def frame(body: bytes, channel: int = 0) -> bytes:
    """A frame of a channel."""
    return struct.pack(">IBBH", 8 + len(body), 2, 0, channel) + body


BEGIN = b"\x00\x53\x11\xc0\x0a\x04\x40\x43\x70\x7f\xff\xff\xff\x52\x7f"
END = b"\x00\x53\x17\x45"


TRANSFERS = attach(0, b"n") + b"".join(transfer(0, number) for number in range(3))
REFUSED = attach(0, b"n", b"\xc0\x04\x01\xa1\x01q") + transfer(0, 0)


def opened_by_hand() -> Connection10:
    """A connection with an Open, and no session."""
    connection = new()
    for each in FRAMES[: LOGIN + 1]:
        connection.receive(each)
        carry_out(connection)
    return connection


def test_a_client_sending_on_to_a_refused_link_is_ended() -> None:
    connection = opened_by_hand()
    connection.receive(frame(BEGIN) + attach(0, b"n"))
    for request in connection.take_requests():
        connection.answer(request.token, errors.no_queue("q", "/"))
    output(connection)
    for number in range(DISCARDED_MAX):
        connection.receive(transfer(0, number))
        if number % 20 == 0:
            output(connection)
    assert connection.failure == ""
    connection.receive(transfer(0, DISCARDED_MAX))
    assert connection.failure == f"more than {DISCARDED_MAX} messages to link 'n', which has ended"


def test_a_message_after_the_clients_own_detach_ends_the_connection() -> None:
    """`rhea` sends such messages."""
    connection = opened_by_hand()
    connection.receive(frame(BEGIN) + attach(0, b"n"))
    for request in connection.take_requests():
        connection.answer(request.token, errors.no_queue("q", "/"))
    output(connection)
    connection.receive(frame(b"\x00\x53\x16\xc0\x03\x02\x43\x41"))
    assert connection.failure == ""
    connection.receive(transfer(0, 0))
    assert connection.failure == "amqp:invalid-field: no such handle: 0"


def resident_bytes() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def cycles(connection: Connection10, *chunks: bytes, times: int) -> list[int]:
    """Receive the chunks again and again; return the memory after each sixth of it."""
    block = Block.decode(encode([bytes(200_000)] * 4, [b""] * 4, (b"", b"q"), 4, None))
    sizes = []
    for number in range(times):
        for chunk in chunks:
            connection.receive(chunk)
            for request in connection.take_requests():
                connection.answer(request.token, ANSWERS.get(type(request)) or errors.NotFound(""))
                if isinstance(request, asks.GrantCredit):
                    connection.deliver(CONSUMER, Run(0, 1, 0, 3), block)
            output(connection)
            connection.take_faults()
        if number % (times // 6) == times // 6 - 1:
            sizes.append(resident_bytes())
    assert connection.failure == ""
    connection.receive(frame(b""))  # the last events are handled with the next frame
    output(connection)
    assert connection._engine.endings.begun == connection._engine.endings.waiting == 0
    connection.receive(frame(BEGIN))
    assert b"\x00\x53\x11" in output(connection), "it still begins sessions"
    return sizes


@pytest.mark.parametrize(
    ("chunks", "times"),
    [
        ((frame(BEGIN), TRANSFERS, frame(END)), 9_000),
        ((frame(BEGIN), REFUSED, frame(END)), 9_000),
        pytest.param(
            ((frame(BEGIN) + attach(0, b"n") + frame(END)) * 400,), 24, marks=pytest.mark.long
        ),
        pytest.param(
            (frame(BEGIN), receiver(0, b"n"), credit(0), frame(END)), 1_200, marks=pytest.mark.long
        ),
    ],
    ids=["one message", "a refused link", "400 at once", "what the window kept back"],
)
def test_sessions_are_freed_with_their_end(chunks: tuple[bytes, ...], times: int) -> None:
    """Before: some KB each until the connection ended; and 64 at once made it silent."""
    sizes = cycles(opened_by_hand(), *chunks, times=times)
    assert max(sizes) - sizes[0] < 3 << 20, sizes


@pytest.mark.parametrize("channels", ["their own", "one"])
def test_more_sessions_than_channel_max_allows_end_the_connection(channels: str) -> None:
    connection = opened_by_hand()
    for number in range(CHANNEL_MAX + 1):
        connection.receive(frame(BEGIN, number if channels == "their own" else 0))
    assert connection.failure == ""
    assert output(connection).count(b"\x00\x53\x11") == CHANNEL_MAX + 1
    connection.receive(frame(BEGIN))
    assert "more than 64 sessions" in connection.failure
    assert b"amqp:resource-limit-exceeded" in output(connection)


def test_a_consumer_that_was_detached_with_messages_kept_back_leaves_the_others_their_room() -> (
    None
):
    """Its bytes counted as waiting to be sent until the session ended."""
    client = opened(send_ahead_bytes_max=2_000_000)
    client.session = client.engine.connection.session()
    client.session.incoming_capacity = 1 << 20
    client.session.open()
    for _ in range(5):
        receiver = consumer(client)
        deliver(client, [bytes(700_000)] * 4)
        receiver.close()
        client.turn()
    kept = [each.outgoing_bytes for each in sessions(client.connection)]
    assert kept == [0, 0]


def sessions(connection: Connection10) -> list[Any]:
    """The engine's sessions."""
    found, session = [], connection._engine.connection.session_head(0)
    while session is not None:
        found.append(session)
        session = session.next(0)
    return found


def test_a_detached_link_of_the_brokers_is_freed_with_the_clients_detach() -> None:
    client = small_frames()
    for _ in range(3):
        sender = publisher(client, "ended", TARGET)
        send(sender, Message(body=b"m").encode())
        sent = under_way(client)
        client.connection.target_deleted(TARGET, errors.ResourceDeleted("queue 'q' was deleted"))
        for piece in sent:
            client.connection.receive(piece)
        client.turn()
        assert sender.state & Link.REMOTE_CLOSED
        sender.close()
        client.turn()
        sender.free()
        assert client.connection._engine.connection.link_head(0) is None
    assert client.connection._engine.endings._read == {}
    assert client.connection._engine.endings._counts == {}
    assert CONSUMER not in client.connection.consumers


@pytest.mark.parametrize("apart", [False, True], ids=["at once", "one after the other"])
def test_more_links_than_the_clients_handle_max_end_the_connection(apart: bool) -> None:
    """Before: the engine made no frame any more, not even of other sessions, and said nothing."""
    connection = opened_by_hand()
    begun = BEGIN[:4] + b"\x0b\x05" + BEGIN[6:] + b"\x43"  # handle-max 0
    connection.receive(frame(begun) + attach(0, b"n"))
    for second in (b"", attach(1, b"o")) if apart else (attach(1, b"o"),):
        connection.receive(second)
        for request in connection.take_requests():
            connection.answer(request.token, ANSWERS[type(request)])
        if apart and not second:
            assert b"\x00\x53\x12" in output(connection), "the first attach is answered"
            assert not connection.done
    sent = output(connection)
    closed = sent.index(b"\x00\x53\x18")
    assert b"amqp:resource-limit-exceeded" in sent[closed:]
    assert b"within limit of 0: have no more links" in sent[closed:]
    assert connection.done and output(connection) == b""
    assert connection.failure == "unable to find an open available handle within limit of 0"


def test_a_freed_engine_leaves_nothing_that_listened_to_it() -> None:
    before = retained_count()
    for _ in range(3):
        opened_by_hand().free()
    gc.collect()
    assert retained_count() <= before
