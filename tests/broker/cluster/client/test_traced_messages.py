"""Sampled messages on three model nodes: which spans there are, on which node, and their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from broker.cluster.membership.clusters import begun, declare
from broker.cluster.membership.test_absences import Published
from broker.cluster.membership.test_incarnations import Nobody
from broker.cluster.universe import Universe
from tests.wire.kernel import frames
from tests.wire.test_trace_context import CONTEXT, VALUE, written
from warren_broker.access import requests
from warren_broker.cluster.client import traced_consumers, traced_publisher
from warren_broker.cluster.client.consumers import Consumers
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.client.traced_publisher import TRACED_PARTS_MAX, with_headers
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.messages import MalformedPeerMessage, TracedSubmission
from warren_broker.cluster.traced_cluster import CONTEXTS_MAX, REPLICATING_MAX, TracedCluster
from warren_broker.tracing.spans import Span
from warren_machines.metadata import commands as metadata
from warren_machines.queue.commands import Checkout, Discard, Get, Return, Settle
from warren_raft.versions import Versions
from warren_wire import errors
from warren_wire.amqp091 import properties
from warren_wire.kernel import HEADERS, MessageTable, Route
from warren_wire.trace_context import TRACE_HEADER, next_sampled

PLAIN = b"\0\0"
SESSION = 900


def settings(**traces: Any) -> dict[str, Any]:
    given = {"enabled": True, "spans_per_second_max": 1_000, **traces}
    return {"otlp": {"endpoint": "http://127.0.0.1:1", "traces": given}}


@pytest.fixture
def universe(request: pytest.FixtureRequest) -> Iterator[Universe]:
    """Queue q is on all nodes."""
    made = begun(settings=settings(**getattr(request, "param", {})))
    yield made
    made.close()


class Heard(Published):
    """A client's run, with or without confirms; what its publisher hears."""

    counted = True

    def __init__(self, universe: Universe, confirms: bool = True) -> None:
        super().__init__(universe)
        self.confirms = confirms
        self.refusals: list[errors.Refusal] = []

    def refused(self, refusal: errors.Refusal) -> None:
        self.refusals.append(refusal)


def leader(universe: Universe, name: str = "q") -> str:
    queue = universe.running["a"].broker.definitions.state.queue("/", name)
    return next(
        node
        for node, one in sorted(universe.running.items())
        if one.broker.cluster.host.is_leader(queue.group)
    )


def follower(universe: Universe) -> str:
    return next(node for node in "abc" if node != leader(universe))


def publish(
    universe: Universe,
    *raw: bytes,
    node: str = "",
    key: str = "q",
    exchange: str = "",
    confirms: bool = True,
) -> Heard:
    """Publish messages with these properties, two of each table's being another client's."""
    heard = Heard(universe, confirms)
    table = MessageTable()
    route = Route(exchange.encode(), key.encode(), False)
    for each in (PLAIN, *raw, PLAIN):
        table.append(route, each, b"body")
    run = ("/", table, 1, 1 + len(raw), heard, HEADERS)
    one = universe.running[node or follower(universe)]
    one.loop.call_soon(lambda: one.broker.publishing.publish(*run))
    universe.step()
    if confirms:
        universe.until(lambda: heard.complete or heard.refusals, "an answer")
    else:
        for _ in range(20):
            universe.step()
    return heard


def spans(universe: Universe, node: str) -> list[Span]:
    tracing = universe.running[node].broker.tracing
    assert tracing is not None
    return tracing.taken(10_000)


def counted(universe: Universe, node: str, outcome: str) -> int:
    return universe.running[node].broker.cluster.counters.values["trace_spans", (outcome,)]


def consume(universe: Universe, node: str, no_ack: bool = False) -> int:
    numbers: list[int] = []

    def call(broker: Any, done: Any) -> None:
        numbers.append(broker.ids.consumer())
        command = Checkout(numbers[0], SESSION, "t", 10, no_ack=no_ack)
        broker.consuming.checkout(broker.definitions.state.queue("/", "q"), command, Nobody(), done)

    assert isinstance(universe.call(node, call), requests.RequestDone)
    for _ in range(10):
        universe.step()
    return numbers[0]


# ------------------------------------------------------------------ publishing


@pytest.mark.parametrize("confirms", [True, False])
def test_a_message_is_traced_from_publish_to_confirm(universe: Universe, confirms: bool) -> None:
    heard = publish(universe, written(VALUE), PLAIN, confirms=confirms)
    assert len(heard.heard) == confirms, "an answer only where one is wanted"
    [replicated] = spans(universe, leader(universe))
    published, confirmed = spans(universe, follower(universe))
    assert published.name == "publish q" and published.parent == CONTEXT.span_id
    for span in (replicated, confirmed):
        assert span.parent == published.context.span_id
        assert span.context.span_id != published.context.span_id
    traces = {span.context.trace_id for span in (published, replicated, confirmed)}
    assert traces == {CONTEXT.trace_id}
    assert (replicated.name, confirmed.name) == ("replicate q", "confirm q")
    assert replicated.facts["warren.publisher.node"] == follower(universe)
    assert published.facts["messaging.system"] == "warren"
    assert published.facts["messaging.message.body.size"] == 4
    assert published.start_ns <= confirmed.start_ns <= confirmed.end_ns == published.end_ns


