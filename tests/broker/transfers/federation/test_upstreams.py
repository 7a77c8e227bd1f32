"""Which upstreams a queue has, what a link transfers, and when there is demand."""

from __future__ import annotations

from typing import Any

import pytest

from machines.queue.world import Queue, config
from warren_broker.admin.parameters import _put_parameter
from warren_broker.transfers.federation.exchange_rules import travelled
from warren_broker.transfers.federation.links import has_demand
from warren_machines.metadata.records import Parameter
from warren_machines.metadata.upstreams import (
    Upstream,
    check_upstream,
    exchange_transfer_of,
    transfer_of,
    upstreams_of,
)
from warren_machines.queue.commands import Cancel, Checkout, Get, Settle
from warren_machines.queue.filters.filter_commands import Judge, Judged
from warren_wire.admin.resources import parse_request
from warren_wire.errors import InvalidArgument
from warren_wire.links.definition import parse_shovel
from warren_wire.policy_keys import check_policy

OWN = "amqp://u:p@/%2F"


def parameters(
    sets: dict[str, list[dict[str, Any]]] | None = None, **upstreams: dict[str, Any]
) -> dict[tuple[str, str], Parameter]:
    """The parameters of a vhost."""
    given = [("federation-upstream", name, value) for name, value in upstreams.items()]
    given += [("federation-upstream-set", name, value) for name, value in (sets or {}).items()]
    return {(kind, name): Parameter("/", kind, name, value) for kind, name, value in given}


def names(found: list[Upstream]) -> list[str]:
    """The names of upstreams."""
    return [one.name for one in found]


def test_a_policy_names_one_upstream_a_set_or_a_pattern() -> None:
    one, other = {"uri": "amqp://one", "prefetch-count": 7}, {"uri": "amqp://other"}
    several = {"some": [{"upstream": "one", "queue": "q2"}, {"upstream": "missing"}]}
    known = parameters(several, one=one, other=other)
    assert names(upstreams_of(known, {"federation-upstream": "other"})) == ["other"]
    assert upstreams_of(known, {"federation-upstream": "missing"}) == []
    assert names(upstreams_of(known, {"federation-upstream-pattern": "^o"})) == ["one", "other"]
    assert names(upstreams_of(known, {"federation-upstream-pattern": "the"})) == ["other"]
    assert names(upstreams_of(known, {"federation-upstream-set": "all"})) == ["one", "other"]
    assert upstreams_of(known, {"federation-upstream-set": "unknown"}) == []
    assert upstreams_of(known, {"max-length": 1}) == []
    (found,) = upstreams_of(known, {"federation-upstream-set": "some"})
    assert (found.queue("q"), found.value["prefetch-count"]) == ("q2", 7)


def test_the_defaults_of_a_link_are_those_of_rabbitmq() -> None:
    plain = parse_shovel("/", "up", transfer_of(Upstream("up", {"uri": "amqp://far"}), "q", OWN))
    assert (plain.source.queue, plain.destination.queue) == ("q", "q")
    assert (plain.ack_mode, plain.prefetch, plain.reconnect_delay_s) == ("on-confirm", 1_000, 5)
    assert plain.consumer_args == {"x-priority": -1}
    given = {"uri": ["amqp://a", "amqp://b"], "ack-mode": "no-ack", "prefetch-count": 3}
    made = parse_shovel(
        "/", "up", transfer_of(Upstream("up", {**given, "reconnect-delay": 9}), "q", OWN)
    )
    assert (made.ack_mode, made.prefetch, made.reconnect_delay_s) == ("no-ack", 3, 9)
    assert [one.host for one in made.source.uris] == ["a", "b"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"uri": "http://far"}, "^uri is not a valid URI"),
        ({"uri": ["amqp://far", "amqp://far?colour=1"]}, "^uri has the option 'colour'"),
        ({"uri": "amqp://far", "prefetch-count": 65_536}, "^prefetch-count=65536: a number from 1"),
        ({"uri": "amqp://far", "prefetch-count": 0}, "^prefetch-count=0: a number from 1"),
        ({"uri": "amqp://far", "reconnect-delay": 0.5}, "^reconnect-delay=0.5: a number from 0"),
    ],
)
def test_an_upstream_with_which_no_link_could_run_is_refused_when_it_is_set(
    value: dict[str, Any], words: str
) -> None:
    path = "/parameters/federation-upstream/%2F/up"
    asked = parse_request("PUT", path, {"value": value})
    with pytest.raises(InvalidArgument, match=words):
        _put_parameter(None, asked, None)  # type: ignore[arg-type]


