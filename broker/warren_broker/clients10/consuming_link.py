"""A link on which a client consumes from a queue: deliveries out, outcomes in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from warren_broker.clients10.connection_requests import AnyAnswer
from warren_broker.clients10.dynamic_nodes import TEMPORARY_QUEUE, TemporaryQueue, describe
from warren_broker.clients10.filter_set import FilterSet, read_filters
from warren_broker.clients10.held_deliveries import HeldDeliveries
from warren_broker.clients10.link import LinkHost, LinkPart, accept_attach, tell_outcomes
from warren_broker.clients10.link_requests import (
    Consume,
    Consuming,
    CreditDrained,
    EndConsumer,
    GrantCredit,
    Ranges,
    SetAside,
)
from warren_machines.queue import commands
from warren_machines.queue.annotations import encoded_annotation
from warren_machines.queue.commands import Pairs, rest_of
from warren_wire import relay_names
from warren_wire.amqp10 import deliveries
from warren_wire.amqp10.addresses import QueueSource
from warren_wire.amqp10.deliveries import Outbox, address_of
from warren_wire.amqp10.fields import read_map
from warren_wire.amqp10.link_flows import LinkAddress
from warren_wire.amqp10.message.sent import MessageWriter, encode_message
from warren_wire.amqp10.proton import Delivery, Link, symbol
from warren_wire.block.block import FORM_AMQP091, Block
from warren_wire.errors import ContentTooLarge, InvalidArgument, Refusal, continued

RELAY_NAME_MAX: Final = 4_096
PRIORITY: Final = "rabbitmq:priority"
CONSUMER_TIMEOUT: Final = "rabbitmq:consumer-timeout"
REPORT_MESSAGES: Final = 1_024
"""After that many settled deliveries, or REPORT_BYTES, the queue is told that they have left."""
REPORT_BYTES: Final = 8 << 20
_OUTCOMES: Final = (
    Delivery.ACCEPTED,
    Delivery.REJECTED,
    Delivery.RELEASED,
    Delivery.MODIFIED,
)
_NO_BOUND: Final = 1 << 62


class ConsumingLink(LinkPart):
    """A consumer's link.

    Deliveries wait here while the client's socket is slow; they are runs of blocks, and the queue
    gives no more than the client's credit. Credit and outcomes of one pass go to the queue at its
    end (`flush`).

    A client that holds a delivery for longer than the consumer timeout keeps its link: what it held
    is released, and the queue has a new consumer for the link. It gives that one nothing before the
    client has settled what was released.

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
        self._outbox = Outbox(link, host.frames)
        self._activity = Activity(link, host)
        self._writer = MessageWriter()
        self._size_max = int(link.remote_max_message_size)
        self._waiting: deque[tuple[commands.Delivery, Block]] = deque()
        self._next_msg_id = 0
        self._granted = (0, 0)  # what the queue was told last: a sum, the reports of what has left
        self._drain_told = False  # the client waits for the answer
        self._draining = False  # the queue was asked
        self._drained_at = -1  # where the queue's answer to a drain said that the old credit ends
        self._unreported = self._unreported_bytes = 0
        self._held = HeldDeliveries(0, 0, host.tell, host.bounds)
        self._retired: list[RetiredConsumer] = []
        self._queue = "" if source is None else source.queue
        self._said = wanted(link)
        self._relay = relay_of(link)
        self._filters: FilterSet = read_filters(link)
        self._temporary: TemporaryQueue | None = None
        if source is None:
            self._temporary = TemporaryQueue(self, temporary_of, self._consume)
        else:
            self._consume(source.queue)

    def _consume(self, queue: str) -> None:
        self._queue = queue
        said = (*self._said, self._filters.filter, self._relay)
        request = Consume(queue, self.link.name, self.settled, *said)
        if self._held.consumer:
            self.host.ask(request, continued(self.refuse, self._rejoined))
        else:
            self.host.ask(request, continued(self.refuse_opening, self._answered))

    def _answered(self, answer: Consuming) -> None:
        if self._joined(answer):
            self._activity.attach(self._accept)
            self.flow()

    def _accept(self) -> None:
        accept_attach(self.link)
        tell_outcomes(self.link)
        self._filters.answer(self.link)
        if self._temporary is not None:
            describe(self.link.source, self._temporary.name, TEMPORARY_QUEUE)
        self.link.snd_settle_mode = Link.SND_SETTLED if self.settled else Link.SND_UNSETTLED

    def _rejoined(self, answer: Consuming) -> None:
        if self._joined(answer):
            self.flow()

    def _joined(self, answer: Consuming) -> bool:
        """Note the link's consumer; return False when the link has ended meanwhile."""
        if self.ended:
            self.host.tell(EndConsumer(answer.consumer, failed=False))
            return False
        self.consumer = answer.consumer
        first_tag = self._held.first_tag + self._next_msg_id
        self._next_msg_id = 0
        self._held = HeldDeliveries(answer.consumer, first_tag, self.host.tell, self.host.bounds)
        self._held.unsettled.plain = not self._retired
        self.host.frames.take_outcomes(self.link, self._held.unsettled, self._settled_some)
        self.host.consumers[answer.consumer] = self
        self._activity.change(answer.active)
        return True

    # ------------------------------------------------------------ from the queue

    @property
    def waits_to_write(self) -> bool:
        """Whether messages wait for credit, the session's window or the connection's bounds."""
        return bool(self._waiting)

    def deliver(self, delivery: commands.Delivery, block: Block) -> None:
        """Take messages from the queue."""
        if not self.ended:
            self.missed(delivery.first_msg_id)
            after = delivery.first_msg_id + delivery.last - delivery.first + 1
            if block.form != FORM_AMQP091:
                self._set_aside(delivery, after)
                return
            self._next_msg_id = after
            self.host.bounds.undelivered_bytes += _kept_bytes(delivery, block)
            self._waiting.append((delivery, block))
            self.wake()

    def _set_aside(self, run: commands.Delivery, after: int) -> None:
        """Discard messages of a block that cannot be read; see `BlockCache.for_delivery`."""
        for msg_id in range(run.first_msg_id, after):
            reason = "its block cannot be read"
            self.host.tell(SetAside(self._held.consumer, run.index, msg_id, reason))
        if not self.settled:
            msg_ids = ((run.first_msg_id, after - 1),)
            self.host.tell(commands.Discard(self._held.consumer, msg_ids, failed=True))
        self.missed(after)

    def missed(self, msg_id: int) -> None:
        """Note that deliveries below this one that have not arrived never will."""
        if msg_id > self._next_msg_id:
            self._next_msg_id = msg_id
            self._granted = (-1, self._granted[1])  # the client still has the credit they used
            self.flow()

    def tell_active(self, active: bool) -> None:
        """Note whether the queue has it as its single active consumer."""
        self._activity.change(active, single=True)
        self.wake()

    def cancelled(self, refusal: Refusal) -> None:
        """End the link: the queue has cancelled its consumer."""
        self.wake()
        self.refuse(refusal)

    def timed_out(self, msg_ids: Ranges) -> bool:
        """Release what the client held for too long, and ask for a new consumer.

        msg_ids  the consumer does not have them any more; none: which ones is not known, all of
                 them are given back
        Return whether this is the first time.
        """
        if self.ended or not self.consumer:
            return False
        retired = RetiredConsumer(self, self._held)
        self._held.unsettled.plain = False
        self.host.consumers[self.consumer] = retired
        self._retired.append(retired)
        self._held.give_back(tuple(_ids(run) for run, _ in self._waiting))
        self._drop_waiting()
        self.consumer, self._granted = 0, (0, 0)
        self._draining, self._drained_at = False, -1
        if msg_ids:
            retired.timed_out(msg_ids)
        else:
            self._held.release(((0, self._next_msg_id),))
            self._held.end(failed=False)
        self._consume(self._queue)
        return self._held.first_tag == 0

    def refuse(self, refusal: Refusal) -> None:
        """End the link, and its consumer, with an error."""
        super().refuse(refusal)
        self._end(failed=False)

    # ------------------------------------------------------------ from the client

    def flow(self, *, told: bool = False) -> None:
        """Tell the queue of the client's credit at the end of this pass."""
        self._drain_told = bool(self.link.drain_mode) and (told or self._drain_told)
        if self.consumer and not self.ended:
            self.host.flush_later(self)
            self.wake()

    def abort_unsent(self) -> None:
        """Take back what was written and not sent."""
        if self.link.queued:
            for held in (*(retired.held for retired in self._retired), self._held):
                held.abort()

    def gone(self) -> None:
        """End the consumer: the client has ended the link or its session."""
        self._end(failed=self.session_ended)

    def _drop_waiting(self) -> None:
        bounds = self.host.bounds
        bounds.undelivered_bytes -= sum(_kept_bytes(*each) for each in self._waiting)
        self._waiting.clear()

    def _end(self, *, failed: bool) -> None:
        self._drop_waiting()
        self.consumer = 0
        for held in (*(retired.held for retired in self._retired), self._held):
            self.host.consumers.pop(held.consumer, None)
            held.end(failed=failed)
            held.forget()
        self._retired.clear()
        if self._temporary is not None:
            self._temporary.delete()

    def _settled_some(self) -> None:
        """Have outcomes without fields passed on, which the engine has taken."""
        if self._held.settled():
            self.host.flush_later(self)

    def delivery(self, delivery: Delivery) -> None:
        """Handle the outcome of a delivery."""
        if self.ended or not (delivery.settled or delivery.remote_state in _OUTCOMES):
            return
        for held in (self._held, *(retired.held for retired in self._retired)):
            tag = held.tag_of(delivery)
            if tag >= 0:
                break
        else:
            return  # an earlier event of this pass has settled it
        try:
            held.outcome(tag, delivery)
        except Refusal as refusal:
            self.refuse(refusal)
            return
        # also where nothing is told: the last one that was overdue kept the queue from giving more
        self.host.flush_later(self)

    # ------------------------------------------------------------ at the end of a pass

    def flush(self) -> None:
        """Pass on outcomes, and credit if it has changed."""
        if self.ended:
            return
        self._flush_outcomes()
        if not self.consumer:
            return
        self._finish_drain()
        self._activity.credited |= self._outbox.credit > 0
        self._report_active()
        delivered = self._waiting[0][0].first_msg_id if self._waiting else self._next_msg_id
        drain = bool(self.link.drain_mode) and self._outbox.credit > 0
        if not drain or (self._waits and not self._waiting):
            self._answer_drain()  # nothing may come: the queue need not be asked
            drain = False
        credit = 0 if self._waits else self._outbox.credit
        granted = (delivered + credit, self._left() if self.settled else 0)
        if drain:
            if not self._draining and self._drained_at < 0:
                self._draining = True
                self._granted = granted
                self.host.ask(
                    GrantCredit(self.consumer, delivered, credit, True),
                    partial(self._drained, self.consumer),
                )
        elif granted != self._granted:
            self._granted = granted
            self.host.tell(GrantCredit(self.consumer, delivered, credit))

    @property
    def _waits(self) -> bool:
        """Whether the client has not settled all that was released."""
        return any(retired.held.overdue for retired in self._retired)

    def _flush_outcomes(self) -> None:
        self._held.flush()
        for retired in list(self._retired):
            retired.held.flush()
            if not len(retired.held):
                self._retired.remove(retired)
                self._held.unsettled.plain = not self._retired
                self.host.consumers.pop(retired.held.consumer, None)
                retired.held.end(failed=False)

    def _left(self) -> int:
        """Count the reports of settled deliveries that have left, one for every REPORT_MESSAGES."""
        if self._unreported < REPORT_MESSAGES and self._unreported_bytes < REPORT_BYTES:
            return self._granted[1]
        self._unreported = self._unreported_bytes = 0
        return self._granted[1] + 1

    def _drained(self, consumer: int, answer: AnyAnswer) -> None:
        if consumer != self.consumer:
            return
        self._draining = False
        if not self.ended and isinstance(answer, CreditDrained):
            self._drained_at = answer.delivered
            self.wake()
            # The queue has ended all credit. If the client has changed its mind meanwhile, it must
            # be told again what there is.
            self.flow()

    def _finish_drain(self) -> None:
        """Give the rest of the credit back once all that the queue had has been sent."""
        if self._drained_at < 0 or self._waiting or self._next_msg_id < self._drained_at:
            return
        self._drained_at = -1
        asked, self._granted = self._granted[0], (self._next_msg_id, self._granted[1])
        if self.link.drain_mode and self._next_msg_id + self._outbox.credit <= asked:
            self._answer_drain()  # otherwise there is more credit, for which the queue is asked

    def _answer_drain(self) -> None:
        if not self._drain_told:
            return
        short, lends = max(0, -self._outbox.credit), self.host.lends_credit
        if short and (self.link.queued or not lends):
            return  # Proton keeps back what is above the credit, and its answer behind that
        # 1. Credit for 10, and 10 are sent.  2. The client has 3, and drains without credit.
        # 3. Proton goes back to 3, and would take the next credit, from 10 on, for 7 more.
        # Replayed by tests/broker/clients10/test_drains.py
        self._drain_told = False
        self._outbox.given_back += max(0, self._outbox.credit)
        answer = partial(deliveries.give_back_credit, self.link, lends)
        if short:
            self.host.flows.with_count_ahead(answer, short)
        else:
            answer()
        self._outbox.behind = short

    # ------------------------------------------------------------ writing

    def wake(self) -> bool:
        """Write what credit and the connection's bounds allow."""
        wrote, bounds = False, self.host.bounds
        has_room, room_on = self._outbox.has_room, self.host.ahead.has_room
        left = _NO_BOUND if self.settled else bounds.may_send(len(self._held))
        while self._waiting and not self.ended:
            run, block = self._waiting.popleft()
            bounds.undelivered_bytes -= _kept_bytes(run, block)
            notes = dict(run.annotations)
            at = run.first
            while at <= run.last and left and not self.ended and has_room(room_on):
                count = 0 if notes else self._write_alike(run, block, at, left)
                if not count:
                    msg_id = run.first_msg_id + at - run.first
                    self._write(msg_id, run, block, at, notes.get(msg_id))
                    count = 1
                at += count
                left -= count
                wrote = True
            if at <= run.last:
                rest = rest_of(run, at - run.first)
                bounds.undelivered_bytes += _kept_bytes(rest, block)
                self._waiting.appendleft((rest, block))
                break
        if wrote and (self.settled or self._drained_at >= 0) and not self.ended:
            self.host.flush_later(self)
        return self._report_active() or wrote

    def _report_active(self) -> bool:
        """Tell the client that its consumer has become active, or is not any more, if it is due.

        Not while a drain waits for its answer, which is a flow as well, and not ahead of messages
        that came before.
        """
        activity = self._activity
        if self.ended or not activity.due or (activity.ends and self._waiting):
            return False
        if self.link.queued or self._drain_told or self._draining or self._drained_at >= 0:
            return False
        activity.tell(self._outbox)
        return True

    def _write_alike(self, run: commands.Delivery, block: Block, at: int, most: int) -> int:
        """Write messages that equal the link's last one up to the body; return how many."""
        like = self._writer.like_last(block, at, run.acquired_count, run.delivery_count)
        if like is None or run.number:  # numbers of a relay are in the tags
            return 0
        count, size = self._outbox.write_run(
            block,
            range(at, min(run.last + 1, at + most, at + self._outbox.credit)),
            like,
            self._held.first_tag + run.first_msg_id + at - run.first,
            (self.host.ahead.room, self._size_max or _NO_BOUND),
            None if self.settled else self._held.unsettled,
        )
        if self.settled:
            self._unreported += count
            self._unreported_bytes += size
        else:
            self._held.sent(count)
        return count

    def _write(
        self, msg_id: int, run: commands.Delivery, block: Block, at: int, notes: Pairs | None
    ) -> None:
        if notes:
            route = block.route(at)
            pieces = encode_message(
                block.form,
                block.properties(at),
                block.body(at),
                exchange=route[0],
                routing_key=route[1],
                acquired_count=run.acquired_count,
                delivery_count=run.delivery_count,
                annotations={
                    key.encode("ascii"): encoded_annotation(value) for key, value in notes
                },
            )
        else:
            pieces = self._writer.encode(block, at, run.acquired_count, run.delivery_count)
        size = sum(map(len, pieces))
        limit = self._size_max
        if limit and size > limit:
            self.refuse(
                ContentTooLarge(
                    f"message size ({size} bytes) > maximum message size ({limit} bytes)"
                )
            )
            return
        tag = self._held.first_tag + msg_id
        named = b"%d" % tag
        if run.number:
            named = relay_names.delivered_tag(tag, run.origin, run.number + at - run.first)
        delivery = self._outbox.write(named, pieces, size)
        if self.settled:
            deliveries.settle(delivery)
            self._unreported += 1
            self._unreported_bytes += size
        else:
            self._held.unsettled.tags[address_of(delivery)] = tag
            self._held.sent(1)


