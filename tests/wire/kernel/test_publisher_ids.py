"""The ids of messages, as the kernel reads them from a block."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from hashlib import blake2b
from random import Random
from typing import Any

import pytest

from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import Field
from warren_wire.block.block import FORM_AMQP10, Block, encode
from warren_wire.kernel import Kernel


def block(headers: Sequence[dict[str, Any] | None], **others: Any) -> Block:
    """A block of messages with these headers; None: without properties."""
    heads = [
        b"" if some is None else properties.encode(properties.Properties(headers=some, **others))
        for some in headers
    ]
    return Block.decode(encode([b"x"] * len(heads), heads, (b"", b"q")))


def digest(name: bytes) -> bytes:
    """128 bits of an id."""
    return blake2b(name, digest_size=16).digest()


def test_neighbours_are_groups(both: Kernel) -> None:
    found = both.publisher_ids.publisher_ids(
        block(
            [
                {"x-deduplication-id": "a"},
                {"x-deduplication-id": b"b", "x-producer": "p", "x-sequence": 1},
                None,
                {"x-deduplication-id": "c"},
                {"x-producer": "p", "x-sequence": 7},
                {"x-producer": b"p", "x-sequence": 8},
                {"x-producer": "q", "x-sequence": 9},
                {"x-producer": "p", "x-sequence": 9},
                {"x-producer": "p", "x-sequence": 9},
                {},
                {"x-producer": "p", "x-sequence": 10},
            ]
        )
    )
    p, q = digest(b"p"), digest(b"q")
    assert found == [
        (0, 2, [digest(b"a"), digest(b"b")], b"", 0),
        (3, 1, [digest(b"c")], b"", 0),
        (4, 2, None, p, 7),
        (6, 1, None, q, 9),
        (7, 1, None, p, 9),
        (8, 1, None, p, 9),
        (10, 1, None, p, 10),
    ]


NUMBERS: list[Any] = [
    Field("b", 5),
    Field("B", 200),
    Field("s", 5),
    Field("u", 40_000),
    Field("I", 5),
]
NUMBERS += [Field("i", 1 << 31), Field("l", (1 << 63) - 1), Field("L", 5), 0]


@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_every_type_of_integer_is_a_number(both: Kernel, number: Any) -> None:
    data = block([{"x-producer": "p", "x-sequence": number}], content_type="t", priority=9)
    plain = number.value if isinstance(number, Field) else number
    assert both.publisher_ids.publisher_ids(data) == [(0, 1, None, digest(b"p"), plain)]


WITHOUT: list[dict[str, Any]] = [
    {"x-deduplication-id": 5},
    {"x-deduplication-id": ""},
    {"x-deduplication-id": True},
    {"x-deduplication-id": None},
    {"x-deduplication-id": {"a": "b"}},
    {"x-deduplication-id": ["a"]},
    {"x-producer": "p"},
    {"x-sequence": 5},
    {"x-producer": "", "x-sequence": 5},
    {"x-producer": 5, "x-sequence": 5},
    {"x-producer": "p", "x-sequence": "5"},
    {"x-producer": "p", "x-sequence": -1},
    {"x-producer": "p", "x-sequence": Field("b", -1)},
    {"x-producer": "p", "x-sequence": 5.0},
    {"x-producer": "p", "x-sequence": Decimal(5)},
    {"x-producer": "p", "x-sequence": True},
    {"x-deduplication-id": "a", "x-death": []},
    {"x-producer": "p", "x-sequence": 5, "x-death": [{"count": 1}]},
    {"x-deduplication-i": "a", "X-Producer": "p", "x-sequencf": 1},
]


@pytest.mark.parametrize("headers", WITHOUT, ids=str)
def test_other_values_are_no_ids(both: Kernel, headers: dict[str, Any]) -> None:
    assert both.publisher_ids.publisher_ids(block([headers])) == []


def test_malformed_properties_and_other_forms_have_no_ids(both: Kernel) -> None:
    good = properties.encode(properties.Properties(headers={"x-deduplication-id": "abc"}))
    for cut in range(len(good)):
        for raw in (good[:cut], good[:cut] + b"\xff" + good[cut + 1 :]):
            data = Block.decode(encode([b""], [raw], (b"", b"q")))
            for _, _, digests, _, _ in both.publisher_ids.publisher_ids(data):
                assert digests is not None and digests != [digest(b"abc")], raw
    sections = Block.decode(encode([b""], [good], (b"", b"q"), form=FORM_AMQP10))
    assert both.publisher_ids.publisher_ids(sections) == []


@pytest.mark.parametrize("seed", range(20))
def test_both_kernels_agree(pair: tuple[Kernel, Kernel], seed: int) -> None:
    random = Random(seed)
    some = [*WITHOUT, None, {"x-deduplication-id": "a"}, {"x-producer": "p", "x-sequence": 1}]
    some += [{"x-producer": "p", "x-sequence": 2, "a": 1}, {"b": "c", "x-deduplication-id": "a"}]
    data = block([random.choice(some) for _ in range(random.randint(1, 40))])
    compiled, interpreted = (one.publisher_ids.publisher_ids(data) for one in pair)
    assert compiled == interpreted
