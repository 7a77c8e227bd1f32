"""Dead letters with what consumers have annotated their messages with."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from proton import Message, symbol

from warren_broker.amqp091.wire import properties as codec
from warren_broker.amqp091.wire.fields import Field
from warren_broker.amqp10.message.received import read_message
from warren_broker.amqp10.message.sent import encode_message
from warren_broker.cluster.client.letter_annotations import annotate
from warren_broker.queue.modify_command import Pairs


def pairs(**values: Any) -> Pairs:
    """Annotations as a queue keeps them; `_` for `-`."""
    return tuple(
        sorted(
            (name.replace("_", "-"), msgspec.msgpack.encode(each)) for name, each in values.items()
        )
    )


SAID = pairs(x_opt_text="busy", x_opt_number=-7, x_opt_yes=True, x_opt_raw=b"\xff\x00")
SHOWN = {
    symbol("x-opt-text"): "busy",
    symbol("x-opt-number"): -7,
    symbol("x-opt-yes"): True,
    symbol("x-opt-raw"): b"\xff\x00",
}


def sent(raw: bytes, headers: dict[str, Any]) -> Message:
    """The message with these headers as a consumer over AMQP 1.0 gets it."""
    changed = codec.replace(raw, headers=headers)
    found = Message()
    parts = encode_message(0, changed, b"body", exchange=b"", routing_key=b"q")
    found.decode(b"".join(bytes(part) for part in parts))
    return found


def test_a_message_over_0_9_1_gets_headers() -> None:
    headers: dict[str, Any] = {"k": 1, "x-opt-text": "before"}
    annotate(headers, SAID)
    assert headers == {
        "k": 1,
        "x-opt-text": "busy",
        "x-opt-number": Field("l", -7),
        "x-opt-yes": True,
        "x-opt-raw": Field("x", b"\xff\x00"),
    }
    found = sent(codec.encode(codec.Properties(headers={"k": 1})), headers)
    assert {key: found.annotations[key] for key in SHOWN} == SHOWN
    assert found.properties == {"k": 1}


@pytest.mark.parametrize("own", [{"x-opt-text": "before", "x-own": 1.5}, {"x-own": symbol("s")}])
def test_a_message_over_1_0_keeps_its_own_annotations_and_gets_the_others(
    own: dict[str, Any],
) -> None:
    """Also where its sections were kept as they came, because no header has such values."""
    message = Message(body=b"body", inferred=True)
    message.annotations = {symbol(name): value for name, value in own.items()}
    message.properties = {"app": 3}
    raw = read_message(memoryview(message.encode())).properties
    headers = dict(codec.headers(raw))
    annotate(headers, SAID)
    found = sent(raw, headers)
    assert {key: found.annotations[key] for key in SHOWN} == SHOWN
    assert found.annotations[symbol("x-own")] == own["x-own"]
    assert found.properties == {"app": 3}


def test_names_of_the_broker_are_left_alone() -> None:
    headers: dict[str, Any] = {"x-death": []}
    forged = {
        "x-death": 1,
        "x-delivery-count": 5,
        "x-first-death-queue": "f",
        "x-warren-sections": b"",
    }
    forged["x-" + "n" * 300] = 1
    annotate(headers, tuple((name, msgspec.msgpack.encode(each)) for name, each in forged.items()))
    assert headers == {"x-death": []}
