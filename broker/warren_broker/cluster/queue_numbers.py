"""Numbers of queues for lists of them: all of a few queues, and one number of every queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.led_queues import in_slices
from warren_broker.cluster.messages import NumbersOfQueue
from warren_broker.cluster.queue_sampler import QueueSampler
from warren_broker.counting.message_stats import COUNTED, HANDED_OUT, LENGTHS
from warren_machines.queue.state import QueueState
from warren_machines.queue.whole_queue import counts

Column: TypeAlias = dict[int, float]
"""A number of queues, by group; those that are not there have 0."""
REUSED_TIMES: Final = 20
"""A column is told again for so many times as long as its reading took: however often it is
asked for, reading takes a twentieth of the node's time."""
REUSED_MS_MAX: Final = 5_000
COLUMN_GROUPS: Final = 2_000
"""Groups read in one turn: about two milliseconds."""

LED: Final[dict[str, Callable[[QueueState], int]]] = {
    "messages": lambda state: (
        state.order.count
        + state.unacknowledged
        + state.claimed
        + state.delayed.count
        + state.letters.count
    ),
    "messages_ready": attrgetter("order.count"),
    "messages_unacknowledged": attrgetter("unacknowledged"),
    "messages_delayed": attrgetter("delayed.count"),
    "messages_claimed": attrgetter("claimed"),
    "messages_dlx": attrgetter("letters.count"),
    "message_bytes_ready": attrgetter("ready_bytes"),
    "consumers": attrgetter("consumer_count"),
    "readers": lambda state: len(state.readers),
    "sinks": lambda state: len(state.runs),
    "relays": lambda state: len(state.relays),
}
"""Numbers that a queue's leader knows, by RabbitMQ's keys."""
RATED: Final[dict[str, tuple[int, ...]]] = {
    **{f"message_stats.{name}_details.rate": (at,) for at, name in enumerate(COUNTED)},
    "message_stats.deliver_get_details.rate": tuple(map(COUNTED.index, HANDED_OUT)),
    **{f"{name}_details.rate": (len(COUNTED) + at,) for at, name in enumerate(LENGTHS)},
}
"""Rates, each the sum of those at these places of a queue's (`CountHistory.rates`)."""


class QueueNumbers:
    """Reads the numbers of queues that this node knows.

    Invariant: `_waiting` has a list exactly for the columns that are being read
    """

    def __init__(self, cluster: Cluster, samples: QueueSampler) -> None:
        self._cluster = cluster
        self._samples = samples
        self._known: dict[str, tuple[int, Column]] = {}
        self._waiting: dict[str, list[Callable[[Column], None]]] = {}

    def of_groups(self, groups: Iterable[int]) -> tuple[NumbersOfQueue, ...]:
        """Return what is known of these queues."""
        host, aside, found = self._cluster.host, self._cluster.set_aside, []
        for group in groups:
            statistics = self._samples.of_group(group)
            led = host.is_leader(group)
            if led or statistics is not None:
                stat = counts(host.state(group), host.time_ms(group)) if led else None
                set_aside = aside.count(group) if led else 0
                found.append(NumbersOfQueue(group, stat, set_aside, statistics))
        return tuple(found)

    def column(self, name: str, answer: Callable[[Column], None]) -> None:
        """Answer a number of the queues led here (LED), or of those used here (RATED).

        One that only a newer node knows is 0 of all.
        """
        if name not in LED and name not in RATED:
            answer({})
            return
        now_ms = self._now()
        until_ms, known = self._known.get(name, (0, {}))
        if now_ms < until_ms:
            answer(known)
            return
        waiting = self._waiting.setdefault(name, [])
        waiting.append(answer)
        if len(waiting) > 1:
            return
        found: Column = {}

        def done() -> None:
            took_ms = self._now() - now_ms
            until_ms = self._now() + min(REUSED_TIMES * took_ms, REUSED_MS_MAX)
            self._known = {key: one for key, one in self._known.items() if now_ms < one[0]}
            self._known[name] = (until_ms, found)
            for one in self._waiting.pop(name):
                one(found)

        groups = self._samples.groups() if name in RATED else self._cluster.host.groups()
        visit = self._rates(RATED[name], found) if name in RATED else self._led(LED[name], found)
        in_slices(self._cluster.loop, groups, visit, done, most=COLUMN_GROUPS)

    def _now(self) -> int:
        return self._cluster.loop.clock.monotonic_ms()

    def _led(self, number: Callable[[Any], int], found: Column) -> Callable[[Sequence[int]], None]:
        host, queues = self._cluster.host, self._samples.queues

        def visit(groups: Sequence[int]) -> None:
            known = queues()
            for group in groups:
                if group in known and host.is_leader(group):
                    value = number(host.state(group))
                    if value:
                        found[group] = value

        return visit

    def _rates(self, places: tuple[int, ...], found: Column) -> Callable[[Sequence[int]], None]:
        def visit(groups: Sequence[int]) -> None:
            for group in groups:
                rates = self._samples.rates(group)
                value = sum([rates[at] for at in places])
                if value:
                    found[group] = value

        return visit
