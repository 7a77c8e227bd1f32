"""A link on which a client consumes from a queue: deliveries out, outcomes in."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from proton import Delivery, Link, symbol, timestamp

from warren_broker.amqp10.addresses import QueueSource
from warren_broker.amqp10.connection_requests import AnyAnswer
from warren_broker.amqp10.dynamic_nodes import TEMPORARY_QUEUE, TemporaryQueue, describe
from warren_broker.amqp10.link import LinkHost, LinkPart, accept_attach
from warren_broker.amqp10.link_requests import (
    Consume,
    Consuming,
    CreditDrained,
    EndConsumer,
    GrantCredit,
    ModifyMessages,
    Outcome,
    SettleMessages,
)
from warren_broker.amqp10.message.sent import encode_message
from warren_broker.amqp10.wire.fields import read_map
from warren_broker.block.block import Block
from warren_broker.errors import ContentTooLarge, InvalidArgument, Refusal
from warren_broker.queue import commands
from warren_broker.queue.annotations import ANNOTATIONS_BYTES_MAX, size_bytes
from warren_broker.queue.modify_command import Pairs

PRIORITY: Final = "rabbitmq:priority"
CONSUMER_TIMEOUT: Final = "rabbitmq:consumer-timeout"
DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_TIME_MAX: Final = (1 << 63) - 1
REPORT_MESSAGES: Final = 1_024
"""After that many settled deliveries, or REPORT_BYTES, the queue is told that they have left."""
REPORT_BYTES: Final = 8 << 20
_OUTCOMES: Final[dict[object, Outcome]] = {
    Delivery.ACCEPTED: "accepted",
    Delivery.REJECTED: "rejected",
    Delivery.RELEASED: "released",
}
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder().decode


class ConsumingLink(LinkPart):
    """A consumer's link.

    Deliveries wait here while the client's socket is slow; they are runs of blocks, and the queue
    gives no more than the client's credit. Credit and outcomes of one pass go to the queue at its
    end (`flush`).

    consumer      0: the queue has not answered yet
    source        None: a temporary queue is made
    temporary_of  the client's container, of which a temporary queue has its name

    Invariant: every delivery below `_next_msg_id` is in `_waiting`, or was sent or missed
    """

    def __init__(
        self, link: Link, host: LinkHost, source: QueueSource | None, temporary_of: str = ""
    ) -> None:
        super().__init__(link, host)
        self.consumer = 0
        self.settled = link.remote_snd_settle_mode == Link.SND_SETTLED
        self._waiting: deque[tuple[commands.Delivery, Block]] = deque()
        self._next_msg_id = 0
        self._granted = (0, 0)  # what the queue was told last: a sum, the reports of what has left
        self._draining = False
        self._drained_at = -1  # where the queue's answer to a drain said that the old credit ends
        self._unreported = self._unreported_bytes = 0
        self._outcomes: dict[Outcome, list[tuple[int, int]]] = {}
        self._said = wanted(link)
        self._temporary: TemporaryQueue | None = None
        if source is None:
            self._temporary = TemporaryQueue(self, temporary_of, self._consume)
        else:
            self._consume(source.queue)

    def _consume(self, queue: str) -> None:
        self.host.ask(Consume(queue, self.link.name, self.settled, *self._said), self._answered)

    def _answered(self, answer: AnyAnswer) -> None:
        if self.ended:
            if isinstance(answer, Consuming):
                self.host.tell(EndConsumer(answer.consumer, failed=False))
            return
        if isinstance(answer, Refusal):
            self.refuse_opening(answer)
            return
        assert isinstance(answer, Consuming), answer
        self.consumer = answer.consumer
        self.host.consumers[answer.consumer] = self
        accept_attach(self.link)
        if self._temporary is not None:
            describe(self.link.source, self._temporary.name, TEMPORARY_QUEUE)
        self.link.snd_settle_mode = Link.SND_SETTLED if self.settled else Link.SND_UNSETTLED
        self.flow()

    # ------------------------------------------------------------ from the queue

    def deliver(self, delivery: commands.Delivery, block: Block) -> None:
        """Take messages from the queue."""
        if not self.ended:
            self.missed(delivery.first_msg_id)
            self._next_msg_id = delivery.first_msg_id + delivery.last - delivery.first + 1
            self._waiting.append((delivery, block))
            self.wake()

    def missed(self, msg_id: int) -> None:
        """Note that deliveries below this one that have not arrived never will."""
        if msg_id > self._next_msg_id:
            self._next_msg_id = msg_id
            self._granted = (-1, self._granted[1])  # the client still has the credit they used
            self.flow()

    def cancelled(self, refusal: Refusal) -> None:
        """End the link: the queue has cancelled its consumer."""
        self.wake()
        self.refuse(refusal)

    def refuse(self, refusal: Refusal) -> None:
        """End the link, and its consumer, with an error."""
        super().refuse(refusal)
        self._end(failed=False)

    # ------------------------------------------------------------ from the client

    def flow(self) -> None:
        """Tell the queue of the client's credit at the end of this pass."""
        if self.consumer and not self.ended:
            self.host.flush_later(self)
            self.wake()

    def gone(self) -> None:
        """End the consumer: the client has ended the link or its session."""
        self._end(failed=self.session_ended)

    def _end(self, *, failed: bool) -> None:
        self.flush_outcomes()
        self._waiting.clear()
        consumer, self.consumer = self.consumer, 0
        if consumer:
            self.host.consumers.pop(consumer, None)
            self.host.tell(EndConsumer(consumer, failed))
        if self._temporary is not None:
            self._temporary.delete()

    def delivery(self, delivery: Delivery) -> None:
        """Handle the outcome of a delivery."""
        state = delivery.remote_state
        if self.ended or not (delivery.settled or state in _OUTCOMES or state == Delivery.MODIFIED):
            return
        msg_id = int(delivery.tag)
        if state == Delivery.MODIFIED:
            if not self._modify(delivery, msg_id):
                return
        else:  # settled without an outcome: that of the source, released
            self._note(_OUTCOMES.get(state, "released"), msg_id)
        if not delivery.settled:
            delivery.update(state)
        delivery.settle()

    def _note(self, outcome: Outcome, msg_id: int) -> None:
        ranges = self._outcomes.setdefault(outcome, [])
        if ranges and ranges[-1][1] + 1 == msg_id:
            ranges[-1] = (ranges[-1][0], msg_id)
        else:
            ranges.append((msg_id, msg_id))
            self.host.flush_later(self)

    def _modify(self, delivery: Delivery, msg_id: int) -> bool:
        """Return whether the outcome could be read."""
        remote = delivery.remote
        try:
            given = read_map("annotations of modified", lambda: remote.annotations)
            annotations, ready_ms = read_annotations(given)
        except Refusal as refusal:
            self.refuse(refusal)
            return False
        self.flush_outcomes()  # outcomes of one consumer stay in their order
        self.host.tell(
            ModifyMessages(
                self.consumer,
                ((msg_id, msg_id),),
                bool(remote.failed),
                bool(remote.undeliverable),
                annotations,
                ready_ms,
            )
        )
        return True

    # ------------------------------------------------------------ at the end of a pass

    def flush(self) -> None:
        """Pass on outcomes, and credit if it has changed."""
        self.flush_outcomes()
        if not self.consumer or self.ended:
            return
        self._finish_drain()
        delivered = self._waiting[0][0].first_msg_id if self._waiting else self._next_msg_id
        drain = bool(self.link.drain_mode) and self.link.credit > 0
        granted = (delivered + self.link.credit, self._left() if self.settled else 0)
        if drain:
            if not self._draining and self._drained_at < 0:
                self._draining = True
                self._granted = granted
                self.host.ask(
                    GrantCredit(self.consumer, delivered, self.link.credit, True), self._drained
                )
        elif granted != self._granted:
            self._granted = granted
            self.host.tell(GrantCredit(self.consumer, delivered, self.link.credit))

    def flush_outcomes(self) -> None:
        """Pass on outcomes."""
        if self._outcomes and self.consumer:
            for outcome, ranges in self._outcomes.items():
                ids = tuple(sorted(ranges))
                self.host.tell(SettleMessages(self.consumer, outcome, ids))
        self._outcomes = {}

    def _left(self) -> int:
        """Count the reports of settled deliveries that have left, one for every REPORT_MESSAGES."""
        if self._unreported < REPORT_MESSAGES and self._unreported_bytes < REPORT_BYTES:
            return self._granted[1]
        self._unreported = self._unreported_bytes = 0
        return self._granted[1] + 1

    def _drained(self, answer: AnyAnswer) -> None:
        self._draining = False
        if not self.ended and isinstance(answer, CreditDrained):
            self._drained_at = answer.delivered
            self.wake()
            self._finish_drain()

    def _finish_drain(self) -> None:
        """Give the rest of the credit back once all that the queue had has been sent."""
        if self._drained_at < 0 or self._waiting or self._next_msg_id < self._drained_at:
            return
        self._drained_at = -1
        asked, self._granted = self._granted[0], (self._next_msg_id, self._granted[1])
        if self.link.drain_mode and self._next_msg_id + self.link.credit <= asked:
            self.link.drained()  # otherwise there is more credit, for which the queue is asked

    # ------------------------------------------------------------ writing

    def wake(self) -> bool:
        """Write what credit and the send-ahead bound allow."""
        wrote = False
        link, limit = self.link, self.host.limits.send_ahead_bytes_max
        while self._waiting and not self.ended:
            run, block = self._waiting.popleft()
            notes = dict(run.annotations)
            at = run.first
            while (
                at <= run.last
                and not self.ended
                and link.credit > 0
                and link.session.outgoing_bytes < limit
            ):
                msg_id = run.first_msg_id + at - run.first
                self._write(msg_id, run, block, at, notes.get(msg_id))
                at += 1
                wrote = True
            if at <= run.last:
                first_id = run.first_msg_id + at - run.first
                rest = msgspec.structs.replace(run, first_msg_id=first_id, first=at)
                self._waiting.appendleft((rest, block))
                break
        if wrote and (self.settled or self._drained_at >= 0) and not self.ended:
            self.host.flush_later(self)
        return wrote

    def _write(
        self, msg_id: int, run: commands.Delivery, block: Block, at: int, notes: Pairs | None
    ) -> None:
        route = block.route(at)
        annotations: dict[str, Any] = {key: _DECODE(value) for key, value in notes or ()}
        pieces = encode_message(
            block.form,
            block.properties(at),
            block.body(at),
            exchange=route[0],
            routing_key=route[1],
            first_acquirer=not run.acquired_count,
            delivery_count=run.delivery_count,
            annotations=annotations or None,
        )
        size = sum(map(len, pieces))
        limit = self.link.remote_max_message_size
        if limit and size > limit:
            self.refuse(
                ContentTooLarge(
                    f"message size ({size} bytes) > maximum message size ({limit} bytes)"
                )
            )
            return
        delivery = self.link.delivery(str(msg_id))
        for piece in pieces:
            self.link.stream(piece)
        self.link.advance()
        if self.settled:
            delivery.settle()
            self._unreported += 1
            self._unreported_bytes += size


