"""Spans of claims: their ids, links and bounds."""

from __future__ import annotations

from broker.tracing.test_spans import World
from tests.wire.test_trace_context import CONTEXT, VALUE, written
from warren_broker.tracing.claims import CLAIMS_MAX, LINKED_MAX, TracedClaims, claim_context
from warren_wire.block.block import encode

KEY = (3, "reader", 5)
PLAIN = b"\0\0"


def block(*properties: bytes) -> bytes:
    return encode([b"body"] * len(properties), properties, (b"", b"q"))


def test_a_claim_and_its_messages_link_to_each_other() -> None:
    world = World()
    claims = TracedClaims(world.tracing, "c")
    claims.opened(KEY, 3)
    world.now_ns += 10
    claims.fetched(KEY, "q", block(PLAIN, written(VALUE), written("malformed")))
    world.now_ns += 10
    claims.opened(KEY, 3)  # a repeat
    claims.ended_up_to((3, "reader", 7), "q")
    fetched, settled = world.tracing.taken(9)
    claim = claim_context("c", KEY)
    assert (fetched.name, fetched.parent, fetched.links) == ("claim q", CONTEXT.span_id, (claim,))
    assert fetched.context.trace_id == CONTEXT.trace_id
    assert fetched.end_ns - fetched.start_ns == 10
    assert (settled.name, settled.context, settled.links) == ("settle q", claim, (CONTEXT,))
    assert settled.end_ns - settled.start_ns == 20
    assert settled.facts["messaging.batch.message_count"] == 3
    assert settled.facts["warren.reader"] == "reader" and settled.facts["warren.claim"] == 5
    claims.ended(KEY, "q")
    assert not world.tracing.taken(1), "a repeat ends nothing"


def test_nodes_agree_about_the_ids_of_a_claim() -> None:
    assert claim_context("c", KEY) == claim_context("c", KEY)
    others = [("d", KEY), ("c", (4, "reader", 5)), ("c", (3, "other", 5)), ("c", (3, "reader", 6))]
    assert len({claim_context(*one) for one in (("c", KEY), *others)}) == 5


def test_another_node_than_that_of_the_driver_serves_a_claim() -> None:
    world = World()
    claims = TracedClaims(world.tracing, "c")
    claims.fetched(KEY, "q", block(written(VALUE)))
    claims.ended(KEY, "q")
    [fetched] = world.tracing.taken(9)
    assert fetched.links == (claim_context("c", KEY),)


def test_what_is_followed_of_claims_has_bounds() -> None:
    world = World(spans_per_second_max=10_000)
    claims = TracedClaims(world.tracing, "c")
    for number in range(CLAIMS_MAX + 1):
        claims.opened((3, "r", number), 1)
    for _ in range(2):
        claims.fetched((3, "r", CLAIMS_MAX), "q", block(*[written(VALUE)] * LINKED_MAX))
    claims.ended((3, "r", 0), "q")
    claims.ended((3, "r", CLAIMS_MAX), "q")
    *_, settled = spans = world.tracing.taken(100)
    assert len(spans) == 2 * LINKED_MAX + 1, "the oldest claim was forgotten"
    assert len(settled.links) == LINKED_MAX


def test_a_claim_of_many_sampled_messages_has_few_spans() -> None:
    world = World(spans_per_second_max=5)
    claims = TracedClaims(world.tracing, "c")
    claims.fetched(KEY, "q", block(*[written(VALUE)] * 50))
    claims.fetched(KEY, "q", b"no block")
    assert len(world.tracing.taken(100)) == 5
