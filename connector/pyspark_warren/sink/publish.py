"""The sink's task at another AMQP broker: rows within a window of unconfirmed ones.

At least once: a row without a confirm when the connection is lost is sent again on
the next one, with the same message_id. A row that the broker returns or rejects ends the task.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias

from pyspark_warren.amqp.connection import named
from pyspark_warren.errors import (
    BrokerUnavailableError,
    NotRoutableError,
    PublishError,
    WarrenSparkError,
)
from pyspark_warren.options.options import Options
from pyspark_warren.rows.blocks import size_bytes
from pyspark_warren.rows.encode import EncodedRows
from pyspark_warren.sink.kept import KeptConnection
from pyspark_warren.sink.window import PUBLISH_WINDOW_BYTES, Run, Window, row_text
from warren_wire.amqp091.codec import FRAME_OVERHEAD_BYTES, content_frames, method_frame
from warren_wire.amqp091.methods import BasicPublish

_RUNS_PER_WINDOW: Final = 4
"""A window is sent in so many pieces, so that the broker confirms one while others are made."""
_CONTENT_HEAD_BYTES: Final = 12
"""Class, weight and body size before the property list in a content header."""
TOO_LARGE: Final = 311
_OF_ROWS: Final = frozenset({TOO_LARGE, 406})
"""Reply codes that refuse a row: content-too-large; precondition-failed, which is RabbitMQ's for a
message above its limit, a user_id of another user and others."""
_LATER_S: Final = 0.5


class SinkChannel(Protocol):
    """What rows are sent on, and confirmed; the methods are the task's.

    at  host and port
    """

    at: str

    def open(self, timeout_s: float) -> None:
        """Open it; raises why not."""

    def send(self, run: Run, doing: str) -> None:
        """Give rows to the connection; PublishError for one that does not fit."""

    def close(self) -> None:
        """Close it, if it is open."""

    def silent_end(self, doing: str) -> WarrenSparkError | None:
        """Return the failure of a connection with an ended thread; None: it runs."""

    def blocked_text(self) -> str:
        """Return that the broker takes no rows now, for an error's text; "": it does."""


OpenChannel: TypeAlias = "Callable[[Publishing], SinkChannel]"


