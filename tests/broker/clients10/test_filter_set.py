"""What an attach's filters become: for the queue, and in the answer."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from proton import Described, symbol, ubyte, ulong

from tests.broker.clients10.test_connection import Client
from tests.broker.clients10.test_links import opened
from warren_broker.clients10 import link_requests as asks
from warren_broker.clients10.filter_set import APPLICATION_FILTER, SELECTOR, SQL_FILTER
from warren_machines.message_filter.definition import Reference, decode_filter
from warren_wire import errors


def attached(kind: Any, value: Any) -> tuple[Client, Any]:
    """A receiver that asks for one filter, and gets the queue's consent."""
    client = opened()
    client.answers[asks.Consume] = asks.Consuming(7)
    receiver = client.session.receiver("r")
    receiver.source.address = "/queues/q"
    receiver.source.filter.put_dict({symbol("f"): Described(kind, value)})
    receiver.open()
    client.turn()
    return client, receiver


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("text", Reference("k", "equal", "text")),
        ("&p:te", Reference("k", "prefix", "te")),
        (symbol("&s:xt"), Reference("k", "equal", "&s:xt")),
        (b"\xff\x00", Reference("k", "equal", "\xff\x00", True)),
        (b"", Reference("k", "equal", "", True)),
        (UUID(int=5), Reference("k", "equal", "\0" * 15 + "\5", True)),
        (ulong((1 << 64) - 1), Reference("k", "equal", (1 << 64) - 1)),
        (ubyte(3), Reference("k", "equal", 3)),
        (-2.5, Reference("k", "equal", -2.5)),
        (True, Reference("k", "equal", True)),
        (None, Reference("k", "any")),
    ],
)
def test_values_of_every_type_are_taken_and_answered(given: Any, expected: Reference) -> None:
    client, receiver = attached(symbol(APPLICATION_FILTER), {"k": given})
    (request,) = [one for one in client.requests if type(one) is asks.Consume]
    assert decode_filter(request.filter).application == (expected,)
    answer = receiver.remote_source.filter
    answer.rewind()
    answer.next()
    (kept,) = answer.get_object().values()
    found = kept.value["k"]
    assert (bytes(found) if isinstance(found, memoryview) else found) == given


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (APPLICATION_FILTER, {"k": [1]}, "'k' is a list; give a number"),
        (APPLICATION_FILTER, {"k": "&x:1"}, "& begins a modifier"),
        (SQL_FILTER, b"k = 1", "give a string"),
        (SQL_FILTER, "(" * 150 + "k", "missing"),
        (SQL_FILTER, "k = " + "9" * 5_000, "5004 characters, 4096 is the limit"),
        (SELECTOR, "a BETWEEN 1 AND 2", "BETWEEN is not supported"),
    ],
)
def test_what_is_no_filter_ends_the_link_in_words(kind: str, value: Any, words: str) -> None:
    client, receiver = attached(symbol(kind), value)
    assert receiver.remote_condition.name == errors.InvalidArgument.condition
    assert words in receiver.remote_condition.description
    assert not [one for one in client.requests if type(one) is asks.Consume]