ACTIVE: Final = "rabbitmq:active"


class Activity:
    """Tells a client by flows with the property `rabbitmq:active`.

    A consumer that becomes the single active one is told so at once; otherwise the first flow
    follows the client's first credit. Another one follows each change. Consumers of queues without
    a single active one are always active.

    credited  the client has given credit
    """

    def __init__(self, link: Link, host: LinkHost) -> None:
        self.credited = False
        self._link = link
        self._host = host
        self._address: LinkAddress | None = None
        self._active: bool | None = None  # None: not known, or not to be told
        self._told: bool | None = None
        self._at_once = False

    def attach(self, accept: Callable[[], None]) -> None:
        """Have the attach answered, and note where flows go."""
        self._address = self._host.flows.attach(accept)

    def change(self, active: bool | None, *, single: bool = False) -> None:
        """Note the state; single: the queue has a single active consumer, and says which."""
        self._active = active
        self._at_once |= single and active is True

    @property
    def due(self) -> bool:
        """Whether the client is to be told."""
        return (self.credited or self._at_once) and self._active not in (None, self._told)

    @property
    def ends(self) -> bool:
        """Whether the consumer is not active any more: what was sent before comes before that."""
        return not self._active

    def tell(self, outbox: Outbox) -> None:
        """Tell the client, on a link on which nothing waits for the session's window."""
        self._told = self._active
        if self._address is not None:
            count, credit = outbox.delivery_count, max(0, outbox.credit)
            properties = {ACTIVE: bool(self._active)}
            self._host.flows.tell(self._link, self._address, count, credit, properties)


