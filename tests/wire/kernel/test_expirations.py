"""An expiration is read by one rule, wherever a message passes: digits, and perhaps a plus sign."""

from __future__ import annotations

import re
from random import Random

import pytest
from proton import Message, symbol

from tests.wire.kernel import frames as f
from tests.wire.kernel.conftest import loaded
from warren_broker.access import message_checks
from warren_broker.cluster.client.forwarding import restored
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import Field, Timestamp
from warren_wire.kernel import BAD_EXPIRATION, TTL_NONE, Kernel, MessageTable, Route
from warren_wire.kernel.properties import examine

TEXTS = (
    *("", "0", "7", "+7", "++7", "-7", "-0", "+", " 7", "7 ", "7\n", "7_0", "0x7", "7.0", "\u0667"),
    *("4294967295", "4294967296", "+4294967295", "9" * 11, "9" * 200, "0" * 200, "+" + "9" * 200),
    *("0" * 11 + "9" * 25, "0" * 30 + "5", "00000000000042", "\u00b2", "\uff17", "1\x00", "\udcff"),
)


def expected(text: str) -> int:
    """The rule, said in another way; -1: no expiration."""
    if re.fullmatch(r"\+?[0-9]+", text, re.ASCII) is None or "\n" in text:
        return -1
    value = int(text)
    return value if value < 1 << 32 else -1


def drawn() -> list[str]:
    """Texts at random, mostly of what is near to a number."""
    rng = Random(5)
    return ["".join(rng.choices("+-0019 \u0660_", k=rng.randrange(1, 14))) for _ in range(400)]


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
def test_all_readers_agree(mode: str) -> None:
    kernel = loaded(mode)
    for text in (*TEXTS, *drawn()):
        raw = text.encode("utf-8", "surrogateescape")
        value = expected(text)
        row = kernel.deliver.examine(f.properties(expiration=raw))
        assert bool(row >> 40 & BAD_EXPIRATION) is (value < 0), text
        assert row & TTL_NONE == (TTL_NONE if value < 0 else min(value, TTL_NONE - 1)), text
        assert sent_ttl(kernel, raw) == (None if value < 0 else value), text
        assert annotated(kernel, text) == (None if value < 0 else str(value)), text
        assert death_ttl(kernel, text) == (None if value < 0 else value), text
        assert stored_ttl(raw) == row & TTL_NONE, text
        if value < 0:
            assert message_checks._expiration_flaw(text)[:6] in ("no_int", "{lefto", "{value")


def written(kernel: Kernel, raw: bytes) -> Message:
    """The AMQP 1.0 message that is sent of stored properties."""
    head = kernel.sections_out.write_sections(raw, b"", b"", (-1, -1, True, 0), {}, False)
    made = Message()
    made.decode(bytes(head) + b"\x00\x53\x75\xa0\x00")
    return made


def sent_ttl(kernel: Kernel, expiration: bytes) -> int | None:
    """The ttl in the header of the message as an AMQP 1.0 client gets it."""
    ttl = written(kernel, f.properties(expiration=expiration)).ttl
    head = kernel.sections_out.write_sections(
        f.properties(expiration=expiration), b"", b"", (-1, -1, True, 0), {}, False
    )
    has_none = bytes(head)[6:9] == b"\x42\x40\x40"
    return None if has_none else round(ttl * 1000)


def annotated(kernel: Kernel, text: str) -> str | None:
    """The expiration of a message that has it as the annotation x-basic-expiration."""
    if "\udcff" in text:
        return None
    made = Message(body=b"", inferred=True, annotations={symbol("x-basic-expiration"): text})
    found = kernel.sections_in.read_sections(memoryview(made.encode()))
    return properties.decode(found.properties).expiration


def death_ttl(kernel: Kernel, text: str) -> int | None:
    """The ttl in the annotation x-opt-deaths of a dead letter that had this expiration."""
    death = {"count": Field("l", 1), "reason": "expired", "queue": "q", "time": Timestamp(7)}
    more = {"exchange": "", "routing-keys": ["k"], "original-expiration": text}
    raw = properties.encode(properties.Properties(headers={"x-death": [{**death, **more}]}))
    deaths = (written(kernel, raw).annotations or {})[symbol("x-opt-deaths")]
    ttl = dict(deaths.elements[0]).get(symbol("ttl"))
    return None if ttl is None else int(ttl)


def stored_ttl(expiration: bytes) -> int:
    """The time to live of a message that an exchange has kept."""
    table = MessageTable()
    raw = f.properties(expiration=expiration)
    table.append(Route(b"x", b"k", False), raw, b"", flags=examine(raw) >> 40)
    return restored(table).ttl_ms(0)


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("+", "no_integer"),
        ("+5x", '{leftover_string,"x"}'),
        ("+99999999999", "{value_too_large,99999999999}"),
        ("00099999999999", "{value_too_large,99999999999}"),
        ("-7", "{value_negative,-7}"),
        ("\u0667", "no_integer"),
    ],
)
def test_a_flaw_is_said_as_erlang_reads_numbers(text: str, flaw: str) -> None:
    assert message_checks._expiration_flaw(text) == flaw
