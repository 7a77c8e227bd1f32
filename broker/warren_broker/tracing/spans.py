"""Spans of sampled messages: how many there may be, and where they wait to be exported.

A client chooses which of its messages are sampled, so the number of spans has a bound per second,
which is looked at before a run of messages is searched. What waits for a slow collector has one,
too: the newest spans are dropped, and counted.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, Literal, NamedTuple

from warren_broker.settings.http_settings import TraceSettings
from warren_wire.trace_context import SPAN_ID_BYTES, TRACE_ID_BYTES, TraceContext

WAITING_SPANS_MAX: Final = 4_096
"""Spans that wait to be exported."""
COUNTER: Final = "trace_spans"
Outcome = Literal["recorded", "dropped", "limited", "exported", "refused"]
"""See `counters.FAMILIES`."""
Count = Callable[[Outcome, int], None]


class Span(NamedTuple):
    """What happened to a message, or a claim.

    kind    of OpenTelemetry: the broker is a server for clients, and hands messages to consumers
    parent  the span-id of the span around it; b"": it begins a trace
    facts   its attributes; none has what a message contains
    error   why it failed; "": it did not
    """

    name: str
    kind: Literal["SERVER", "INTERNAL", "PRODUCER"]
    context: TraceContext
    parent: bytes
    start_ns: int
    end_ns: int
    facts: dict[str, Any]
    links: tuple[TraceContext, ...] = ()
    error: str = ""


class Tracing:
    """The sampler of a node, and the spans that wait; but for `taken` of the loop's thread only.

    Invariants: 0 <= _left <= per_second; at most WAITING_SPANS_MAX spans wait
    """

    def __init__(
        self,
        settings: TraceSettings,
        count: Count,
        now_ns: Callable[[], int] = time.time_ns,
        chance: Random | None = None,
    ) -> None:
        """count: called with an outcome, and of how many spans it is.

        now_ns  nanoseconds since 1970
        """
        self.follows = settings.follow_messages
        self.now_ns = now_ns
        self.count = count
        self._chance = Random() if chance is None else chance
        self._per_second = self._left = settings.spans_per_second_max
        self._since_ns = now_ns()
        self._ratio = settings.ratio
        self._gap = self._draw()
        self._waiting: deque[Span] = deque()

    # ------------------------------------------------------------ the bound

    def open(self) -> bool:
        """Return whether a span may be begun now; a burst is one second's."""
        now_ns = self.now_ns()
        gained = (now_ns - self._since_ns) * self._per_second // 1_000_000_000
        if gained:  # below 0: the clock was set back
            self._since_ns = now_ns
            self._left = min(self._per_second, self._left + max(0, gained))
        if not self._left:
            self.count("limited", 1)
        return self._left > 0

    def take(self) -> bool:
        """Return whether another span may be begun, and count it."""
        if not self.open():
            return False
        self._left -= 1
        return True

    # ------------------------------------------------------------ messages without a trace

    def _draw(self) -> int:
        """Draw how many messages come before the next one that is sampled."""
        if self._ratio <= 0.0:
            return 1 << 62
        if self._ratio >= 1.0:
            return 0
        unit = 1.0 - self._chance.random()  # above 0
        return int(math.log(unit) / math.log(1.0 - self._ratio))

    def picks(self, count: int) -> Iterator[int]:
        """Yield which of the next `count` messages are sampled: work for these alone."""
        try:
            while self._gap < count:
                yield self._gap
                self._gap += 1 + self._draw()
        finally:  # also when no more of them may be sampled
            self._gap = max(0, self._gap - count)

    def new_context(self, trace_id: bytes = b"") -> TraceContext:
        """Return a new span's; without a trace-id it begins a trace."""
        draw = self._chance.getrandbits
        return TraceContext(
            trace_id or (draw(8 * TRACE_ID_BYTES) or 1).to_bytes(TRACE_ID_BYTES, "big"),
            (draw(8 * SPAN_ID_BYTES) or 1).to_bytes(SPAN_ID_BYTES, "big"),
        )

    # ------------------------------------------------------------ spans

    def record(self, span: Span) -> None:
        """Keep a span that has ended until it is exported, if there is room."""
        if len(self._waiting) >= WAITING_SPANS_MAX:
            self.count("dropped", 1)
            return
        self._waiting.append(span)
        self.count("recorded", 1)

    def drop(self, count: int = 1) -> None:
        """Count spans that never end here."""
        self.count("dropped", count)

    def taken(self, most: int) -> list[Span]:
        """Take the oldest spans, at most `most`; from any one thread."""
        spans: list[Span] = []
        while len(spans) < most and self._waiting:
            spans.append(self._waiting.popleft())
        return spans


def shown(name: str | bytes) -> str:
    """Return a name of a client's as valid text."""
    raw = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    return raw.decode("utf-8", "replace")


def message_facts(operation: str, kind: str, destination: str, **more: Any) -> dict[str, Any]:
    """Return the attributes that OpenTelemetry's conventions for messaging name, and more.

    kind  messaging.operation.type
    """
    return {
        "messaging.system": "warren",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": destination,
        **more,
    }