def test_the_leader_s_own_publishers_are_traced(universe: Universe) -> None:
    publish(universe, written(VALUE), node=leader(universe))
    names = [span.name for span in spans(universe, leader(universe))]
    assert names == ["replicate q", "publish q", "confirm q"]


def test_a_message_that_is_not_sampled_is_no_span(universe: Universe) -> None:
    publish(universe, written(VALUE[:-1] + "0"), written("malformed"), PLAIN)
    assert not any(spans(universe, node) for node in "abc")


@pytest.mark.parametrize("universe", [{"follow_messages": False}], indirect=True)
def test_clients_choose_nothing_where_they_may_not(universe: Universe) -> None:
    publish(universe, written(VALUE))
    assert not any(spans(universe, node) for node in "abc")


@pytest.mark.parametrize("universe", [{"ratio": 1.0}], indirect=True)
def test_a_trace_that_begins_here_is_in_the_message(universe: Universe) -> None:
    publish(universe, PLAIN, written(VALUE[:-1] + "0"), written("malformed"))
    published, _ = spans(universe, follower(universe))
    assert published.parent == b"", "of the others their publishers have decided"
    consume(universe, leader(universe), no_ack=True)
    _, delivered = spans(universe, leader(universe))
    assert delivered.name == "deliver q"
    assert delivered.context.trace_id == published.context.trace_id
    assert delivered.parent == published.context.span_id


def test_what_went_wrong_is_in_the_span(universe: Universe) -> None:
    publish(universe, written(VALUE), key="nowhere", confirms=False)
    publish(universe, written(VALUE), key="q", exchange="missing")
    unroutable, refused = spans(universe, follower(universe))
    assert (unroutable.name, unroutable.error) == ("publish nowhere", "unroutable")
    assert (refused.name, refused.error) == ("publish missing", "NotFound")


def test_a_hostile_client_s_messages_are_few_spans() -> None:
    universe = begun(settings=settings(spans_per_second_max=10))
    node = follower(universe)
    tracing = universe.running[node].broker.tracing
    assert tracing is not None
    tracing.now_ns = lambda: 7
    with mock.patch.object(
        traced_publisher, "next_sampled", wraps=traced_publisher.next_sampled
    ) as searches:
        for _ in range(50):
            publish(universe, *[written(VALUE)] * 20, node=node)
    assert counted(universe, node, "recorded") <= 10
    assert searches.call_count <= 11, "later runs are not even searched"
    assert counted(universe, node, "limited") >= 49
    universe.close()


def test_a_message_to_many_queues_is_followed_to_few(universe: Universe) -> None:
    asked = metadata.DeclareExchange("/", "f", "fanout", True, False, False, {})
    universe.call("a", lambda b, done: b.definitions.submit(b.exchange_declaration(asked), done))
    for number in range(TRACED_PARTS_MAX + 4):
        declare(universe, f"q{number}", 1)
        bound = metadata.Bind("/", "f", f"q{number}", True)
        universe.call("a", lambda broker, done, it=bound: broker.bind(it, done))
    publish(universe, written(VALUE), exchange="f", key="")
    every = [span.name for node in "abc" for span in spans(universe, node)]
    assert sum(name.startswith("replicate") for name in every) == TRACED_PARTS_MAX
    assert every.count("publish f") == every.count("confirm f") == 1


def test_a_node_of_an_earlier_version_is_not_told() -> None:
    universe = begun(settings=settings(), versions=Versions(1, 1))
    publish(universe, written(VALUE))
    assert not spans(universe, leader(universe))
    assert len(spans(universe, follower(universe))) == 2
    universe.close()


def test_what_a_leader_follows_has_a_bound(universe: Universe) -> None:
    cluster = universe.running[leader(universe)].broker.cluster
    assert isinstance(cluster, TracedCluster)
    told = [TracedSubmission(1, 2, seq, "q", bytes(24)) for seq in range(REPLICATING_MAX + 5)]
    for one in told:
        cluster._on_traced("b", one, memoryview(b""))
    assert len(cluster._replicating) == REPLICATING_MAX
    for size in (0, 23, 24 * (CONTEXTS_MAX + 1)):
        with pytest.raises(MalformedPeerMessage):
            wrong = TracedSubmission(1, 2, 3, "q", bytes(size))
            cluster._on_traced("b", wrong, memoryview(b""))


