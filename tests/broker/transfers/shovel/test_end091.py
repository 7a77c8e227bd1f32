"""What a destination over AMQP 0.9.1 is sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.transfers.shovel.end091 import Target091
from warren_broker.transfers.shovel.received import Received091
from warren_broker.transfers.shovel.sections import Stamps
from warren_wire.amqp091 import properties as codec
from warren_wire.links.definition import parse_shovel
from warren_wire.relay_names import RELAYED, RelayedName, packed, split_name
from warren_wire.sessions.locate import OwnNode
from warren_wire.sessions.pika_properties import MessageProperties

FORGED = packed(RelayedName(5, 7, 9))
NAME = RelayedName(1 << 62, 17, 9)


def published(
    headers: dict[str, Any], name: RelayedName | None, **destination: str
) -> tuple[dict[str, Any] | None, RelayedName | None]:
    """Return the headers that a destination is sent, and the name."""
    value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", **destination}
    made = parse_shovel("/", "s", value)
    stamps = Stamps(made, "here", made.source.uris[0], made.destination.uris[0])
    own = OwnNode("amqp", "127.0.0.1", 5672, 16 << 20)
    nothing: Any = lambda *args: None  # noqa: E731
    target = Target091(stamps, own, "shovel s", nothing, True, nothing, nothing)
    sent: list[Any] = []
    target.channel = SimpleNamespace(basic_publish=lambda *args, **more: sent.append(args[3]))
    given = codec.encode(codec.Properties(headers=headers))
    received = Received091(1, "", "a", False, MessageProperties().decode(given), b"body")
    target.publish(1, target.prepare(received), name)
    raw, said = split_name(b"".join(sent[0].encode()))
    return codec.decode(raw).headers, said


@pytest.mark.parametrize("name", [None, NAME])
@pytest.mark.parametrize("others", [{}, {"k": 1}])
def test_a_name_that_a_client_has_given_is_not_passed_on(
    name: RelayedName | None, others: dict[str, Any]
) -> None:
    """The destination takes names from a shovel's connection, whatever client wrote them."""
    sent = published({RELAYED: FORGED, **others}, name, **{"dest-queue": "b"})
    assert sent == (others or None, name)


@pytest.mark.parametrize("others", [{}, {"k": 1}])
def test_a_message_for_one_queue_has_no_further_keys(others: dict[str, Any]) -> None:
    """Before, the queues that its publisher had named in CC got it a second time."""
    given = {"CC": ["c"], **others}
    assert published(given, None, **{"dest-queue": "b"})[0] == (others or None)
    assert published(given, None, **{"dest-exchange": "x"})[0] == given
    by_key = {"dest-exchange": "", "dest-exchange-key": "b"}
    assert published({"BCC": ["c"], **given}, None, **by_key)[0] == (others or None)


@pytest.mark.parametrize("destination", [{"dest-queue": "b"}, {"dest-exchange": "x"}])
def test_headers_that_are_no_keys_are_left_out(destination: dict[str, str]) -> None:
    """Before, any broker closed the channel for the property of a message over AMQP 1.0."""
    assert published({"CC": "c", "BCC": 5, "k": 1}, None, **destination)[0] == {"k": 1}
