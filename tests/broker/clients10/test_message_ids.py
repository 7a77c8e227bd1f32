"""Messages that differ in their ids: what is put in equals what a conversion in full gives."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from proton import Message, symbol, ulong

from tests.broker.clients10.test_connection import send
from tests.broker.clients10.test_links import asked, opened
from warren_broker.clients10 import link_requests as asks
from warren_wire.amqp10.message.message_ids import UNLIKE_MAX
from warren_wire.amqp10.message.received import MessageReader, read_message
from warren_wire.amqp10.message.sent import MessageWriter, encode_message
from warren_wire.block.block import Block, encode

KINDS = ("ulong", "small", "uuid", "string", "binary", "odd", "none")
ODD = (
    "urn:uuid:00000010-0000-0000-0000-000000000000",
    "urn:uuid:00000010-0000-0000-0000-00000000000X",
    "urn:uuid:" + "A" * 8 + "-0000-0000-0000-000000000000",
    "\x00" * 5,
    "ä" * 3,
    "x-warren-sections",
    "amqp-1.0",
    "",
    "y" * 255,
    "y" * 256,
    b"",
    b"\xff" * 20,
    b"z" * 300,
    0,
)
ROUTE = (b"", b"q")


def identity(kind: str, rng: random.Random) -> Any:
    """A message-id of a type; "odd": one that needs a conversion in full."""
    number = rng.choice((rng.randrange(1 << 64), rng.randrange(256, 3_000), 255, 1 << 63))
    if kind == "ulong":
        return ulong(max(number, 256))
    if kind == "small":
        return ulong(1 + number % 255)
    if kind == "uuid":
        return uuid.UUID(int=rng.randrange(1 << 128))
    if kind == "string":
        return f"id-{rng.randrange(10**6):06}"
    if kind == "binary":
        return rng.randbytes(12)
    return rng.choice(ODD) if kind == "odd" else None


def fields(rng: random.Random) -> dict[str, Any]:
    """Fields that a run of messages has in common."""
    found: dict[str, Any] = {"inferred": True}
    if rng.random() < 0.5:
        found["durable"] = True
    for name, value in (
        ("address", "/queues/q"),
        ("user_id", b"guest"),
        ("subject", "s"),
        ("reply_to", "/queues/r"),
        ("correlation_id", rng.choice((ulong(7), "c", uuid.UUID(int=3), b"bin"))),
        ("content_type", symbol("text/plain")),
        ("creation_time", 5.0),
        ("group_id", "g"),
        ("properties", {"k": 1, "x-message-id": b"z" * 12}),
        ("annotations", {symbol("x-a"): "b"}),
        ("ttl", 5.0),
        ("priority", 3),
    ):
        found |= {name: value} if rng.random() < 0.25 else {}
    return found


def made(rng: random.Random, common: dict[str, Any], kind: str) -> bytearray:
    """A message with an id, and a body of some size."""
    body = rng.randbytes(rng.choice((0, 3, 300)))
    return bytearray(Message(body=body, id=identity(kind, rng), **common).encode())


def read(reader: MessageReader, data: bytearray, last: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return (properties, body) as a publisher's link reads them."""
    body = reader.body_like_last(data)
    if body is not None:
        return last["properties"], bytes(body)
    found = reader.like_last_but_id(data)
    if found is not None:
        last["properties"] = found[0]
        last["hits"] = last.get("hits", 0) + 1
        return found[0], bytes(found[1])
    message = reader.read(data)
    reader.remember()
    last["properties"] = bytes(message.properties)
    return bytes(message.properties), bytes(message.body)


