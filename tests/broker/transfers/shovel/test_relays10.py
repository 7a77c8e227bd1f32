"""The ends of a relay over AMQP 1.0: names in delivery tags, and what stays with the relay."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery, symbol

from tests.broker.transfers.shovel.test_end10 import BARE, Peer, Told, failures, source
from warren_broker.transfers.shovel.end10 import Source10
from warren_broker.transfers.shovel.received import Received10
from warren_wire.amqp10.deliveries import begin, handle_of, tag_of
from warren_wire.relay_names import RelayedName, delivered_tag, name_in_relayed_tag

__all__ = ["failures", "source"]


def as_relay(source: Source10, limit: int) -> tuple[Peer, list[Received10]]:
    """A source that consumes as a relay."""
    peer, found = Peer(source), []
    take: Any = found.append
    source._opened = lambda: source.consume(limit, take, lambda: None, "a relay")
    peer.connect()
    assert peer.link.remote_properties == {symbol("x-relay"): "a relay"}
    return peer, found


def send_named(peer: Peer, *numbers: int) -> None:
    """Deliver messages with names of origin 5."""
    for number in numbers:
        begin(handle_of(peer.link), delivered_tag(900 + number, 5, number))
        peer.link.stream(BARE)
        peer.link.advance()
    peer.turn()


def test_a_relay_reads_names_in_tags_and_leaves_what_it_holds_to_itself(source: Source10) -> None:
    """Released, it would be any consumer's, though it may be at the destination."""
    peer, found = as_relay(source, 3)
    send_named(peer, 7, 8)
    assert [(each.origin, each.number) for each in found] == [(5, 7), (5, 8)]
    assert [each.as_091().number for each in found] == [7, 8]
    source.acknowledge(1, False)
    source.close()
    peer.turn()
    assert peer.outcomes == [(Delivery.ACCEPTED, False)] and peer.closed


def test_a_relay_that_stops_is_given_what_comes_and_returns_it(source: Source10) -> None:
    peer, found = as_relay(source, 2)
    peer.drains = False
    source.stop(lambda: None)
    send_named(peer, 1)
    assert len(found) == 1 and peer.outcomes == []
    source.return_(1)
    peer.turn()
    assert peer.outcomes == [(Delivery.RELEASED, False)]


def test_a_delivery_that_a_relay_fails_comes_back_with_its_connection(source: Source10) -> None:
    """It counts there, and stays with the relay; a detach would not count."""
    peer, _ = as_relay(source, 1)
    send_named(peer, 1)
    source.fail_held()
    source.close()
    peer.turn()
    assert peer.outcomes == [] and peer.ended is None and peer.closed


def test_a_destination_says_names_in_tags(failures: list[str]) -> None:
    told = Told(failures)
    told.peer.link.flow(5)
    told.peer.turn()
    name = RelayedName(5, 8, 7)
    told.target.publish(1, told.target.prepare(Received10(1, BARE)), name)
    told.target.publish(2, told.target.prepare(Received10(2, BARE)), None)
    told.peer.turn()
    first, second = told.peer.received()
    assert name_in_relayed_tag(tag_of(handle_of(first))) == name
    assert name_in_relayed_tag(tag_of(handle_of(second))) is None
    for delivery in (second, first):
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
    told.peer.turn()
    assert sorted(number for answers in told.accepted for number, _ in answers) == [1, 2]


@pytest.mark.parametrize("offered", [True, False])
def test_a_peer_knows_relays_when_it_says_so(source: Source10, offered: bool) -> None:
    peer = Peer(source)
    peer.capabilities = ["warren_relays"] if offered else []
    source._opened = lambda: None
    assert not source.knows_relays
    peer.connect()
    assert source.knows_relays is offered


@pytest.mark.parametrize(
    ("header", "redelivered"),
    [
        (b"", True),
        (b"\x00\x53\x70\x45", True),
        (b"\x00\x53\x70\xc0\x05\x04\x40\x40\x40\x41", False),
    ],
)
def test_a_message_is_redelivered_unless_it_is_the_first_acquirers(
    header: bytes, redelivered: bool
) -> None:
    assert Received10(1, header + BARE).redelivered is redelivered
