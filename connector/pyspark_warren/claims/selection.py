"""Which queues a source reads, what they hold now, and their shares of a micro-batch's limit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark_warren.claims.client import WarrenBroker
from pyspark_warren.claims.plan import ViewPiece
from pyspark_warren.errors import OptionError, naming_queue
from pyspark_warren.options.options import Options
from pyspark_warren.options.reading import BACKLOG, FAIR, SELECTED_MAX
from warren import errors as client_errors
from warren.errors import NotFound, WarrenError
from warren.queues import Queue
from warren.views import EVERYTHING
from warren_wire.message_states import READY
from warren_wire.name_patterns import NameMatcher, Pattern


def divide(
    total: int, ready: Mapping[str, int], turns: Sequence[str], sharing: str
) -> dict[str, int]:
    """Return how much of the limit each queue gets, none more than it has, none that is empty.

    total    the limit, 1 or more
    ready    what each queue has
    turns    the queues that have something, the longest waiting first: when there are more queues
             than the limit, the first ones get one each
    sharing  FAIR: equal parts; what a queue does not need is the others'. BACKLOG: in proportion to
             what they have, and at least one each
    """
    assert total >= 1 and sharing in (FAIR, BACKLOG), (total, sharing)
    waiting = [name for name in turns if ready[name] > 0][:total]
    everything = sum(ready[name] for name in waiting)
    if everything <= total:
        return {name: ready[name] for name in waiting}
    if sharing == FAIR:
        return _equal(total, ready, waiting)
    # Each has one; the rest is divided in proportion to what each has beyond that.
    spare, beyond = total - len(waiting), everything - len(waiting)
    given = {name: 1 + (ready[name] - 1) * spare // beyond for name in waiting}
    return _rounded_up(total, ready, given)


def _equal(total: int, ready: Mapping[str, int], waiting: Sequence[str]) -> dict[str, int]:
    """Give the smallest first: what it leaves is divided among the larger ones."""
    given: dict[str, int] = {}
    left = total
    by_size = sorted(waiting, key=lambda name: ready[name])
    for at, name in enumerate(by_size):
        given[name] = min(ready[name], left // (len(by_size) - at))
        left -= given[name]
    return _rounded_up(total, ready, {name: given[name] for name in waiting})


def _rounded_up(total: int, ready: Mapping[str, int], given: dict[str, int]) -> dict[str, int]:
    """Hand out what divisions have left over, one each, the longest waiting first."""
    left = total - sum(given.values())
    for name in given:
        if left <= 0:
            break
        if given[name] < ready[name]:
            given[name] += 1
            left -= 1
    return given


class Selection:
    """The queues of the options `queue`, `queues` or `queuePattern`.

    A pattern's names are matched by the broker, which counts the messages of those queues only.
    """

    def __init__(self, options: Options) -> None:
        self._names = options.queues or (options.queue,)
        self._several = options.several
        self._pattern = options.queue_pattern
        self._matcher: NameMatcher | None = None
        if self._pattern:
            self._matcher = NameMatcher([Pattern(self._pattern)])

    @property
    def by_pattern(self) -> bool:
        """Return whether queues may come and go."""
        return self._matcher is not None

    def selects(self, name: str) -> bool:
        """Return whether a queue of that name is one of them, if there is one."""
        if self._matcher is not None:
            return self._matcher.first(name) is not None
        return name in self._names

    def look(self, broker: WarrenBroker, exact: bool) -> dict[str, Queue]:
        """Return the queues with their counts, by name.

        exact   the counts are the leaders'; else a pattern's are zeros where a leader is slow
        raises  NotFound when a queue that is named does not exist; OptionError
        """
        if not self._several:
            return {name: broker.queue(name) for name in self._names}
        if not self.by_pattern:
            return self._counted(broker, self._names)
        # An exclusive queue is its connection's own: no other may read it.
        listed = {
            queue.name: queue for queue in broker.queues(self._pattern) if not queue.exclusive
        }
        if len(listed) > SELECTED_MAX:
            raise OptionError(
                f"option queuePattern={self._pattern!r} is found in the names of {len(listed)} "
                f"queues, {SELECTED_MAX} is the limit of one query: give patterns that divide them "
                "among several queries"
            )
        if not exact:
            return listed
        return self._counted(broker, list(listed))

    def _counted(self, broker: WarrenBroker, names: Sequence[str]) -> dict[str, Queue]:
        """Return the leaders' counts, asked at once."""
        found: dict[str, Queue] = {}
        for name, queue in zip(names, broker.queues_named(names), strict=True):
            if isinstance(queue, NotFound) and self.by_pattern:
                continue  # deleted since it was listed
            if isinstance(queue, WarrenError):
                raise naming_queue(name, queue)
            found[name] = queue
        return found


log = logging.getLogger("pyspark_warren")

REFRESH_MS: Final = 1000
"""The counts are at most so old."""


def sums(found: Mapping[str, Queue]) -> dict[str, Any]:
    """Return what `lastProgress` shows of several queues."""
    counted = ("bytes_ready", "messages_claimed", "messages_ready", "messages_unacknowledged")
    return {
        **{name: sum(getattr(queue, name) for queue in found.values()) for name in counted},
        "queues": {name: queue.messages_ready for name, queue in sorted(found.items())},
    }


class QueueProgress:
    """What `lastProgress` shows of the queue that a query reads.

    clock_ms  monotonic milliseconds
    """

    def __init__(self, broker: WarrenBroker, queue: str, clock_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._queue = queue
        self._clock_ms = clock_ms
        self._shown: dict[str, Any] | None = None
        self._at_ms = 0

    def counts(self, idle: bool, given_up: dict[str, Any] | None) -> dict[str, Any]:
        """Return the counts, requested again when they are older than REFRESH_MS.

        idle      the last poll found nothing, so nothing is ready: they are not requested
        given_up  the batch that was given up last; None: none was
        """
        now = self._clock_ms()
        if self._shown is not None and idle:
            self._shown.update(messages_ready=0, bytes_ready=0, head_entered_ms=None)
        elif self._shown is None or now - self._at_ms >= REFRESH_MS:
            found = self._broker.queue(self._queue)
            self._at_ms = now
            self._shown = {
                "bytes_ready": found.bytes_ready,
                "head_entered_ms": self._head_entered_ms() if found.messages_ready else None,
                "messages_claimed": found.messages_claimed,
                "messages_ready": found.messages_ready,
                "messages_unacknowledged": found.messages_unacknowledged,
                "queue": self._queue,
            }
        if given_up is not None:
            self._shown["given_up"] = given_up
        return self._shown

    def _head_entered_ms(self) -> int | None:
        """Return when the message that is next entered the queue, by its leader's clock."""
        head = ViewPiece(0, EVERYTHING, max_messages=1)
        try:
            for viewed in self._broker.view(self._queue, (READY,), head, True, None):
                for _, entered_ms in viewed.head.times:
                    return entered_ms
        except client_errors.WarrenError as wrong:
            log.info("queue %r: age of its head is not known: %s", self._queue, wrong)
        return None
