"""The sink's connection to an AMQP 1.0 broker: rows leave with credit, outcomes confirm them.

A link is attached for each address that rows go to. RabbitMQ and Warren have addresses of exchanges
and of queues; at other brokers the exchange is the address and the routing key the subject, or,
without an exchange, the routing key is the address.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import deque
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import pika
from pika.adapters.select_connection import IOLoop

from pyspark_warren.amqp10.connection import (
    REDIRECTS_MAX,
    Peer10,
    RedirectedError,
    of_condition,
    redirected,
)
from pyspark_warren.amqp10.links import Link10
from pyspark_warren.errors import (
    BrokerUnavailableError,
    NotRoutableError,
    PublishError,
    WarrenSparkError,
)
from pyspark_warren.options.options import Options
from pyspark_warren.sink.kept import linked
from pyspark_warren.sink.publish import TOO_LARGE, Publishing
from pyspark_warren.sink.subjects import with_subject
from pyspark_warren.sink.window import Run
from warren_wire.amqp10.deliveries import (
    ACCEPTED,
    REJECTED,
    RELEASED,
    Handle,
    Outbox,
    handle_of,
    is_settled,
    peer_outcome,
    settle,
    wrapped,
)
from warren_wire.amqp10.message.sent import encode_message
from warren_wire.amqp10.proton import Condition, Link, Terminus, lib
from warren_wire.block.layout import FORM_AMQP091
from warren_wire.sessions.connection10 import SIZE_EXCEEDED

ADDRESSES_MAX: Final = 200
"""Links at the same time; those without rows under way are ended for others."""
_MODIFIED: Final = int(lib.PN_MODIFIED)
_REASONS: Final = {
    REJECTED: "the broker rejects it",
    RELEASED: "the broker releases it: nothing is bound for its address, or it cannot take it now",
    _MODIFIED: "the broker answers modified: it cannot be delivered there",
}


class Channel10:
    """What one task's rows are sent on; see `publish.SinkChannel`. Tags are those of its window.

    number  of the last row that was given to the connection
    """

    def __init__(self, options: Options, doing: str, owner: Publishing) -> None:
        self.owner, self.number = owner, 0
        self._link = linked(options, doing, partial(opened, options, doing))
        self.at = self._link.at

    def open(self, timeout_s: float) -> None:
        """See SinkChannel: the connection is open."""
        self._link.post(partial(self._link.use, self))

    def send(self, run: Run, doing: str) -> None:
        """See SinkChannel."""
        self._link.post(partial(self._link.send, self, run))

    def close(self) -> None:
        """See SinkChannel; the connection stays for the process's next task."""
        self._link.post(partial(self._link.leave, self))

    def silent_end(self, doing: str) -> WarrenSparkError | None:
        """See SinkChannel."""
        return None if self._link.runs else self._link.failure

    def blocked_text(self) -> str:
        """See SinkChannel."""
        count = self._link.waiting
        return f"; {count} of them wait for credit, which the broker does not give" * bool(count)


def opened(options: Options, doing: str, one: pika.ConnectionParameters) -> Publisher10:
    """Open a connection, to whichever broker that one names; raises WarrenSparkError."""
    for _ in range(REDIRECTS_MAX):
        made = Publisher10(options, one, doing)
        try:
            made.wait()
            return made
        except RedirectedError as why:
            one, _address = redirected(one, why)
    raise BrokerUnavailableError(f"{doing}: {one.host}:{one.port} is a redirect too many")