def wanted(link: Link) -> tuple[int, int | None]:
    """Return the (priority, timeout_ms) that an attach asks for; raises InvalidArgument."""
    said = read_map("link properties", lambda: link.remote_properties)
    priority = _integer(said, PRIORITY, -(1 << 31), (1 << 31) - 1)
    return priority or 0, _integer(said, CONSUMER_TIMEOUT, 1, (1 << 32) - 1)


def _integer(said: Mapping[Any, Any], key: str, least: int, most: int) -> int | None:
    value = said.get(symbol(key), said.get(key))
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(
            f"link property {key}: {value!r}; give an integer from {least} to {most}"
        )
    return int(value)


def read_annotations(given: Mapping[Any, Any]) -> tuple[Pairs, int]:
    """Return a modified outcome's (annotations, delivery time, 0: none); raises InvalidArgument."""
    pairs: dict[str, bytes] = {}
    ready_ms = 0
    for key, value in given.items():
        if not isinstance(key, symbol) or not key.startswith("x-"):
            raise InvalidArgument(
                f"annotation {str(key)[:80]!r} of a modified outcome: keys are symbols that begin "
                "with 'x-', all others are reserved"
            )
        pairs[str(key)] = _ENCODE(_simple(str(key), value))
        if key == DELIVERY_TIME:
            # as in RabbitMQ: what is no integer says no time, and is an annotation all the same
            if isinstance(value, int) and not isinstance(value, bool):
                ready_ms = max(0, min(int(value), DELIVERY_TIME_MAX))
    found = tuple(sorted(pairs.items()))
    if size_bytes(found) > ANNOTATIONS_BYTES_MAX:
        raise InvalidArgument(
            f"annotations of {size_bytes(found)} bytes; {ANNOTATIONS_BYTES_MAX} is the limit"
        )
    return found, ready_ms


def _simple(key: str, value: Any) -> bool | int | str | bytes:
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, (int, timestamp)) and -(1 << 63) <= value < 1 << 63:
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bytes, memoryview)):
        return bytes(value)
    raise InvalidArgument(
        f"annotation {key[:80]!r} of a modified outcome is a {type(value).__name__}; give a "
        "boolean, an integer of 64 bits, a string, a symbol or a binary"
    )
