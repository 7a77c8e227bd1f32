"""The consumers of a node that traces: a span `deliver` of each sampled message.

It begins when the node passes the message on to the client's connection, and ends with the
client's acknowledgement, or with that of which the consumer ends. Its parent is the one that the
message names, as that of the consumer's own spans. The work for a delivered run is one search of
its properties, which the bound on spans may forbid, beside that for its sampled messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final

from warren_broker.access import requests
from warren_broker.cluster.client.consumers import Consumers, Done, Got
from warren_broker.cluster.client.queue_client import Receiver
from warren_broker.cluster.client.queues import QueueClients
from warren_broker.tracing.spans import Span, Tracing, message_facts, shown
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue import commands
from warren_wire import errors
from warren_wire.block.block import Block
from warren_wire.trace_context import next_sampled

TRACED_HELD_MAX: Final = 8_192
"""Sampled messages without an acknowledgement; the oldest is no span when there are more."""
OUTCOMES: Final[dict[type, str]] = {
    commands.Settle: "acknowledged",
    commands.Return: "returned",
    commands.Discard: "discarded",
    commands.Modify: "modified",
}
"""Of an acknowledgement, in the attribute `warren.outcome`."""
CONSUMER_ENDED: Final = "consumer ended"


class _TracedReceiver:
    """A consumer's receiver, behind the trace of what it is given."""

    def __init__(self, consumers: TracedConsumers, queue: str, no_ack: bool, to: Receiver) -> None:
        self._consumers, self._queue, self._no_ack = consumers, queue, no_ack
        self._to = to
        self.cancelled = to.cancelled

    def deliver(self, consumer: int, delivery: commands.Delivery, block: Block) -> None:
        """See `Receiver`."""
        self._consumers.trace(self._queue, consumer, self._no_ack, delivery, block)
        self._to.deliver(consumer, delivery, block)


class TracedConsumers(Consumers):
    """Invariant: `_of` has every key of `_held`, of which there are TRACED_HELD_MAX at most.

    _held  spans without an end, by consumer and msg_id
    """

    def __init__(
        self, tracing: Tracing, queues: QueueClients, new_number: Callable[[], int]
    ) -> None:
        super().__init__(queues, new_number)
        self._tracing = tracing
        self._held: OrderedDict[tuple[int, int], Span] = OrderedDict()
        self._of: dict[int, set[int]] = {}

    def checkout(
        self,
        queue: QueueRecord,
        command: commands.Checkout,
        receiver: Receiver,
        done: Done,
        *given: Any,
        **named: Any,
    ) -> None:
        """See `Consumers`; what the node itself consumes of an exchange's store is not traced."""
        if not queue.store_of:
            receiver = _TracedReceiver(self, queue.name, command.no_ack, receiver)
        super().checkout(queue, command, receiver, done, *given, **named)

    def get(self, queue: QueueRecord, command: commands.Get, done: Got) -> None:
        """See `Consumers`."""

        def got(result: errors.Reply[requests.GotMessage | requests.GotNothing]) -> None:
            if isinstance(result, requests.GotMessage):
                number = command.consumer if result.getter is None else result.getter
                self.trace(queue.name, number, command.no_ack, result.delivery, result.block)
            done(result)

        super().get(queue, command, got)

    def trace(
        self, queue: str, consumer: int, no_ack: bool, delivery: commands.Delivery, block: Block
    ) -> None:
        """Begin the spans of the sampled messages that a consumer is given."""
        tracing = self._tracing
        if not tracing.open():
            return
        offsets, last = block.properties_offsets, delivery.last + 1
        place, end = offsets[delivery.first], offsets[last]
        while (here := next_sampled(block.properties_data, place, end)) is not None:
            if not tracing.take():
                return
            at, parent = bisect_right(offsets, here[0], delivery.first, last) - 1, here[1]
            name, now_ns = shown(queue), tracing.now_ns()
            facts = message_facts("deliver", "process", name)
            facts |= {
                "messaging.message.body.size": len(block.body(at)),
                "warren.redelivered": delivery.acquired_count > 0,
                "warren.raft.index": delivery.index,
            }
            context = tracing.new_context(parent.trace_id)
            times = (now_ns, now_ns)
            span = Span(f"deliver {name}", "PRODUCER", context, parent.span_id, *times, facts)
            if no_ack:
                tracing.record(span)
            else:
                self._hold(consumer, delivery.first_msg_id + at - delivery.first, span)
            place = offsets[at + 1]

    def _hold(self, consumer: int, msg_id: int, span: Span) -> None:
        if len(self._held) >= TRACED_HELD_MAX:
            (of, oldest), _ = self._held.popitem(last=False)
            self._forget_id(of, oldest)
            self._tracing.drop()
        self._held[consumer, msg_id] = span
        self._of.setdefault(consumer, set()).add(msg_id)

    def _forget_id(self, consumer: int, msg_id: int) -> None:
        ids = self._of[consumer]
        ids.discard(msg_id)
        if not ids:
            del self._of[consumer]

    def acknowledge(self, command: commands.Acknowledgement, late: bool = False) -> None:
        """See `Consumers`."""
        held = self._of.get(command.consumer)
        if held is not None:
            outcome = OUTCOMES[type(command)]
            for first, last in command.msg_ids:
                ids: Iterable[int] = range(first, last + 1)
                if last - first >= len(held):  # so many messages are acknowledged: look at fewer
                    ids = [one for one in held if first <= one <= last]
                self._end(command.consumer, ids, outcome)
        super().acknowledge(command, late)

    def _end(self, consumer: int, msg_ids: Iterable[int], outcome: str) -> None:
        """End the spans of those of the messages that have one."""
        now_ns = self._tracing.now_ns()
        for msg_id in msg_ids:
            span = self._held.pop((consumer, msg_id), None)
            if span is not None:
                self._forget_id(consumer, msg_id)
                facts = {**span.facts, "warren.outcome": outcome}
                self._tracing.record(span._replace(end_ns=now_ns, facts=facts))

    def session_down(self, session: int, failed: bool) -> None:
        """See `Consumers`."""
        if self._of:
            for consumer in self._sessions.get(session, ()):
                self._end(consumer, list(self._of.get(consumer, ())), CONSUMER_ENDED)
        super().session_down(session, failed)

    def forget(self, consumer: int, session: int, getter: bool) -> None:
        """See `Consumers`."""
        self._end(consumer, list(self._of.get(consumer, ())), CONSUMER_ENDED)
        super().forget(consumer, session, getter)
