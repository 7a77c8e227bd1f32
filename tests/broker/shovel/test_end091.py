"""What a destination over AMQP 0.9.1 is sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.amqp091.wire import properties as codec
from warren_broker.pika_properties import MessageProperties
from warren_broker.relay_names import RELAYED, RelayedName, packed, split_name
from warren_broker.shovel.definition import parse_shovel
from warren_broker.shovel.end091 import Target091
from warren_broker.shovel.endpoint import OwnNode
from warren_broker.shovel.received import Received091
from warren_broker.shovel.stamps import Stamps

FORGED = packed(RelayedName(5, 7, 9))
NAME = RelayedName(1 << 62, 17, 9)


@pytest.mark.parametrize("name", [None, NAME])
@pytest.mark.parametrize("others", [{}, {"k": 1}])
def test_a_name_that_a_client_has_given_is_not_passed_on(
    name: RelayedName | None, others: dict[str, Any]
) -> None:
    """The destination takes names from a shovel's connection, whatever client wrote them."""
    value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
    made = parse_shovel("/", "s", value)
    stamps = Stamps(made, "here", made.source.uris[0], made.destination.uris[0])
    own = OwnNode("amqp", "127.0.0.1", 5672, 16 << 20)
    nothing: Any = lambda *args: None  # noqa: E731
    target = Target091(stamps, own, "shovel s", nothing, True, nothing, nothing)
    sent: list[Any] = []
    target.channel = SimpleNamespace(basic_publish=lambda *args, **more: sent.append(args[3]))
    given = codec.encode(codec.Properties(headers={RELAYED: FORGED, **others}))
    received = Received091(1, "", "a", False, MessageProperties().decode(given), b"body")
    target.publish(1, target.prepare(received), name)
    raw, said = split_name(b"".join(sent[0].encode()))
    assert said == name
    assert codec.decode(raw).headers == (others or None)