@pytest.mark.parametrize("chosen", [(), (0,), (3,), (0, 3), (1, 2), (0, 1, 2, 3)])
def test_headers_change_no_other_message(chosen: tuple[int, ...]) -> None:
    table = MessageTable()
    twice = frames.table((b"a", b"t\1"), (b"a", b"t\0"))
    raws = [
        PLAIN,
        properties.encode(properties.Properties(content_type="t", message_id="m")),
        properties.encode(properties.Properties(headers={"a": [1]}, message_id="m")),
        frames.properties(headers=twice),
    ]
    for number, raw in enumerate(raws):
        table.append(Route(b"x", b"%d" % number, False), raw, b"b%d" % number, ttl_ms=number)
    made = with_headers(table, dict.fromkeys(chosen, CONTEXT))
    assert made.count == 4 and bytes(table.properties) == b"".join(raws)
    for at in range(4):
        assert (made.route(at), made.body(at)) == (table.route(at), table.body(at))
        assert (made.ttl_ms(at), made.priority(at)) == (at, table.priority(at))
        changed = made.properties_of(at)
        if at not in chosen:
            assert changed == raws[at]
            continue
        assert next_sampled(changed, 0, len(changed)) is not None
        headers = properties.headers(changed)
        assert headers.pop(TRACE_HEADER).value == VALUE
        assert headers == properties.headers(raws[at])
        assert properties.replace(changed, headers=None) == properties.replace(
            raws[at], headers=None
        )
        assert made.flags(at) == table.flags(at) | HEADERS
    if 3 in chosen:
        assert twice[4:] in made.properties_of(3), "as they were"


# ------------------------------------------------------------------ consuming


@pytest.mark.parametrize("node", ["leader", "follower"])
@pytest.mark.parametrize(
    ("command", "outcome"),
    [(Settle, "acknowledged"), (Discard, "discarded"), (None, "consumer ended")],
)
def test_a_delivery_is_traced_until_its_end(
    universe: Universe, node: str, command: Any, outcome: str
) -> None:
    publish(universe, PLAIN, written(VALUE), PLAIN)
    place = leader(universe) if node == "leader" else follower(universe)
    number = consume(universe, place)
    spans(universe, place)
    broker = universe.running[place].broker
    if command is None:
        broker.consuming.session_down(SESSION, True)
    else:
        broker.consuming.acknowledge(command(number, ((0, 0),)))
        assert not spans(universe, place), "of another message"
        broker.consuming.acknowledge(command(number, ((1, 2),)))
    [delivered] = spans(universe, place)
    assert (delivered.name, delivered.parent) == ("deliver q", CONTEXT.span_id)
    assert delivered.context.trace_id == CONTEXT.trace_id
    assert delivered.facts["warren.outcome"] == outcome
    assert not broker.consuming._held and not broker.consuming._of  # type: ignore[attr-defined]


def test_a_message_that_is_returned_is_delivered_again(universe: Universe) -> None:
    publish(universe, written(VALUE))
    place = follower(universe)
    number = consume(universe, place)
    spans(universe, place)
    broker = universe.running[place].broker
    broker.consuming.acknowledge(Return(number, ((0, (1 << 63) - 1),), True))
    for _ in range(20):
        universe.step()
    broker.consuming.acknowledge(Settle(number, ((1, 1),)))
    first, second = spans(universe, place)
    assert first.facts["warren.outcome"] == "returned" and not first.facts["warren.redelivered"]
    assert second.facts["warren.outcome"] == "acknowledged" and second.facts["warren.redelivered"]


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_message_that_is_got_is_traced(universe: Universe, no_ack: bool) -> None:
    publish(universe, written(VALUE))
    place = follower(universe)
    spans(universe, place)
    broker = universe.running[place].broker
    queue = broker.definitions.state.queue("/", "q")
    number = broker.ids.consumer()
    got = universe.call(
        place, lambda b, done: b.consuming.get(queue, Get(number, SESSION, no_ack), done)
    )
    assert isinstance(got, requests.GotMessage)
    if not no_ack:
        assert not spans(universe, place)
        broker.consuming.acknowledge(Settle(number, ((0, 0),)))
    [delivered] = spans(universe, place)
    assert delivered.name == "deliver q"


def test_what_is_never_acknowledged_has_a_bound(
    universe: Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traced_consumers, "TRACED_HELD_MAX", 3)
    publish(universe, *[written(VALUE)] * 5)
    place = follower(universe)
    number = consume(universe, place)
    spans(universe, place)
    consuming: Any = universe.running[place].broker.consuming
    assert [msg_id for _, msg_id in consuming._held] == [2, 3, 4]
    assert consuming._of == {number: {2, 3, 4}}
    assert counted(universe, place, "dropped") == 2


# ------------------------------------------------------------------ off


def test_a_node_that_does_not_trace_is_as_it_was() -> None:
    """No class of a traced node is on the way of its messages."""
    universe = begun()
    broker = universe.running["a"].broker
    assert broker.tracing is None and broker.traced_claims is None
    assert type(broker.cluster) is Cluster
    assert type(broker.publishing) is Publisher
    assert type(broker.consuming) is Consumers
    universe.close()
