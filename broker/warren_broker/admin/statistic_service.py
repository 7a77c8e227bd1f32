"""Handlers of the requests in `management.statistics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from warren_broker.admin import statistics as m
from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.resource import Listed, Shown
from warren_wire import errors
from warren_wire.admin.statistic_values import QueueStatistics

STATISTICS_LISTED_MAX: Final = 2_000
"""Queues, exchanges or vhosts in one answer over AMQP 1.0: Proton's values hold 65,535 parts, and
each of these has 30 at most."""


def _listed(asker: Asker, what: str, found: list[QueueStatistics], answer: Answer) -> None:
    if asker.in_parts and len(found) > STATISTICS_LISTED_MAX:
        answer(
            errors.InvalidArgument(
                f"statistics of {len(found)} {what} in one answer, {STATISTICS_LISTED_MAX} "
                "fit; ask for one with ?name="
            )
        )
    else:
        answer(Listed(tuple(found)))


def _queues(asker: Asker, request: m.GetQueueStatisticsRequest, answer: Answer) -> None:
    asker.access.must_be("management", "see statistics")
    told = asker.guard(lambda found: _listed(asker, "queues", found, answer))
    asker.broker.connections.statistics(asker.vhost, request.name, request.samples, told)


def _exchanges(asker: Asker, request: m.GetExchangeStatisticsRequest, answer: Answer) -> None:
    asker.access.must_be("management", "see statistics")
    told = asker.guard(lambda found: _listed(asker, "exchanges", found, answer))
    asker.broker.connections.statistics(
        asker.vhost, request.name, request.samples, told, "exchanges"
    )


def _vhosts(asker: Asker, request: m.GetVhostStatisticsRequest, answer: Answer) -> None:
    access = asker.access
    access.must_be("management", "see statistics")
    every = access.has_tag("monitoring")

    def told(found: list[QueueStatistics]) -> None:
        seen = [one for one in found if every or access.held_in(one.name) is not None]
        _listed(asker, "vhosts", seen, answer)

    asker.broker.connections.statistics(
        request.name, "", request.samples, asker.guard(told), "vhosts"
    )


def _nodes(asker: Asker, request: m.GetNodeStatisticsRequest, answer: Answer) -> None:
    asker.access.must_be("monitoring", "see statistics of nodes")

    def told(found: list[QueueStatistics]) -> None:
        answer(Shown(found[0]))

    asker.broker.connections.statistics("", "", True, asker.guard(told))


def _gauges(asker: Asker, request: m.GetGaugeStatisticsRequest, answer: Answer) -> None:
    asker.access.must_be("monitoring", "see statistics of nodes")
    told = asker.guard(lambda found: _listed(asker, "nodes", found, answer))
    asker.broker.connections.statistics("", "", request.samples, told, "gauges")


STATISTIC_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    m.GetQueueStatisticsRequest: _queues,
    m.GetExchangeStatisticsRequest: _exchanges,
    m.GetVhostStatisticsRequest: _vhosts,
    m.GetNodeStatisticsRequest: _nodes,
    m.GetGaugeStatisticsRequest: _gauges,
}