@pytest.mark.parametrize("seed", range(300))
def test_what_is_put_in_equals_a_conversion_in_full(seed: int) -> None:
    rng = random.Random(seed)
    reader, writer = MessageReader(), MessageWriter()
    last: dict[str, Any] = {}
    for _ in range(3):
        common, kind = fields(rng), rng.choice(KINDS)
        messages = [made(rng, common, kind) for _ in range(6)]
        messages += [messages[0], messages[-1], messages[-1]]
        if kind != "odd":
            messages.insert(4, made(rng, common, "odd"))
        for data in messages:
            properties, body = read(reader, data, last)
            full = read_message(memoryview(bytes(data)))
            assert (properties, body) == (bytes(full.properties), bytes(full.body))
            block = Block.decode(encode([body], [properties], ROUTE, 4, None))
            count = rng.randrange(2)
            sent = b"".join(map(bytes, writer.encode(block, 0, count, count)))
            whole = encode_message(
                block.form,
                properties,
                body,
                exchange=b"",
                routing_key=b"q",
                acquired_count=count,
                delivery_count=count,
            )
            assert sent == b"".join(map(bytes, whole))


@pytest.mark.parametrize("kind", ["ulong", "small", "uuid", "string", "binary"])
@pytest.mark.parametrize("common", [{}, {"address": "/queues/q"}, {"properties": {"k": 1}}])
def test_the_third_message_of_a_run_is_not_converted_in_full(
    kind: str, common: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = MessageReader(), MessageWriter()
    last: dict[str, Any] = {}
    stored = []
    for number in range(1, 7):
        ids = {
            "ulong": ulong(995 + number),
            "small": ulong(number),
            "uuid": uuid.UUID(int=number),
            "string": f"id-{number}",
            "binary": bytes((number,)) * 16,
        }
        data = bytearray(Message(body=b"b", id=ids[kind], inferred=True, **common).encode())
        stored.append(read(reader, data, last)[0])
    assert last["hits"] == 4
    block = Block.decode(encode([b""] * 6, stored, ROUTE, 4, None))
    for at in range(2):
        writer.encode(block, at, 0, 0)

    def never(*_: object) -> None:
        raise AssertionError("converted in full")

    monkeypatch.setattr("warren_wire.amqp10.message.sent._head", never)
    for at in range(2, 6):
        writer.encode(block, at, 0, 0)


def test_properties_of_an_amqp091_client_with_a_like_id_are_converted_as_they_are() -> None:
    """A 0.9.1 client may store what looks like a kept section, cut short or with another id."""
    rng = random.Random(5)
    run = [bytes(read_message(memoryview(made(rng, {}, "ulong"))).properties) for _ in range(3)]
    for at in range(len(run[2])):
        for other in (run[2][:at] + bytes((run[2][at] ^ 1,)) + run[2][at + 1 :],):
            writer = MessageWriter()
            for properties in (*run, other, run[0]):
                block = Block.decode(encode([b"b"], [properties], ROUTE, 4, None))
                sent = b"".join(map(bytes, writer.encode(block, 0, 0, 0)))
                whole = encode_message(block.form, properties, b"b", exchange=b"", routing_key=b"q")
                assert sent == b"".join(map(bytes, whole)), at


def test_a_link_of_unlike_messages_stops_looking() -> None:
    reader, writer = MessageReader(), MessageWriter()
    for number in range(UNLIKE_MAX + 3):
        data = Message(body=b"", inferred=True, id=number + 1, subject="s" * number).encode()
        properties = read(reader, bytearray(data), {})[0]
        block = Block.decode(encode([b""], [properties], ROUTE, 4, None))
        writer.encode(block, 0, 0, 0)
    assert reader._unlike == writer._unlike == UNLIKE_MAX + 1


@pytest.mark.parametrize("kind", ["ulong", "string", "uuid", "binary"])
def test_published_messages_keep_their_own_ids(kind: str) -> None:
    client = opened()
    sender = client.session.sender("s")
    sender.target.address = "/queues/q"
    sender.open()
    client.turn()
    rng = random.Random(9)
    ids = [identity(kind, rng) for _ in range(5)]
    ids += [ids[0], ids[4], ids[4], ids[1], "odd \x00", ids[2], ids[3]]
    messages = [Message(body=b"b", inferred=True, id=each).encode() for each in ids]
    for data in messages:
        send(sender, data)
    client.turn()
    tables = [request.table for request in asked(client, asks.PublishMessages)]
    found = [bytes(table.properties_of(at)) for table in tables for at in range(table.count)]
    assert found == [bytes(read_message(memoryview(data)).properties) for data in messages]