class RetiredConsumer:
    """A link's consumer that has timed out; the client may settle what it was not too late for."""

    def __init__(self, part: ConsumingLink, held: HeldDeliveries) -> None:
        self.held = held
        self._part = part
        self.waits_to_write = False  # what comes is given back at once

    def deliver(self, delivery: commands.Delivery, block: Block) -> None:
        """Give messages back that were on their way."""
        self.held.give_back((_ids(delivery),))

    def missed(self, msg_id: int) -> None:
        """Do nothing: nothing more is expected."""

    def tell_active(self, active: bool) -> None:
        """Do nothing: the link has another consumer."""

    def cancelled(self, refusal: Refusal) -> None:
        """End the link, as its consumer would."""
        self._part.cancelled(refusal)

    def timed_out(self, msg_ids: Ranges) -> bool:
        """Release what the client held for too long; the queue is given no credit meanwhile."""
        self.held.release(msg_ids)
        self._part.flow()
        return False


def _kept_bytes(run: commands.Delivery, block: Block) -> int:
    """Return the memory that a run keeps while it waits."""
    return block.kept_bytes(run.first, run.last + 1)


def _ids(run: commands.Delivery) -> tuple[int, int]:
    return run.first_msg_id, run.first_msg_id + run.last - run.first


def wanted(link: Link) -> tuple[int, int | None]:
    """Return the (priority, timeout_ms) that an attach asks for; raises InvalidArgument."""
    said = read_map("link properties", lambda: link.remote_properties)
    priority = _integer(said, PRIORITY, -(1 << 31), (1 << 31) - 1)
    return priority or 0, _integer(said, CONSUMER_TIMEOUT, 1, (1 << 32) - 1)


def relay_of(link: Link) -> str:
    """Return the relay's name that an attach gives, "" for none; raises InvalidArgument."""
    said = read_map("link properties", lambda: link.remote_properties)
    name = said.get(symbol(relay_names.ARGUMENT), "")
    if not isinstance(name, str) or len(name) > RELAY_NAME_MAX:
        raise InvalidArgument(
            f"link property {relay_names.ARGUMENT}: give a string of {RELAY_NAME_MAX} characters "
            "at most"
        )
    return str(name)


def _integer(said: Mapping[Any, Any], key: str, least: int, most: int) -> int | None:
    value = said.get(symbol(key), said.get(key))
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(
            f"link property {key}: {value!r}; give an integer from {least} to {most}"
        )
    return int(value)
