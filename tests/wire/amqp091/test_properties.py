"""Properties against pamqp's codec."""

from __future__ import annotations

import datetime

import pamqp.commands
import pytest

from tests.message_properties import EVERY
from warren_wire.amqp091 import fields, properties
from warren_wire.amqp091.properties import Properties
from warren_wire.errors import Refusal, SyntaxRefused

ALL = Properties(
    **EVERY,
    headers={"a": 1, "x": ["b"]},
    timestamp=1_577_836_800,
    type="t",
    cluster_id="cl",
)


def test_same_as_pamqp() -> None:
    raw = properties.encode(ALL)
    theirs = pamqp.commands.Basic.Properties()
    theirs.unmarshal(int.from_bytes(raw[:2], "big"), raw[2:])
    for name in properties.NAMES:
        expected = getattr(ALL, name)
        if name == "timestamp":
            expected = datetime.datetime.fromtimestamp(expected, datetime.UTC)
        shown = {"type": "message_type"}.get(name, name)
        if name != "cluster_id":
            assert getattr(theirs, shown) == expected, name


@pytest.mark.parametrize("name", properties.NAMES)
def test_each_alone(name: str) -> None:
    alone = Properties(**{name: getattr(ALL, name)})
    raw = properties.encode(alone)
    assert int.from_bytes(raw[:2], "big") == properties.flag(name)
    assert properties.decode(raw) == alone


def test_all_and_none() -> None:
    assert properties.decode(properties.encode(ALL)) == ALL
    assert properties.encode(Properties()) == properties.NONE
    assert properties.decode(properties.NONE) == Properties()


def test_replace_keeps_the_rest_byte_for_byte() -> None:
    raw = properties.encode(ALL)
    changed = properties.replace(raw, reply_to="elsewhere", expiration=None)
    back = properties.decode(changed)
    assert back.reply_to == "elsewhere"
    assert back.expiration is None
    assert properties.replace(changed, reply_to="r", expiration="60000") == raw
    added = properties.replace(properties.NONE, priority=3)
    assert properties.decode(added) == Properties(priority=3)


def test_headers_keep_their_types() -> None:
    odd = {"n": fields.Field("s", 5), "w": fields.Field("I", 5)}
    raw = properties.encode(Properties(headers=odd))
    assert properties.headers(raw) == odd
    assert properties.encode(Properties(headers=properties.headers(raw))) == raw


def test_refused() -> None:
    raw = properties.encode(ALL)
    for end in range(len(raw)):
        with pytest.raises(Refusal):
            properties.decode(raw[:end])
    with pytest.raises(SyntaxRefused, match="after the last"):
        properties.decode(raw + b"\0")
    with pytest.raises(SyntaxRefused, match="0x0001"):
        properties.decode(b"\x00\x01")