class Publishing:
    """One task's channel in confirm mode; opened at the first row, and again when lost.

    The task's thread adds rows and waits; the connection's thread notes confirms. `_changed` guards
    what both use: `_window`, `_failure`, `_lost`, `_progress_s`, `_lost_since_s`.

    Invariant: each added row is confirmed, in `_window`, or in `_waiting`
    """

    def __init__(self, options: Options, doing: str, made: OpenChannel) -> None:
        self._options = options
        self.doing = doing
        self._made = made
        self._waiting: deque[Run] = deque()
        self._channel: SinkChannel | None = None
        self._changed = threading.Condition()
        self._window = Window(options.publish_window)
        self._failure: WarrenSparkError | None = None
        self._lost: WarrenSparkError | None = None
        self._progress_s = time.monotonic()
        self._lost_since_s: float | None = None

    def add(self, rows: EncodedRows, first: int) -> None:
        """Send rows; waits until the window has room for the last of them.

        first  number of the first row in the partition
        """
        for run in _runs(rows, first, self._options.publish_window):
            self._waiting.append(run)
            self._send_waiting()

    def finish(self) -> None:
        """Wait until all rows are confirmed."""
        while True:
            self._send_waiting()
            with self._changed:
                if self._broken():
                    continue
                if not self._window.rows:
                    return
                self._wait()

    def close(self) -> None:
        """Close the channel; the connection stays for the process's next task."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    # ------------------------------------------------------------------ the task's thread

    def _send_waiting(self) -> None:
        while self._waiting:
            if self._channel is None:
                self._open()
            with self._changed:
                if self._broken() or self._channel is None:
                    continue
                run = self._waiting[0]
                if not self._window.fits(run):
                    self._wait()
                    continue
                if not self._window.rows:
                    self._progress_s = time.monotonic()
                self._window.send(self._waiting.popleft())
                channel = self._channel
            channel.send(run, self.doing)

    def _wait(self) -> None:
        """Wait for news, with the lock held."""
        timeout_s = self._options.confirm_timeout_ms / 1000
        left_s = self._progress_s + timeout_s - time.monotonic()
        if left_s <= 0:
            assert self._channel is not None
            raise BrokerUnavailableError(
                f"{self.doing}: no confirm from {self._channel.at} for confirmTimeout="
                f"{timeout_s:g}s, {self._window.rows} rows are unconfirmed"
                f"{self._channel.blocked_text()}; raise confirmTimeout, or look at the broker"
            )
        self._changed.wait(min(left_s, _LATER_S))

    def _broken(self) -> bool:
        """Raise the failure; take back what a lost channel had not confirmed. With the lock held.

        Connections may be lost for requestTimeout without a confirm between: a row that ends each
        connection that carries it must not be sent for ever.
        """
        if self._failure is not None:
            raise self._failure
        if self._lost is None and self._channel is not None:
            self._lost = self._channel.silent_end(self.doing)
        if self._lost is None:
            return False
        now_s = time.monotonic()
        self._lost_since_s = self._lost_since_s or now_s
        if now_s - self._lost_since_s > self._options.request_timeout_ms / 1000:
            raise self._lost
        self._waiting.extendleft(reversed(self._window.unconfirmed()))
        self._window = Window(self._options.publish_window)
        self._lost = self._channel = None
        return True

    def _open(self) -> None:
        self._channel = channel = self._made(self)
        try:
            channel.open(self._options.request_timeout_ms / 1000)
        except Exception as wrong:
            with self._changed:
                self._channel = None
                error = named(wrong, self.doing, channel.at)
                if not isinstance(error, BrokerUnavailableError):
                    raise error from None
                self._lost = error
                self._broken()
            time.sleep(_LATER_S)

    # ------------------------------------------------------------------ the connection's thread

    def confirmed(self, channel: SinkChannel, tag: int, multiple: bool, good: bool) -> None:
        """Note a basic.ack or basic.nack."""
        with self._changed:
            if channel is not self._channel:
                return  # of a channel that was given up
            if not good:
                self._fail(PublishError(f"{self.doing}: {self._rejected(tag)}"))
            elif self._window.confirm(tag, multiple):
                self._progress_s = time.monotonic()
                self._lost_since_s = None
                self._changed.notify()

    def returned(self, exchange: str, key: str, message_id: str, reason: str) -> None:
        """Note a basic.return: no binding leads to a queue."""
        with self._changed:
            self._fail(
                NotRoutableError(
                    f"{self.doing}: no queue for the row with exchange {exchange!r}, routing key "
                    f"{key!r}, message_id {message_id!r}: {reason}; bind a queue, or give another "
                    "exchange or routingKey"
                )
            )

    def refused(
        self, channel: SinkChannel, tag: int, kind: type[WarrenSparkError], why: str
    ) -> None:
        """Note an outcome that is not accepted."""
        with self._changed:
            if channel is self._channel:
                found = self._window.row_of(tag)
                row = "a row" if found is None else row_text(*found)
                self._fail(kind(f"{self.doing}: {row}: {why}"))

    def closed(self, channel: SinkChannel, reason: Exception, code: int) -> None:
        """Note the end of the channel, or of its connection."""
        with self._changed:
            if channel is not self._channel:
                return
            error = named(reason, self.doing, channel.at)
            if code in _OF_ROWS:
                large = f"; {self._largest()}" if "size" in str(reason).lower() else ""
                self._fail(PublishError(f"{self.doing}: {reason.args[-1]}{large}"))
            elif isinstance(error, BrokerUnavailableError):
                self._lost = error
                self._changed.notify()
            else:
                self._fail(error)

    def _fail(self, error: WarrenSparkError) -> None:
        self._failure = self._failure or error
        self._changed.notify()

    def _rejected(self, tag: int) -> str:
        found = self._window.row_of(tag)
        row = "a row" if found is None else row_text(*found)
        return (
            f"the broker rejects {row}: a target queue is full (x-overflow=reject-publish), or "
            "is not available; consume from it and start the query again"
        )

    def _largest(self) -> str:
        """Return the largest unconfirmed row: the broker does not say which one it refuses."""
        sizes = [
            (len(run.rows.bodies[i].as_buffer()), run, i)
            for run in self._window.unconfirmed()
            for i in range(len(run.rows))
        ]
        if not sizes:
            return "no row is unconfirmed"
        size, run, i = max(sizes, key=lambda each: each[0])
        return f"the largest unconfirmed row: {row_text(run, i)}, body of {size} bytes"


class Channel091:
    """A channel of a link, as one `Publishing` uses it; the methods are the task's."""

    def __init__(self, link: KeptConnection, owner: Publishing) -> None:
        self.at = link.at
        self._link = link
        self._owner = owner
        self._channel: Any = None
        self._opened = threading.Event()

    def open(self, timeout_s: float) -> None:
        """Open the channel in confirm mode; raises why not."""
        self._link.call(self._begin)
        end = time.monotonic() + timeout_s
        while not self._opened.wait(_LATER_S):
            if not self._link.alive or time.monotonic() > end:
                raise self._link.failure

    def send(self, run: Run, doing: str) -> None:
        """Give the run's frames to the connection; PublishError for one that does not fit."""
        data = _frames(run, self._channel.channel_number, self._link.frame_max, doing)

        def emit() -> None:
            # A channel that the broker has closed takes no more frames: rows stay unconfirmed.
            if self._channel.is_open:
                self._link.connection._output_marshaled_frames([data])

        self._link.call(emit)

    def close(self) -> None:
        """Close the channel, if it is open."""

        def closing() -> None:
            if self._channel is not None and self._channel.is_open:
                self._channel.close()

        self._link.call(closing)

    def silent_end(self, doing: str) -> WarrenSparkError | None:
        """Return the failure of a connection with an ended thread; None: it runs."""
        return named(self._link.failure, doing, self.at) if self._link.ended else None

    def blocked_text(self) -> str:
        """Return that the broker has blocked publishers, for an error's text; "": it has not."""
        reason = self._link.blocked
        return f"; it has blocked publishers: {reason}" if reason else ""

    def _begin(self) -> None:
        connection = self._link.connection
        if connection.is_open:
            connection.channel(on_open_callback=self._on_open)

    def _on_open(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_close)
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, lambda _frame: self._opened.set())

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        good = method.NAME == "Basic.Ack"
        self._owner.confirmed(self, method.delivery_tag, method.multiple, good)

    def _on_return(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        reason = f"{method.reply_code} {method.reply_text}"
        message_id = properties.message_id or ""
        self._owner.returned(method.exchange, method.routing_key, message_id, reason)

    def _on_close(self, _channel: Any, reason: Exception) -> None:
        code = int(getattr(reason, "reply_code", 0))
        self._owner.closed(self, reason, code)
        self._opened.set()


# ------------------------------------------------------------------ rows to frames


def _runs(rows: EncodedRows, first: int, window: int) -> Iterator[Run]:
    """Cut rows into runs of a part of the window, by halving where bodies are large."""
    most = max(1, window // _RUNS_PER_WINDOW)
    pending = [(at, min(most, len(rows) - at)) for at in range(0, len(rows), most)][::-1]
    while pending:
        at, count = pending.pop()
        part = rows.slice(at, count)
        size = size_bytes(part)
        if count > 1 and size > PUBLISH_WINDOW_BYTES // _RUNS_PER_WINDOW:
            half = count // 2
            pending += [(at + half, count - half), (at, half)]
        else:
            yield Run(range(first + at, first + at + count), part, size)


def _frames(run: Run, channel: int, frame_max: int, doing: str) -> bytes:
    rows = run.rows
    heads = [
        method_frame(channel, BasicPublish(exchange=exchange, routing_key=key, mandatory=True))
        for exchange, key in rows.routes
    ]
    ids = [0] * len(rows) if rows.route_ids is None else rows.route_ids.to_pylist()
    room = frame_max - FRAME_OVERHEAD_BYTES - _CONTENT_HEAD_BYTES if frame_max else 0
    frames: list[bytes] = []
    for i, (route, properties, body) in enumerate(
        zip(ids, rows.properties.to_pylist(), rows.bodies.to_pylist(), strict=True)
    ):
        if room and len(properties) > room:
            raise PublishError(
                f"{doing}: {row_text(run, i)} has {len(properties)} bytes of properties and "
                f"headers; the broker takes {room} (frame_max {frame_max}): move them into the body"
            )
        frames.append(heads[route])
        frames += content_frames(channel, properties, body, frame_max)
    return b"".join(frames)
