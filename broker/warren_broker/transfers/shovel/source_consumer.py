"""A run's consumer at its source, which begins and ends with the demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pika

from warren_wire import relay_names
from warren_wire.arguments import NAME_BYTES_MAX

FIRST_DELIVERY: Final = 1
"""Delivery tags of a channel begin with it, and leave out none."""


@dataclass(eq=False, repr=False)
class SourceConsumer:
    """The consumer on a channel: one while messages are wanted, none else.

    tag         of the consumers, with a number, and cut where that is too long; None: the library
                chooses
    on_message  called with each delivery, as pika does
    on_begun    called when the source delivers
    exclusive   there may be no other consumer of the queue
    on_gap      told in words that a delivery has not arrived; nothing is passed on any more
    rejects     after `stop` what arrives is rejected; False: it is passed on

    Nothing is begun or cancelled before the last basic.consume is answered. 1. The source does not
    answer one at once, since its queue's leader hangs.  2. The demand ends, begins and ends.
    3. pika keeps the second basic.consume back until the first is answered, while a cancel without
    an answer leaves at once.  4. So the cancel would come before its consumer, which would stay for
    ever, and have every other message.

    A consumer with another prefetch begins before the one that it replaces ends. 1. The shovel is
    the last consumer of an auto-delete queue.  2. It cancels, to consume again.  3. The queue is
    deleted in between, with all that is in it.  So there are two for a moment. An exclusive one and
    a relay's, which cannot be beside another, end first.

    Every delivery is seen here, so that an acknowledgement of several covers none that was not.

    Replayed by tests/broker/transfers/shovel/test_source_consumer.py
    """

    channel: Any
    queue: str
    arguments: Mapping[str, Any]
    tag: str | None
    on_message: Callable[[Any, Any, Any, bytes], None]
    on_begun: Callable[[], None]
    on_gap: Callable[[str], None]
    exclusive: bool = False
    rejects: bool = True
    _on_stopped: Callable[[], None] = lambda: None
    _made: int = 0
    _wanted: bool = False
    _asked: bool = False
    _stopped: bool = False
    _replaces: bool = False
    _current: str = ""
    _before: list[str] = field(default_factory=list)
    _next_delivery: int = FIRST_DELIVERY
    _is_alone: bool = field(init=False)

    def __post_init__(self) -> None:
        self._is_alone = self.exclusive or relay_names.ARGUMENT in self.arguments

    def want(self, wanted: bool) -> None:
        """Have messages delivered, or no more than what is under way."""
        self._wanted = wanted
        self._adjust()

    def limit(self, prefetch: int) -> None:
        """Have at most that many under way; a consumer that is there is replaced."""

        def ready(frame: Any) -> None:
            if self._current and not self._stopped:
                if self._is_alone:
                    self._cancel()
                else:
                    self._replaces = True
            self._adjust()

        self.channel.basic_qos(prefetch_count=prefetch, callback=ready)

    def stop(self, done: Callable[[], None]) -> None:
        """Begin nothing more. `done` is called when no further delivery comes.

        With `rejects` it is called at once.
        """
        self._stopped = True
        if self.rejects:
            if self._current:
                self.channel.basic_cancel(self._current)
            done()
        elif self._asked:
            self._on_stopped = done
        else:
            self._end(done)

    def _end(self, done: Callable[[], None]) -> None:
        if not self._current:  # a cancel without an answer may be under way
            self.channel.basic_qos(prefetch_count=1, callback=lambda frame: done())
            return
        self.channel.basic_cancel(self._current, callback=lambda frame: done())
        self.channel._cancelled.discard(self._current)  # pika would reject what arrives

    def _adjust(self) -> None:
        if self._asked or self._stopped:
            return
        if self._wanted and (self._replaces or not self._current):
            self._begin()
        elif self._current and not self._wanted:
            self._cancel()

    def _begin(self) -> None:
        self._asked, self._replaces = True, False
        self._made += 1

        def begun(frame: Any) -> None:
            self._asked = False
            # All deliveries of those that were cancelled before this one began have come.
            for tag in self._before:
                self.channel._consumers.pop(tag, None)
            self._before.clear()
            if self._current and not (self._stopped and self.rejects):
                self._cancel()
            self._current = frame.method.consumer_tag
            if self._stopped and self.rejects:
                self.channel.basic_cancel(self._current)
                return
            if self._stopped:
                self._end(self._on_stopped)
                return
            self.on_begun()
            self._adjust()

        self.channel.basic_consume(
            self.queue,
            self._delivered,
            consumer_tag=self._numbered_tag(),
            arguments=dict(self.arguments),
            exclusive=self.exclusive,
            callback=begun,
        )

    def _numbered_tag(self) -> str | None:
        if self.tag is None:
            return None
        number = f"-{self._made}"
        room = NAME_BYTES_MAX - len(number)
        return self.tag.encode()[:room].decode(errors="ignore") + number

    def _cancel(self) -> None:
        """Have no more delivered, and take what is under way.

        pika's `basic_cancel` rejects deliveries that arrive after it. 1. Each rejection counts as a
        delivery at the source.  2. Demand comes and goes.  3. The messages exceed the source's
        delivery limit, which drops them, although they were delivered to nothing.
        """
        tag, self._current, self._replaces = self._current, "", False
        self._before.append(tag)
        self.channel._send_method(pika.spec.Basic.Cancel(consumer_tag=tag, nowait=True))

    def _delivered(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        wanted, found = self._next_delivery, method.delivery_tag
        if found == wanted:
            self._next_delivery += 1
            self.on_message(channel, method, properties, body)
        elif wanted:
            self._next_delivery = 0
            self.on_gap(f"delivery {wanted} has not arrived, {found} has; what is open returns")
