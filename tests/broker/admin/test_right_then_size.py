"""A request's right comes first, then its size, and then the work."""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from broker.admin.world import ManagementWorld
from broker.clients10.test_connection import Client, attach_management, send
from warren_broker.admin import definitions
from warren_broker.clients10.connection import Connection10
from warren_wire.admin.requests import BODY_BYTES_MAX, BODY_PARTS_MAX
from warren_wire.admin.resources import ROUTES, find_route
from warren_wire.amqp10.proton import Message
from warren_wire.amqp10.request import RequestMessage
from warren_wire.errors import AccessRefused, InvalidArgument

UNTAGGED = {
    *("auth", "bindings", "epochs", "exchanges", "federation-links", "jobs", "queues", "shovels"),
    *("sinks", "user-limits", "whoami"),
}
"""Where permissions decide, or a handler with more than a tag."""


class World(ManagementWorld):
    users = {"ann": ()}
    grants = ()


def refused(tag: str, what: str) -> None:
    raise AccessRefused(f"user 'ann' may not {what}: the tag '{tag}' is needed")


def test_a_request_has_a_tag_where_permissions_do_not_decide() -> None:
    untagged = [one for one, _ in ROUTES.values() if one.tag is None]
    assert {one.pattern[0] for one in untagged} == UNTAGGED
    looks = {"federation-links", "jobs", "shovels", "user-limits", "whoami"}
    taking = {one.pattern[0] for one in untagged if one.method != "GET"}
    assert taking == UNTAGGED - looks
    large = {one.shown for one in untagged if one.bytes_max > BODY_BYTES_MAX}
    assert large == {
        "POST /queues/:queue/readers/:reader/settle",
        "POST /sinks/:sink/runs/:run/batches/:batch",
    }


def test_nothing_is_inflated_for_a_user_who_may_not_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """65 kB became 64 MiB while the request was parsed, for a user without any right."""
    inflated: list[bytes] = []

    def unpack(packed: bytes) -> bytes:
        inflated.append(packed)
        raise InvalidArgument("seen")

    monkeypatch.setattr(definitions, "unpack", unpack)
    bomb = zlib.compress(bytes(1 << 20))
    assert World("ann").ask("POST", "/definitions", bomb)[0] == 403
    assert inflated == []
    assert World("guest").ask("POST", "/definitions?dry-run=true", bomb)[0] == 400
    assert inflated == [bomb]


def answer_to(connection: Connection10, message: Message) -> Any:
    client = Client(connection)
    sender, receiver = attach_management(client)
    send(sender, message.encode())
    client.turn()
    reply = Message()
    reply.decode(receiver.recv(receiver.current.pending))
    return reply, client.requests[2:]


def test_no_body_is_decoded_before_the_right_and_the_size_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list of 65,000 nulls took a node 150 ms, for any user and any path."""
    decoded: list[int] = []
    value = RequestMessage.value
    monkeypatch.setattr(RequestMessage, "value", lambda self: decoded.append(1) or value(self))
    asking = Connection10(container="node", must_be=refused)
    reply, asked = answer_to(asking, Message(id=1, subject="PUT", address="/users/u", body={}))
    assert (reply.subject, asked, decoded) == ("403", [], [])
    assert "may not PUT /users/:user: the tag 'administrator'" in str(reply.body)
    many = Message(id=1, subject="PUT", address="/queues/q", inferred=True)
    many.body = {"arguments": {"x": [None] * BODY_PARTS_MAX}}
    reply, asked = answer_to(Connection10(container="node"), many)
    assert (reply.subject, asked, decoded) == ("400", [], [])
    assert f"over {BODY_PARTS_MAX:,} values" in str(reply.body)
    large = Message(id=1, subject="PUT", address="/queues/q", inferred=True)
    large.body = {"arguments": {"x": "a" * BODY_BYTES_MAX}}
    reply, asked = answer_to(Connection10(container="node"), large)
    assert (reply.subject, asked, decoded) == ("400", [], [])
    assert f"{BODY_BYTES_MAX:,} is the most for PUT /queues/:queue" in str(reply.body)
    few = Message(id=1, subject="PUT", address="/queues/q", inferred=True)
    few.body = {"arguments": {"x-max-length": 1}}
    client = Client(Connection10(container="node"))
    sender, _ = attach_management(client)
    send(sender, few.encode())
    client.turn()
    assert (len(client.requests[2:]), decoded) == (1, [1])


@pytest.mark.parametrize("value", [None, 5, [], [[1], {"a": [2, "b"]}], {"k": b"x"}, [[[[]]]] * 9])
def test_the_values_of_a_body_are_counted_as_they_are(value: Any) -> None:
    message, read = Message(body=value, inferred=True), RequestMessage()
    read.decode(message.encode())

    def count(one: Any) -> int:
        inner = [*one, *one.values()] if isinstance(one, dict) else one
        return 1 + sum(map(count, inner)) if isinstance(inner, list) else 1

    assert read.parts(1_000) == (count(value) if value is not None else read.parts(1_000))
    assert read.parts(3) == min(read.parts(1_000), 4)
    again = Message()
    again.decode(message.encode())
    assert read.value() == again.body


def test_a_route_is_checked_in_its_order() -> None:
    found = find_route("POST", "/definitions")
    counted = SimpleNamespace(times=0)

    def parts(most: int) -> int:
        counted.times += 1
        return most + 1

    with pytest.raises(AccessRefused):
        found.route.check(refused, 1 << 40, parts)
    with pytest.raises(InvalidArgument, match="bytes"):
        found.route.check(lambda tag, what: None, 1 << 40, parts)
    assert counted.times == 0
    with pytest.raises(InvalidArgument, match="values"):
        found.route.check(lambda tag, what: None, 1, parts)
