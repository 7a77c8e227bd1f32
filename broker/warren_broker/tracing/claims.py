"""Spans of claims: `claim` of each sampled message in one, and `settle` of the claim itself.

A claim holds many messages, each of a trace of its own, so its span is of none of these: it links
to them, and they to it. Its ids are computed from its name, so that the nodes that open, serve and
settle a claim, which may be different ones, need not tell each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from warren_broker.tracing.spans import Span, Tracing, message_facts, shown
from warren_wire.block.block import Block, BlockError
from warren_wire.trace_context import (
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    TraceContext,
    next_sampled,
)

CLAIMS_MAX: Final = 1_024
"""Open claims that are followed; the oldest is forgotten for another one."""
LINKED_MAX: Final = 32
"""Messages that the span of a claim links to."""
ClaimKey = tuple[int, str, int]
"""Group, reader, number."""


@dataclass(slots=True)
class _TracedClaim:
    """A claim that was opened here; links: its sampled messages that were fetched here."""

    start_ns: int
    messages: int
    links: list[TraceContext] = field(default_factory=list)


def claim_context(cluster: str, key: ClaimKey) -> TraceContext:
    """Return the span of a claim, the same on every node."""
    name = repr((cluster, *key)).encode("utf-8", "surrogateescape")
    drawn = blake2b(name, digest_size=TRACE_ID_BYTES + SPAN_ID_BYTES, person=b"claim").digest()
    return TraceContext(drawn[:TRACE_ID_BYTES], drawn[TRACE_ID_BYTES:])


class TracedClaims:
    """Invariant: at most CLAIMS_MAX claims are followed."""

    def __init__(self, tracing: Tracing, cluster: str) -> None:
        """cluster: its name."""
        self._tracing = tracing
        self._cluster = cluster
        self._open: OrderedDict[ClaimKey, _TracedClaim] = OrderedDict()

    def opened(self, key: ClaimKey, messages: int) -> None:
        """Follow a claim from now on; a repeat changes nothing."""
        if key in self._open:
            return
        if len(self._open) >= CLAIMS_MAX:
            self._open.popitem(last=False)
        self._open[key] = _TracedClaim(self._tracing.now_ns(), messages)

    def fetched(self, key: ClaimKey, queue: str, data: bytes) -> None:
        """Record that messages of a claim are sent to a client; data: their block."""
        tracing = self._tracing
        if not tracing.open():
            return
        try:
            block = Block.decode(data, verify=False)
        except BlockError:
            return  # the client is told of it
        known, now_ns = self._open.get(key), tracing.now_ns()
        claim, name = claim_context(self._cluster, key), shown(queue)
        start_ns = now_ns if known is None else known.start_ns
        offsets, count = block.properties_offsets, block.count
        place, end = 0, len(block.properties_data)
        while (here := next_sampled(block.properties_data, place, end)) is not None:
            if not tracing.take():
                return
            at = bisect_right(offsets, here[0], 0, count + 1) - 1
            parent, place = here[1], offsets[at + 1]
            if known is not None and len(known.links) < LINKED_MAX:
                known.links.append(parent)
            facts = message_facts("claim", "receive", name) | _facts(key)
            context = tracing.new_context(parent.trace_id)
            times = (start_ns, now_ns)
            around = parent.span_id
            tracing.record(
                Span(f"claim {name}", "PRODUCER", context, around, *times, facts, (claim,))
            )

    def ended(self, key: ClaimKey, queue: str, outcome: str = "settled") -> None:
        """Record that a claim is settled, or released, if it was opened here."""
        known = self._open.pop(key, None)
        if known is None or not self._tracing.take():
            return
        name = shown(queue)
        facts = message_facts("settle", "settle", name) | _facts(key)
        facts |= {"messaging.batch.message_count": known.messages, "warren.outcome": outcome}
        times = (known.start_ns, self._tracing.now_ns())
        claim = claim_context(self._cluster, key)
        self._tracing.record(
            Span(f"settle {name}", "SERVER", claim, b"", *times, facts, tuple(known.links))
        )

    def ended_up_to(self, key: ClaimKey, queue: str) -> None:
        """Record that the claims of a reader up to a number are settled."""
        group, reader, number = key
        alike = [one for one in self._open if one[:2] == (group, reader) and one[2] <= number]
        for one in alike:
            self.ended(one, queue)


def _facts(key: ClaimKey) -> dict[str, str | int]:
    return {"warren.reader": shown(key[1]), "warren.claim": key[2]}
