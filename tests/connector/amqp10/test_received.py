"""Messages over AMQP 1.0 as rows: bodies, columns, and identities that no broker may change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import UNDESCRIBED, Array, Data, Message, symbol, timestamp, ulong

from pyspark_warren.amqp10.received import MessageRead, ReceivedMessages, read_message
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.sink.subjects import with_subject
from pyspark_warren.spool.read import DeliveredRows
from pyspark_warren.spool.spooling import batch_of
from warren_wire.amqp091.properties import NONE
from warren_wire.amqp10.message.sent import encode_message
from warren_wire.block.layout import FORM_AMQP091


def encoded(**fields: Any) -> bytearray:
    """A message as a client sends it."""
    message = Message(**{"inferred": True, "body": b"x", **fields})
    return bytearray(message.encode())


def read(**fields: Any) -> MessageRead:
    return read_message(encoded(**fields), b"orders")


def row(found: MessageRead, redelivered: bool = False) -> dict[str, Any]:
    """The columns of a message, by name."""
    taken = ReceivedMessages()
    taken.add(1, found, redelivered)
    schema = pa.schema(list(ARROW_TYPES.items()))
    rows = DeliveredRows(batch_of(taken), [0], "orders").to_arrow(schema, None).to_pylist()
    assert len(rows) == 1
    return dict(rows[0])


def test_the_sections_become_columns() -> None:
    found = row(
        read(
            id="m-1",
            correlation_id=ulong(7),
            subject="news",
            reply_to="answers",
            content_type="text/csv",
            creation_time=1_700_000_000.0,
            group_id="key",
            durable=True,
            priority=6,
            ttl=90.0,
            properties={"n": 7, "ok": True, "when": timestamp(1_700_000_000_000), "name": "é"},
        )
    )
    headers = dict(found["headers"])
    assert (headers["n"]["long"], headers["ok"]["boolean"]) == (7, True)
    assert headers["name"]["string"] == "é"
    assert headers["when"]["timestamp"].timestamp() == 1_700_000_000
    wanted = {
        "body": b"x",
        "message_id": "m-1",
        "correlation_id": "7",
        "routing_key": "news",
        "reply_to": "answers",
        "content_type": "text/csv",
        "app_id": "key",
        "delivery_mode": 2,
        "priority": 6,
        "expiration": "90000",
        "delivery_count": 0,
        "exchange": "",
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["timestamp"].timestamp() == 1_700_000_000


def test_annotations_of_any_name_are_headers() -> None:
    annotations = {
        symbol("iothub-connection-device-id"): "device 7",
        symbol("x-opt-enqueued"): 9,
        symbol("x-exchange"): "amq.topic",
        symbol("x-routing-key"): "a.b",
    }
    for properties in (None, {"own": 1}):
        found = row(read(annotations=annotations, properties=properties))
        headers = dict(found["headers"])
        assert headers["iothub-connection-device-id"]["string"] == "device 7"
        assert headers["x-opt-enqueued"]["long"] == 9
        assert ("own" in headers) is (properties is not None)
        assert (found["exchange"], found["routing_key"]) == ("amq.topic", "a.b")


def test_a_delivery_count_is_a_column() -> None:
    found = read(delivery_count=3)
    assert found.delivery_count == 3
    assert row(found, True)["delivery_count"] == 3 and row(found, True)["redelivered"]


@pytest.mark.parametrize(
    ("body", "inferred", "wanted"),
    [
        (b"bytes", True, b"bytes"),
        ("text é", False, "text é".encode()),
        ("long " * 100, False, b"long " * 100),
        (b"b", False, b"b"),
        (None, False, b""),
        (b"", True, b""),
    ],
)
def test_a_body_of_one_string_is_its_text(body: Any, inferred: bool, wanted: bytes) -> None:
    found = row(read(body=body, inferred=inferred, id="1"))
    assert (found["body"], found["type"]) == (wanted, None)


def test_another_body_is_its_encoded_sections() -> None:
    found = row(read(body={"a": 1}, inferred=False))
    assert found["type"] == "amqp-1.0" and found["body"].startswith(b"\x00\x53\x77")


def test_a_message_that_cannot_be_read_is_a_row() -> None:
    found = row(read_message(bytearray(b"no message"), b"orders"))
    assert (found["body"], found["routing_key"]) == (b"no message", "orders")


def test_what_a_broker_changes_is_not_of_the_identity() -> None:
    for fields in ({"id": "1"}, {"properties": {"a": 1}}):
        first = read(**fields)
        again = read(
            delivery_count=2,
            ttl=5.0,
            annotations={symbol("x-opt-locked-until"): timestamp(9), symbol("x-opt-n"): 3},
            **fields,
        )
        assert first.identity == again.identity
        assert first.has_id is ("id" in fields)
        assert again.locked_until_ms == 9


def test_what_a_publisher_wrote_is() -> None:
    one = read(id="1", body=b"a")
    for other in (read(id="2", body=b"a"), read(id="1", body=b"b"), read(body=b"a")):
        assert other.identity != one.identity
    assert read(properties={"a": 1}).identity != read(properties={"a": 2}).identity


def test_a_number_of_the_broker_is_an_id() -> None:
    def numbered(number: int) -> MessageRead:
        return read(annotations={symbol("x-opt-sequence-number"): number})

    assert numbered(5).has_id
    assert numbered(5).identity == numbered(5).identity != numbered(6).identity


@given(st.binary(max_size=200))
def test_any_bytes_are_a_row(data: bytes) -> None:
    row(read_message(bytearray(data), b"q"))


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_message_cut_off_or_changed_is_a_row(at: int, octet: int) -> None:
    whole = encoded(
        id="1",
        properties={"a": 1, "list": Array(UNDESCRIBED, Data.INT, 1, 2)},
        annotations={symbol("iot"): 1},
        delivery_count=1,
    )
    row(read_message(whole[: at % len(whole)], b"q"))
    whole[at % len(whole)] = octet
    row(read_message(whole, b"q"))


@pytest.mark.parametrize("properties", [NONE, b"\x80\x80\x04texttoo-long"[:7] + b"\x01i"])
def test_a_subject_is_added_to_a_converted_message(properties: bytes) -> None:
    pieces = encode_message(FORM_AMQP091, properties, b"x", exchange=b"e", routing_key=b"k")
    made = with_subject(bytes(pieces[0]), b"news")
    message = Message()
    message.decode(b"".join(map(bytes, (made, *pieces[1:]))))
    assert (message.subject, bytes(message.body)) == ("news", b"x")
    assert with_subject(bytes(pieces[0]), b"") == bytes(pieces[0])
