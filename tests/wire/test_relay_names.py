"""The names of messages as headers, and off again."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren_broker.cluster.client.relayed import joined, relayed_command, without_names
from warren_machines.queue.relays.relay_commands import EnqueueRelayed
from warren_wire.amqp091 import properties
from warren_wire.kernel import MessageTable, Route, Selection
from warren_wire.relay_names import RELAYED, RelayedName, packed, split_name

NAME = RelayedName(1 << 62, 17, 9)
ROUTE = Route(b"", b"q", False)


@pytest.mark.parametrize("headers", [None, {"k": 1, "text": "v"}])
@pytest.mark.parametrize(
    "more", [{}, {"content_type": "a", "content_encoding": "b", "app_id": "c"}]
)
def test_a_name_is_taken_off_and_the_rest_is_as_it_was(
    headers: dict[str, Any] | None, more: dict[str, Any]
) -> None:
    named = pika.BasicProperties(headers={RELAYED: packed(NAME), **(headers or {})}, **more)
    plain = pika.BasicProperties(headers=headers, **more)
    raw, name = split_name(b"".join(named.encode()))
    assert name == NAME
    assert raw == b"".join(plain.encode())
    assert split_name(raw) == (raw, None)


def test_a_name_that_is_not_the_first_header_or_of_another_form_is_none() -> None:
    for headers in (
        {"k": 1, RELAYED: packed(NAME)},
        {RELAYED: packed(NAME)[:-1]},
        {RELAYED: "a" * 24},
    ):
        raw = b"".join(pika.BasicProperties(headers=headers).encode())
        assert split_name(raw) == (raw, None)
    assert split_name(b"\0\0") == (b"\0\0", None)


@given(st.binary(max_size=60))
def test_well_formed_properties_of_others_stay(value: bytes) -> None:
    raw = properties.encode(properties.Properties(headers={"x": value}))
    assert split_name(raw) == (raw, None)


def test_the_messages_of_a_run_are_told_apart_by_their_names() -> None:
    table = MessageTable()
    named = [b"".join(pika.BasicProperties(headers={RELAYED: packed(NAME)}).encode()), b"\0\0"]
    for at in range(5):
        table.append(ROUTE, named[at % 2], b"%d" % at, priority=at)
    plain, names = without_names(table, 1, 5)
    assert set(names) == {2, 4} and plain.count == 5
    assert [plain.body(at) for at in range(1, 5)] == [b"1", b"2", b"3", b"4"]
    assert [plain.priority(at) for at in range(1, 5)] == [1, 2, 3, 4]
    assert {plain.properties_of(at) for at in range(5)} == {b"\0\0"}
    assert without_names(plain, 0, 5) == (plain, {})


def test_the_command_has_the_names_in_the_order_of_the_block() -> None:
    names = {at: RelayedName(5, number, at) for at, number in enumerate((1, 2, 3, 7, 8))}
    assert relayed_command(5, [0, 1, 3, 4, 2], names) == EnqueueRelayed(
        5, 4, ((2, 1), (2, 7), (1, 3))
    )


@pytest.mark.parametrize(
    "answers, told",
    [
        ([(True, None), (True, None)], (True, None)),
        ([(True, None), (False, None)], (False, [2, 3])),
        ([(False, [1]), (True, None)], (False, [1])),
        ([(False, None), (False, None)], (False, None)),
    ],
)
def test_parts_of_a_part_are_answered_as_one(answers: list[Any], told: Any) -> None:
    table, heard = MessageTable(), []
    for _ in range(4):
        table.append(ROUTE, b"\0\0", b"")
    parts = [Selection(table, 0, 2), Selection(table, 2, 4)]
    of = joined(parts, lambda ok, refused: heard.append((ok, refused)))
    for place, (ok, refused) in enumerate(answers):
        assert not heard
        of(place)(ok, refused)
    assert heard == [told]