def test_an_upstream_may_be_this_cluster_but_not_the_queue_itself() -> None:
    here = {"uri": "amqp://", "prefetch-count": 65_535}
    check_upstream("up", here)
    for value in (here, {"uri": ["amqp://far", "amqp:///%2F"]}):
        with pytest.raises(InvalidArgument, match="the source and the destination are the same"):
            parse_shovel("/", "up", transfer_of(Upstream("up", value), "q", OWN))
    for value in ({**here, "queue": "other"}, {"uri": "amqp:///elsewhere"}):
        parse_shovel("/", "up", transfer_of(Upstream("up", value), "q", OWN))


def test_the_header_keeps_one_entry_for_each_upstream_queue() -> None:
    first = travelled(None, "amqp://a/%2F", "q", False)
    assert [(one["uri"], one["visit-count"]) for one in first] == [("amqp://a/%2F", 1)]
    second = travelled(first, "amqp://b/%2F", "q", True)
    assert [one["uri"] for one in second] == ["amqp://b/%2F", "amqp://a/%2F"]
    third = travelled(second, "amqp://a/%2F", "q", False)
    assert [(one["uri"], one["visit-count"]) for one in third] == [
        ("amqp://a/%2F", 2),
        ("amqp://b/%2F", 1),
    ]
    assert len(travelled("hostile", "amqp://a/%2F", "q", False)) == 1
    assert len(travelled([1, {"uri": 5}], "amqp://a/%2F", "q", False)) == 2


def test_demand_is_a_consumer_with_room_and_an_empty_queue() -> None:
    queue = Queue(config())
    assert not has_demand(queue.state)
    queue.do(Checkout(1, 1, "c", prefetch=2))
    assert has_demand(queue.state)
    queue.put(2)
    assert not has_demand(queue.state), "its prefetch is used up"
    queue.do(Settle(1, ((0, 0),)))
    assert has_demand(queue.state)
    queue.put(2)
    assert not has_demand(queue.state), "a message is ready"
    queue.do(Settle(1, ((1, 2),)))
    queue.do(Cancel(1))
    assert not has_demand(queue.state)


def test_a_consumer_with_a_filter_has_demand_while_nothing_at_all_is_ready() -> None:
    queue = Queue(config())
    queue.do(Checkout(1, 1, "c", prefetch=2, filter=b"none"))
    assert has_demand(queue.state)
    queue.put(1)
    (one,) = queue.state.filters
    said = Judged(one.id, one.judged, queue.state.filters.newest)
    queue.do(Judge((said,)), uplink=8)
    assert queue.got(1) == [] and not has_demand(queue.state)


def test_links_of_other_brokers_and_basic_get_are_no_demand() -> None:
    queue = Queue(config())
    queue.do(Checkout(1, 1, "link", prefetch=10, priority=-1))
    assert not has_demand(queue.state)
    queue.do(Get(2, 1, False))
    assert not has_demand(queue.state)
    queue.do(Checkout(3, 1, "c", prefetch=10))
    assert has_demand(queue.state)


@pytest.mark.parametrize(
    ("definition", "apply_to", "words"),
    [
        ({"federation-upstream": "u", "federation-upstream-set": "s"}, "queues", "together"),
        ({"federation-upstream-pattern": "("}, "queues", "federation-upstream-pattern"),
        ({"federation-upstream": 1}, "queues", "is not a valid federation upstream"),
    ],
)
def test_a_policy_that_cannot_be_honoured_is_refused(
    definition: dict[str, Any], apply_to: str, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        check_policy("p", "^q", definition, 0, apply_to, operator=False)
    with pytest.raises(InvalidArgument, match="not recognised"):
        check_policy("p", "^q", {"federation-upstream": "u"}, 0, "queues", operator=True)


@pytest.mark.parametrize("name", ["n" * 116, "n" * 255, "ü" * 127 + "x"])
def test_a_link_queue_of_a_long_exchange_name_is_valid(name: str) -> None:
    upstream = Upstream("up", {"uri": "amqp://far"})
    made = [
        exchange_transfer_of(upstream, name, f"{cluster}:/:{name}", OWN)["src-queue"]
        for cluster in ("west", "east", "west")
    ]
    assert all(len(f"{queue} 8".encode()) <= 255 for queue in made)
    assert made[0] == made[2] != made[1]
    assert all(queue.startswith(f"federation: {name[:90]}") for queue in made)


def test_the_queue_of_a_link_has_the_name_that_it_had() -> None:
    upstream = Upstream("up", {"uri": "amqp://far", "exchange": "n" * 100})
    for_whom = "west:/:" + "m" * 130
    made = exchange_transfer_of(upstream, "m" * 130, for_whom, OWN)["src-queue"]
    assert made == f"federation: {'n' * 100} -> {for_whom}"
    assert len(made) == 253
