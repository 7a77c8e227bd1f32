"""Handlers of the requests for statistics."""

from __future__ import annotations

from typing import Final

from warren_broker.admin.caller import Answer, Asker
from warren_wire.admin import statistics as m
from warren_wire.admin.statistics import QueueStatistics

STATISTICS_LISTED_MAX: Final = 2_000
"""Queues, exchanges or vhosts in one answer over AMQP 1.0: Proton's values hold 65,535 parts, and
each of these has 30 at most."""


def _listed(asker: Asker, what: str, found: list[QueueStatistics], answer: Answer) -> None:
    answer(asker.listed(found, STATISTICS_LISTED_MAX, what, "one with ?name=", parts_only=True))


def _queues(asker: Asker, request: m.GetQueueStatisticsRequest, answer: Answer) -> None:
    told = asker.guard(lambda found: _listed(asker, "statistics of queues", found, answer))
    asker.broker.connections.statistics(asker.vhost, request.name, request.samples, told)


def _exchanges(asker: Asker, request: m.GetExchangeStatisticsRequest, answer: Answer) -> None:
    told = asker.guard(lambda found: _listed(asker, "statistics of exchanges", found, answer))
    asker.broker.connections.statistics(
        asker.vhost, request.name, request.samples, told, "exchanges"
    )


def _vhosts(asker: Asker, request: m.GetVhostStatisticsRequest, answer: Answer) -> None:
    access = asker.access
    every = access.has_tag("monitoring")

    def told(found: list[QueueStatistics]) -> None:
        seen = [one for one in found if every or access.held_in(one.name) is not None]
        _listed(asker, "statistics of vhosts", seen, answer)

    asker.broker.connections.statistics(
        request.name, "", request.samples, asker.guard(told), "vhosts"
    )


def _nodes(asker: Asker, request: m.GetNodeStatisticsRequest, answer: Answer) -> None:

    def told(found: list[QueueStatistics]) -> None:
        answer(found[0])

    asker.broker.connections.statistics("", "", True, asker.guard(told))


def _gauges(asker: Asker, request: m.GetGaugeStatisticsRequest, answer: Answer) -> None:
    told = asker.guard(lambda found: _listed(asker, "statistics of nodes", found, answer))
    asker.broker.connections.statistics("", "", request.samples, told, "gauges")
