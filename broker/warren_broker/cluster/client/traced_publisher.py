"""The publisher of a node that traces: the spans `publish` and `confirm` of sampled messages.

A message is sampled when its header `traceparent` says so; of those without that header, a part is.
These are given one, so that their consumers continue the trace. The work for a run of messages is
one search of its properties, which the bound on spans may forbid, beside that for its sampled ones.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from warren_broker.cluster.client.direct_replies import DirectReplies
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.client.queue_client import GroupClient
from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.client.routed_runs import PublishedRun, QueuePart
from warren_broker.cluster.traced_cluster import TracedCluster
from warren_broker.cluster.turn_shares import Share
from warren_broker.tracing.spans import Span, Tracing, message_facts, shown
from warren_raft.runtime.loop import LoopStage
from warren_wire import errors
from warren_wire.amqp091 import fields, properties
from warren_wire.kernel import HEADERS, MessageTable
from warren_wire.kernel.table import ROW_WORDS
from warren_wire.trace_context import TRACE_HEADER, TraceContext, has_context, next_sampled

TRACED_PARTS_MAX: Final = 16
"""Queues of a run of which the replication is traced."""
PROPERTIES_BYTES_MAX: Final = 2_048
"""A message with more of them is given no header: they are one frame, which has a limit."""
_FLAG: Final = HEADERS << 8


@dataclass(slots=True)
class _Sampled:
    """A sampled message; parent: the span-id in its traceparent, b"" without one."""

    context: TraceContext
    parent: bytes
    refused: bool = False


class _TracedRun(PublishedRun):
    """A run with sampled messages on its way; to its publisher nothing is different.

    _messages  the sampled ones by their positions in the table, ascending
    _open      parts without an answer
    """

    confirms = counted = True

    def __init__(
        self,
        inner: PublishedRun,
        cluster: TracedCluster,
        tracing: Tracing,
        table: MessageTable,
        messages: dict[int, _Sampled],
        vhost: str,
        start_ns: int,
    ) -> None:
        self._inner, self._cluster, self._tracing = inner, cluster, tracing
        self._table, self._messages, self._vhost = table, messages, shown(vhost)
        self._start_ns = start_ns
        self._open = 0
        self.strict, self.at_once, self.names = inner.strict, inner.at_once, inner.names

    def guarded(self, call: Callable[[], object]) -> None:
        """See `PublishedRun`."""
        self._inner.guarded(call)

    def sent(self, touched: list[GroupClient]) -> None:
        """See `PublishedRun`."""
        self._inner.sent(touched)

    def unknown(self) -> bool:
        """See `PublishedRun`."""
        return self._inner.unknown()

    def routed(self, parts: list[QueuePart]) -> list[QueuePart]:
        """See `PublishedRun`."""
        parts = self._inner.routed(parts)
        self._open = len(parts)
        if not parts:
            self._end(0, "unroutable")
        return parts

    def refused(self, refusal: errors.Refusal) -> None:
        """See `PublishedRun`."""
        self._end(0, type(refusal).__name__)
        self._inner.refused(refusal)

    def submitted(self, part: QueuePart, client: GroupClient) -> None:
        """Have the replication of the sampled messages of a part traced."""
        chosen, some = part.selection.indices, part.selection
        contexts = [
            one.context
            for at, one in self._messages.items()
            if (some.first <= at < some.last if chosen is None else _has(chosen, at))
        ]
        if contexts:
            self._cluster.trace(client, part.name, contexts)

    def confirmed(self, number: int, part: QueuePart, ok: bool, refused: list[int] | None) -> None:
        """See `PublishedRun`."""
        if self._inner.confirms:
            self._inner.confirmed(number, part, ok, refused)
        if not ok:
            for at, one in self._messages.items():
                one.refused |= at in part.selection if refused is None else at in refused
        self._open -= 1
        if not self._open:
            at_ns = self._tracing.now_ns()
            self._cluster.loop.at_turn_end(LoopStage.EFFECTS, lambda: self._end(at_ns))

    def _end(self, confirmed_ns: int, error: str = "") -> None:
        """Record the spans; confirmed_ns: when the last queue had answered, 0: none was asked."""
        tracing, table = self._tracing, self._table
        end_ns = tracing.now_ns()
        for at, one in self._messages.items():
            route = table.route(at)
            exchange, key = shown(route.exchange), shown(route.routing_key)
            facts = message_facts("publish", "send", exchange or key)
            facts |= {
                "messaging.message.body.size": len(table.body(at)),
                "messaging.rabbitmq.destination.routing_key": key,
                "warren.vhost": self._vhost,
            }
            failed = error or ("refused" if one.refused else "")
            name, times = facts["messaging.destination.name"], (self._start_ns, end_ns)
            span = Span(f"publish {name}", "SERVER", one.context, one.parent, *times, facts)
            tracing.record(span._replace(error=failed))
            if confirmed_ns and tracing.take():
                context = tracing.new_context(one.context.trace_id)
                facts = message_facts("confirm", "send", name)
                times = (confirmed_ns, end_ns)
                around = one.context.span_id
                tracing.record(Span(f"confirm {name}", "INTERNAL", context, around, *times, facts))


def _has(chosen: array[int], at: int) -> bool:
    place = bisect_left(chosen, at)
    return place < len(chosen) and chosen[place] == at


class TracedPublisher(Publisher):
    """A publisher that traces what clients publish; all else it passes on."""

    def __init__(self, tracing: Tracing, queues: QueueClients, replies: DirectReplies) -> None:
        super().__init__(queues, replies)
        self._tracing = tracing
        assert isinstance(queues.cluster, TracedCluster), queues.cluster
        self._cluster = queues.cluster

    def publish(
        self,
        vhost: str,
        table: MessageTable,
        first: int,
        last: int,
        run: PublishedRun,
        flags: int = 0,
        share: Share | None = None,
        start: str | None = None,
    ) -> None:
        """See `Publisher`."""
        tracing = self._tracing
        if run.counted and tracing.open():
            start_ns = tracing.now_ns()
            found = self._followed(table, first, last) if flags & HEADERS else {}
            begun = self._begun(table, first, last)
            if begun:
                table = with_headers(table, {at: one.context for at, one in begun.items()})
                found = dict(sorted((found | begun).items()))
            if found:
                run = _TracedRun(run, self._cluster, tracing, table, found, vhost, start_ns)
        super().publish(vhost, table, first, last, run, flags, share, start)

    def _followed(self, table: MessageTable, first: int, last: int) -> dict[int, _Sampled]:
        """Return the messages of which the header says that they are sampled, ascending."""
        found: dict[int, _Sampled] = {}
        if not self._tracing.follows:
            return found
        with memoryview(table.rows).cast("I") as words:
            ends = words[1::ROW_WORDS]
            place, end = ends[first - 1] if first else 0, ends[last - 1]
            while (here := next_sampled(table.properties, place, end)) is not None:
                if not self._tracing.take():
                    break
                at, parent = bisect_right(ends, here[0], first, last), here[1]
                context = self._tracing.new_context(parent.trace_id)
                found[at] = _Sampled(context, parent.span_id)
                place = ends[at]
            ends.release()
        return found

    def _begun(self, table: MessageTable, first: int, last: int) -> dict[int, _Sampled]:
        """Return messages with which a trace begins, ascending."""
        begun: dict[int, _Sampled] = {}
        for pick in self._tracing.picks(last - first):
            raw = table.properties_of(first + pick)
            if len(raw) > PROPERTIES_BYTES_MAX or has_context(raw):
                continue  # its publisher has decided
            if not self._tracing.take():
                break
            begun[first + pick] = _Sampled(self._tracing.new_context(), b"")
        return begun

    def _send_part(
        self,
        vhost: str,
        parts: list[QueuePart],
        number: int,
        run: PublishedRun,
        touched: list[GroupClient],
    ) -> int:
        before = len(touched)
        looked = super()._send_part(vhost, parts, number, run, touched)
        if isinstance(run, _TracedRun) and len(touched) > before and number < TRACED_PARTS_MAX:
            run.submitted(parts[number], touched[-1])
        return looked


def with_headers(table: MessageTable, begun: Mapping[int, TraceContext]) -> MessageTable:
    """Return a table with the same messages, some with a `traceparent`; positions stay the same.

    begun  the positions of these, ascending. The bodies of both tables are shared
    """
    made = MessageTable(table.routes)
    made.bodies, made.rows, made.count = table.bodies, bytearray(table.rows), table.count
    with memoryview(made.rows).cast("I") as words:
        old, flags = words[1::ROW_WORDS].tolist(), words[4::ROW_WORDS]
        new, grown, done, kept = [], 0, 0, 0
        for at, context in begun.items():
            start = old[at - 1] if at else 0
            raw = table.properties_of(at)
            changed = with_header(raw, context)
            made.properties += table.properties[kept:start]
            made.properties += changed
            kept = old[at]
            new += [end + grown for end in old[done:at]]
            grown += len(changed) - len(raw)
            done = at
            flags[at] |= _FLAG
        made.properties += table.properties[kept:]
        new += [end + grown for end in old[done:]]
        words[1::ROW_WORDS] = memoryview(array("I", new))
        flags.release()
    return made


def with_header(raw: bytes, context: TraceContext) -> bytes:
    """Return a message's properties with a `traceparent` more, and the other headers as they were.

    raw  well-formed, as the kernel has let them pass
    """
    value = context.header()
    span = properties.spans(raw).get("headers")
    if span is None:
        return properties.replace(raw, headers={TRACE_HEADER: value})
    (start, end), entry = span, fields.table({TRACE_HEADER: value})[4:]
    size = end - start - 4 + len(entry)
    return raw[:start] + size.to_bytes(4, "big") + raw[start + 4 : end] + entry + raw[end:]
