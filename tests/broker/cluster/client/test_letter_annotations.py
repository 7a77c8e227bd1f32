"""Dead letters with what consumers have annotated their messages with."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from proton import UNDESCRIBED, Array, Data, Message, int32, symbol

from warren_broker.cluster.client.dead_letters import annotate
from warren_machines.queue.annotations import read_annotations
from warren_machines.queue.commands import Pairs
from warren_wire.amqp091 import properties as codec
from warren_wire.amqp091.fields import Field
from warren_wire.amqp10.message.received import read_message
from warren_wire.amqp10.message.sent import encode_message
from warren_wire.kernel import split_sections
from warren_wire.kernel.properties import SECTIONS


def pairs(**values: Any) -> Pairs:
    """Annotations as a queue keeps them; `_` for `-`."""
    said = Data()
    said.put_object({symbol(name.replace("_", "-")): each for name, each in values.items()})
    return read_annotations(bytes(said.encode()))[0]


PLAIN = codec.encode(codec.Properties(headers={"k": 1}))
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
    annotate(headers, SAID, PLAIN)
    assert headers == {
        "k": 1,
        "x-opt-text": "busy",
        "x-opt-number": Field("l", -7),
        "x-opt-yes": True,
        "x-opt-raw": Field("x", b"\xff\x00"),
    }
    found = sent(PLAIN, headers)
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
    annotate(headers, SAID, raw)
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
    annotate(
        headers,
        tuple((name, msgspec.msgpack.encode(each)) for name, each in forged.items()),
        PLAIN,
    )
    assert headers == {"x-death": []}


# ------------------------------------------------------------------ lists, maps and arrays

STRINGS = Array(UNDESCRIBED, Data.STRING, "foo", "bar")
TYPED: dict[str, Any] = {
    "x-opt-array": STRINGS,
    "x-opt-list": ["one", int32(2)],
    "x-opt-map": {"k1": "v1"},
    "x-opt-none": None,
}
NESTED = pairs(x_opt_text="busy", **TYPED)
OTHERS: dict[str, dict[str, Any]] = {
    "none": {},
    "as headers": {"x-own": "s", "x-opt-list": "before"},
    "kept": {"x-own": symbol("s"), "x-opt-list": ["before"]},
}


def shows_nested(found: Message) -> None:
    """What a consumer over 1.0 gets of NESTED."""
    assert found.annotations[symbol("x-opt-text")] == "busy"
    for name, value in TYPED.items():
        assert found.annotations[symbol(name)] == value, name


@pytest.mark.parametrize("own", OTHERS.values(), ids=OTHERS)
def test_values_that_are_no_headers_are_annotations_of_a_message_over_1_0(
    own: dict[str, Any],
) -> None:
    """Before: there were none."""
    message = Message(body=b"body", inferred=True, subject="about")
    message.annotations = {symbol(name): value for name, value in own.items()}
    message.properties = {"app": 3}
    raw = read_message(memoryview(message.encode())).properties
    headers = dict(codec.headers(raw))
    annotate(headers, NESTED, raw)
    found = sent(raw, headers)
    shows_nested(found)
    assert found.annotations.get(symbol("x-own")) == own.get("x-own")
    assert (found.properties, found.subject, found.body) == ({"app": 3}, "about", b"body")


def test_values_that_are_no_headers_are_annotations_of_a_message_over_0_9_1() -> None:
    """Its headers stay what they are, and are shown beside them over both protocols."""
    raw = codec.encode(
        codec.Properties(
            headers={"k": 1, "x-own": 2.5, "x-opt-list": "before", "CC": ["more"]},
            correlation_id="c",
            user_id="guest",
            app_id="a",
        )
    )
    headers: dict[str, Any] = dict(codec.headers(raw))
    annotate(headers, NESTED, raw)
    assert next(iter(headers)) == SECTIONS, "it is the first, where readers expect it"
    assert {name: codec_value(headers[name]) for name in headers if name != SECTIONS} == {
        "k": 1,
        "x-own": 2.5,
        "CC": ["more"],
        "x-opt-text": "busy",
    }
    found = sent(raw, headers)
    shows_nested(found)
    assert found.annotations[symbol("x-own")] == 2.5
    assert found.annotations[symbol("x-cc")] == ["more"]
    assert found.properties == {"k": 1}
    assert (found.correlation_id, found.user_id, found.group_id) == ("c", b"guest", "a")
    whole = codec.replace(raw, headers=headers)
    assert SECTIONS not in codec.headers(split_sections(whole)[0]), "no 0.9.1 client sees it"


def test_a_second_death_adds_to_what_the_first_has_kept() -> None:
    headers: dict[str, Any] = {"k": 1}
    annotate(headers, NESTED, PLAIN)
    raw = codec.replace(PLAIN, headers=headers)
    again: dict[str, Any] = dict(codec.headers(raw))
    annotate(again, pairs(x_opt_map=["now", "a", "list"], x_opt_more=5), raw)
    found = sent(raw, again)
    assert found.annotations[symbol("x-opt-map")] == ["now", "a", "list"]
    assert found.annotations[symbol("x-opt-more")] == 5
    assert found.annotations[symbol("x-opt-array")] == STRINGS
    assert found.annotations[symbol("x-opt-text")] == "busy"


def test_the_brokers_own_annotations_are_those_of_the_letter() -> None:
    headers: dict[str, Any] = {"x-first-death-queue": "q", "x-delivery-count": Field("l", 2)}
    raw = codec.encode(codec.Properties(headers=headers))
    annotate(headers, NESTED, raw)
    headers["x-first-death-queue"] = "other"
    found = sent(raw, headers)
    assert found.annotations[symbol("x-first-death-queue")] == "other"
    assert found.annotations[symbol("x-exchange")] == ""
    assert found.annotations[symbol("x-routing-key")] == "q"


def codec_value(field: Any) -> Any:
    """A header's value as Python has it."""
    value = field.value if isinstance(field, Field) else field
    return [codec_value(each) for each in value] if isinstance(value, list) else value