class Publisher10(Peer10):
    """A connection with a thread, and its links by address.

    waiting  rows without credit

    Invariant: `_sent` has the rows that left and have no outcome, with the channel of each
    """

    def __init__(self, options: Options, one: pika.ConnectionParameters, doing: str) -> None:
        self._loop = IOLoop()
        self._pid = os.getpid()
        self._is_open = threading.Event()
        self._channel: Channel10 | None = None
        self._senders: dict[str, _Sending] = {}
        self._sent: dict[Handle, tuple[Channel10, int, _Sending]] = {}
        self._accepted: list[int] = []
        self.waiting = 0
        super().__init__(self._loop, options, one, doing)
        self._thread = threading.Thread(target=self._run, name="warren-sink", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until it is open; raises why it is not."""
        # an attempt ends after stack_timeout by itself
        if not self._is_open.wait(10 * self.one.stack_timeout):
            self.close()
            raise BrokerUnavailableError(f"{self.doing}: {self.at}: it did not answer in time")
        if self._why is not None:
            raise self._why

    @property
    def alive(self) -> bool:
        """See KeptLink."""
        return self._why is None and self._pid == os.getpid() and self.runs and not self.over

    @property
    def runs(self) -> bool:
        """Whether its thread does: after that nothing is told any more."""
        return self._thread.is_alive()

    @property
    def failure(self) -> WarrenSparkError:
        """Return why it has ended."""
        text = f"{self.doing}: {self.at}: the connection has ended"
        return self._why or BrokerUnavailableError(text)

    def close(self) -> None:
        """Close without waiting for the end; callable from any thread."""
        if self._pid == os.getpid():
            self.post(super().close)

    def _run(self) -> None:
        try:
            self._loop.start()
        finally:
            self._is_open.set()
            self._loop.close()

    def _ready(self) -> None:
        self._is_open.set()

    def _lost(self, why: WarrenSparkError | None) -> None:
        if self._channel is not None:
            self._channel.owner.closed(self._channel, self.failure, 0)
        self._is_open.set()
        self._loop.stop()

    # ------------------------------------------------------------ in the connection's thread

    def use(self, channel: Channel10) -> None:
        """Have a channel be the one that rows are of."""
        self._channel = channel
        if self._ended:
            channel.owner.closed(channel, self.failure, 0)

    def leave(self, channel: Channel10) -> None:
        """Forget a channel's rows that have not left."""
        if self._channel is channel:
            self._channel = None
            for each in self._senders.values():
                self.waiting -= len(each.rows)
                each.rows.clear()

    def send(self, channel: Channel10, run: Run) -> None:
        """Send rows, as far as there is credit."""
        if self.over or self._channel is not channel:
            return
        rows = run.rows
        routes = [self._sender(*route) for route in rows.routes]
        ids = [0] * len(rows) if rows.route_ids is None else rows.route_ids.to_pylist()
        for at, route in enumerate(ids):
            channel.number += 1
            routes[route].rows.append((channel.number, run, at))
            self.waiting += 1
        for each in dict.fromkeys(routes):
            each.pump()
        self.flush_later()

    def _sender(self, exchange: str, key: str) -> _Sending:
        address, subject = self._route(exchange, key)
        found = self._senders.pop(address, None)
        if found is None:
            idle = [name for name, each in self._senders.items() if each.idle]
            for name in idle[: max(0, len(self._senders) + 1 - ADDRESSES_MAX)]:
                self._senders.pop(name).leave()
            found = _Sending(self, address, subject)
        self._senders[address] = found
        return found

    def _route(self, exchange: str, key: str) -> tuple[str, bool]:
        """Return the address of a route, and whether the routing key is the subject."""
        if self.speaks_rabbit:
            if not exchange:
                return self.address_of(key), False
            place = f"/exchanges/{quote(exchange, safe='')}"
            return (f"{place}/{quote(key, safe='')}" if key else place), False
        return (exchange, True) if exchange else (key, False)

    def note_sent(self, handle: Handle, tag: int, sender: _Sending) -> None:
        """Note a row that has left."""
        assert self._channel is not None
        self._sent[handle] = self._channel, tag, sender
        self.waiting -= 1

    def refuse(self, tag: int, why: str) -> None:
        """Refuse a row that cannot be sent."""
        if self._channel is not None:
            self._channel.owner.refused(self._channel, tag, PublishError, why)

    def outcome(self, delivery: Handle) -> bool:
        """Take the outcome of a row; see `Engine.on_delivery`."""
        found = peer_outcome(delivery)
        if found not in (ACCEPTED, REJECTED, RELEASED, _MODIFIED) and not is_settled(delivery):
            return True
        channel, tag, sender = self._sent.pop(delivery)
        sender.under_way -= 1
        if channel is self._channel:
            if found == ACCEPTED:
                self._accepted.append(tag)
            else:
                self._refused(channel, tag, found, delivery)
        settle(delivery)
        return True

    def _refused(self, channel: Channel10, tag: int, found: int, delivery: Handle) -> None:
        why = _REASONS.get(found, "the broker settles it without an outcome")
        condition = wrapped(delivery).remote.condition if found == REJECTED else None
        if condition is not None:
            why += f": {condition.name}: {condition.description or 'no reason'}"
        kind = NotRoutableError if found == RELEASED and self.speaks_rabbit else PublishError
        channel.owner.refused(channel, tag, kind, why)

    def on_pass(self) -> None:
        """Tell the confirms that have arrived together."""
        accepted, self._accepted = self._accepted, []
        if self._channel is not None:
            for tag in accepted:
                self._channel.owner.confirmed(self._channel, tag, False, True)

    def link_closed(self, sender: _Sending, condition: Condition | None) -> None:
        """Note the end of a link by the broker; the task ends, or sends on another connection."""
        if self._senders.get(sender.address) is not sender:
            return  # it was left
        del self._senders[sender.address]
        if condition is None or self._channel is None:
            self.ended_by(condition, f"it has closed the link to {sender.address}")
            return
        error = of_condition(condition, self.doing, self.at)
        code = TOO_LARGE if condition.name == SIZE_EXCEEDED else 0
        self._channel.owner.closed(self._channel, error, code)
        self._failed(error)  # what was on the link has no outcome any more


class _Sending(Link10):
    """The link to one address.

    rows       that have not left
    under_way  rows that have left and have no outcome
    """

    def __init__(self, owner: Publisher10, address: str, subject: bool) -> None:
        self._owner, self.address, self._subject = owner, address, subject
        self.rows: deque[tuple[int, Run, int]] = deque()
        self.under_way = 0
        assert owner.session is not None
        link = owner.session.sender(f"{address} {uuid.uuid4()}")
        link.target.address = address
        link.target.durability = Terminus.NONDURABLE
        link.snd_settle_mode = Link.SND_UNSETTLED
        owner.client.engine.on_delivery[handle_of(link)] = owner.outcome
        super().__init__(owner, link)
        self._outbox: Outbox | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing of it is under way."""
        return not self.rows and not self.under_way

    def ready(self) -> None:
        """See Link10."""
        self._outbox = Outbox(self.link, self._owner.client.engine)
        self.pump()

    def credited(self) -> None:
        """See ClientLink."""
        self.pump()

    def closed(self, condition: Condition | None) -> None:
        """See ClientLink."""
        self._owner.client.engine.on_delivery.pop(handle_of(self.link), None)
        self._owner.link_closed(self, condition)

    def leave(self) -> None:
        """End the link, of which nothing is under way."""
        self.link.close()

    def pump(self) -> None:
        """Send rows as far as there is credit."""
        if self._outbox is None or self._owner.over:
            return
        limit = int(self.link.remote_max_message_size)
        while self.rows and self._outbox.credit > 0:
            tag, run, at = self.rows.popleft()
            pieces = self._encoded(run, at)
            size = sum(map(len, pieces))
            if limit and size > limit:
                self._owner.refuse(tag, f"{size} bytes; the broker takes {limit}")
                return
            handle = self._outbox.write(tag.to_bytes(8, "big"), pieces, size)
            self.under_way += 1
            self._owner.note_sent(handle, tag, self)
        self._owner.flush_later()

    def _encoded(self, run: Run, at: int) -> list[Any]:
        rows = run.rows
        exchange, key = rows.routes[0 if rows.route_ids is None else rows.route_ids[at].as_py()]
        pieces = encode_message(
            FORM_AMQP091,
            rows.properties[at].as_py(),
            rows.bodies[at].as_py(),
            exchange=exchange.encode(),
            routing_key=key.encode(),
        )
        if self._subject:
            pieces = [with_subject(bytes(pieces[0]), key.encode()), *pieces[1:]]
        return pieces
