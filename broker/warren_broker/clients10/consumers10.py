"""The consumers of one AMQP 1.0 connection, between its links and their queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from warren_broker.access.access import Access
from warren_broker.admin.caller import Answer, Asker
from warren_broker.broker.broker import Broker
from warren_broker.clients.client_counts import ClientCounts
from warren_broker.clients.connection_facts import Consumed
from warren_broker.clients.connection_log import ConnectionLog
from warren_broker.clients.refused_consumers import TURNS, RefusedConsumers
from warren_broker.clients10 import link_requests
from warren_broker.clients10.connection import Connection10
from warren_broker.cluster.client.relayed import draw_origin
from warren_machines.queue import commands
from warren_machines.queue.filters.filter_commands import NotYet
from warren_wire import errors
from warren_wire.arguments import ConsumeArguments
from warren_wire.block.block import Block
from warren_wire.kernel import MessageTable

DRAIN_AGAIN_MS: Final = 20


class _Attached(NamedTuple):
    """A link's consumer; settled: what is delivered counts as accepted."""

    session: int
    queue: str
    settled: bool
    tag: str
    asked: ConsumeArguments


class Consumers10:
    """One consumer for each link, in a session of its own: a link's end returns what it held.

    carry_out  called when the connection has something to send or to request
    guard      makes a fault end only this connection (`clients.connection_faults`)
    """

    def __init__(
        self,
        broker: Broker,
        connection: Connection10,
        log: ConnectionLog,
        counts: ClientCounts,
        carry_out: Callable[[], None],
        guard: Callable[[Callable[..., Any]], Callable[..., None]],
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._log = log
        self._counts = counts
        self._carry_out = carry_out
        self.deliver = guard(self._deliver)
        self.cancelled = guard(self._cancelled)
        self._sessions: dict[int, _Attached] = {}
        turn_bytes = connection.limits.undelivered_bytes_max // (2 * TURNS)
        self._refused = RefusedConsumers(turn_bytes, broker.consuming.resume)
        self._reply_names: set[str] = set()

    # ------------------------------------------------------------ for the queues

    def _deliver(self, consumer: int, delivery: commands.Delivery, block: Block) -> None:
        """Take messages for one of the links."""
        known = self._sessions.get(consumer)
        if known is not None:
            self._counts.delivered(consumer, known.session, known.settled, delivery)
        if self._refused.turns:
            size = block.kept_bytes(delivery.first, delivery.last + 1)
            self._refused.took(consumer, size)
        self._connection.deliver(consumer, delivery, block)
        self._carry_out()

    def _cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        """Handle the queue's cancellation of a consumer."""
        known = self._sessions.get(consumer)
        if known is not None:
            self._connection.cancelled(consumer, _why(reason, known.queue))
            self._carry_out()

    def _has_room(self, consumer: int) -> bool:
        """Return whether a link may be given more; else its queue is asked again later."""
        connection = self._connection
        link = connection.consumers.get(consumer)
        if link is None or connection.bounds.takes(link, self._refused.may_take(consumer)):
            return True
        self._refused.refuse(consumer)
        return False

    def ask_again(self) -> None:
        """Ask for what was refused, if there is room."""
        if not self._refused:
            return
        connection = self._connection
        if connection.bounds.half_free:
            self._refused.ask(self.ask_again)
        for consumer in self._refused.waiting():
            link = connection.consumers.get(consumer)
            if link is None or connection.bounds.may_exceed(link):
                self._refused.forget(consumer)
                self._broker.consuming.resume(consumer, _nothing)

    # ------------------------------------------------------------ for the links

    def consume(self, asker: Asker, request: link_requests.Consume, answer: Answer) -> None:
        """Add a consumer."""
        queue = asker.queue(request.queue)
        consumer, session = self._broker.ids.consumer(), self._broker.ids.session()
        command = commands.Checkout(
            consumer,
            session,
            request.link[:255],
            explicit_credit=True,
            priority=request.priority,
            no_ack=request.settled,
            timeout_ms=request.timeout_ms,
            filter=request.filter,
            relay=request.relay,
            origin=draw_origin() if request.relay else 0,
        )
        asked = ConsumeArguments(request.priority, request.timeout_ms, relay=request.relay)
        self._sessions[consumer] = _Attached(
            session, request.queue, request.settled, command.tag, asked
        )
        config = self._broker.definitions.config(queue)
        always_active = config.tells_active and not config.single_active_consumer

        def joined(reply: Any) -> None:
            if isinstance(reply, errors.Refusal):
                self._end(consumer, failed=False)
                answer(reply)
            elif consumer not in self._sessions:  # a new token forbids it meanwhile
                answer(errors.AccessRefused(f"read access to queue '{request.queue}' refused"))
            else:
                answer(link_requests.Consuming(consumer, always_active or None))

        def told_active(active: bool) -> None:
            self._connection.tell_active(consumer, active)
            self._carry_out()

        def missed(msg_id: int) -> None:
            self._connection.missed(consumer, msg_id)
            self._carry_out()

        def timed_out(msg_ids: link_requests.Ranges, timeout_ms: int | None) -> None:
            first = self._connection.timed_out(consumer, msg_ids)
            self._log.link_timed_out(request.link, request.queue, timeout_ms, first)
            self._carry_out()

        self._broker.consuming.checkout(
            queue,
            command,
            self,
            asker.guard(joined),
            missed=asker.guard(missed),
            timed_out=asker.guard(timed_out),
            activity=asker.guard(told_active),
            has_room=self._has_room,
        )

    def rights_changed(self, access: Access) -> None:
        """End the links of consumers of queues that the user may no longer read."""
        for consumer, known in list(self._sessions.items()):
            try:
                access.read_queue(known.queue)
            except errors.AccessRefused as refusal:
                self._end(consumer, failed=False)
                self._connection.cancelled(consumer, refusal)
        self._carry_out()

    def credit(self, asker: Asker, request: link_requests.GrantCredit, answer: Answer) -> None:
        """Pass on a link's credit."""
        command = commands.Credit(
            request.consumer, request.delivered, request.credit, request.drain
        )

        def drained(reply: Any, index: int) -> None:
            if isinstance(reply, NotYet):
                # A message that is there has not been judged by the consumer's filter: ask again.
                # A repeat changes nothing, and asks for no more than the first one.
                again = asker.guard(lambda: self._broker.consuming.credit(command, told_drained))
                self._broker.cluster.loop.call_later(DRAIN_AGAIN_MS, again)
                return
            told = isinstance(reply, commands.Count)
            answer(link_requests.CreditDrained(reply.messages if told else request.delivered))

        told_drained = asker.guard(drained)
        self._broker.consuming.credit(command, told_drained if request.drain else None)

    def acknowledge(self, command: commands.Acknowledgement) -> None:
        """Pass on outcomes."""
        if isinstance(command, commands.Settle):
            self._counts.acknowledged(command.consumer, command.msg_ids)
        self._broker.consuming.acknowledge(command)

    def set_aside(self, asker: Asker, request: link_requests.SetAside, answer: Answer) -> None:
        """Record that a message could not be sent."""
        asker.broker.consuming.set_aside(
            request.consumer, request.index, request.msg_id, request.reason
        )

    def end(self, asker: Asker, request: link_requests.EndConsumer, answer: Answer) -> None:
        """Remove a consumer."""
        self._end(request.consumer, request.failed)

    def _end(self, consumer: int, failed: bool) -> None:
        known = self._sessions.pop(consumer, None)
        self._refused.forget(consumer)
        if known is not None:
            self._counts.consumer_ended(consumer, known.session)
            self._broker.consuming.session_down(known.session, failed)

    def __len__(self) -> int:
        return len(self._sessions)

    def consumed(self) -> tuple[Consumed, ...]:
        """Return the consumers; their prefetch is 0, because links give credit instead."""
        return tuple(
            Consumed(number, 0, one.queue, one.tag, one.settled, False, 0, one.asked.shown())
            for number, one in self._sessions.items()
        )

    def open_replies(
        self, asker: Asker, request: link_requests.OpenReplies, answer: Answer
    ) -> None:
        """Make a name for replies."""
        name = self._broker.ids.reply_name()

        def take(table: MessageTable, at: int) -> None:
            self._connection.reply(name, table, at)
            self._carry_out()

        self._reply_names.add(name)
        self._broker.replies.open(name, asker.guard(take))
        answer(link_requests.RepliesOpened(name))

    def close_replies(
        self, asker: Asker, request: link_requests.CloseReplies, answer: Answer
    ) -> None:
        """Forget a name for replies."""
        self._close_replies(request.name)

    def _close_replies(self, name: str) -> None:
        self._reply_names.discard(name)
        self._broker.replies.close(name)

    def closed(self) -> None:
        """Remove all consumers and names: the connection is lost."""
        for name in sorted(self._reply_names):
            self._close_replies(name)
        for consumer in list(self._sessions):
            self._end(consumer, failed=True)
        self._refused.clear()
        # what refers to the client would keep it in memory until the garbage collector comes by
        self._carry_out = self.deliver = self.cancelled = _nothing

    def handlers(self) -> dict[type, Callable[[Asker, Any, Answer], None]]:
        """Return the handlers of the links' requests."""
        return {
            link_requests.Consume: self.consume,
            link_requests.GrantCredit: self.credit,
            link_requests.EndConsumer: self.end,
            link_requests.SetAside: self.set_aside,
            link_requests.OpenReplies: self.open_replies,
            link_requests.CloseReplies: self.close_replies,
        }


def _nothing(*given: Any) -> None:
    """Do nothing: the connection is lost."""


def _why(reason: str, queue: str) -> errors.Refusal:
    if reason == "deleted":
        return errors.ResourceDeleted(f"queue '{queue}' was deleted")
    return errors.PreconditionFailed(
        f"queue '{queue}' has cancelled the consumer ({reason}): attach again"
    )
