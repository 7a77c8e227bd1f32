"""Handlers of the requests in `management.statistics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from warren_broker import errors
from warren_broker.amqp10.caller import Answer, Asker
from warren_broker.management import statistics as m
from warren_broker.management.resource import Listed, Shown
from warren_broker.management.statistic_values import QueueStatistics

STATISTICS_LISTED_MAX: Final = 2_000
"""Queues in one answer over AMQP 1.0: Proton's values hold 65,535 parts, each has 24."""


def _queues(asker: Asker, request: m.GetQueueStatisticsRequest, answer: Answer) -> None:
    asker.access.must_be("management", "see statistics")

    def told(found: list[QueueStatistics]) -> None:
        if asker.in_parts and len(found) > STATISTICS_LISTED_MAX:
            answer(
                errors.InvalidArgument(
                    f"statistics of {len(found)} queues in one answer, {STATISTICS_LISTED_MAX} "
                    "fit; ask for one queue with ?name="
                )
            )
        else:
            answer(Listed(tuple(found)))

    asker.broker.connections.statistics(
        asker.vhost, request.name, request.samples, asker.guard(told)
    )


def _nodes(asker: Asker, request: m.GetNodeStatisticsRequest, answer: Answer) -> None:
    asker.access.must_be("monitoring", "see statistics of nodes")

    def told(found: list[QueueStatistics]) -> None:
        answer(Shown(found[0]))

    asker.broker.connections.statistics("", "", True, asker.guard(told))


STATISTIC_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    m.GetQueueStatisticsRequest: _queues,
    m.GetNodeStatisticsRequest: _nodes,
}
