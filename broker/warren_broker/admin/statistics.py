"""Handlers of the requests for statistics."""

from __future__ import annotations

from typing import Final

from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.handlers import handles
from warren_wire import errors
from warren_wire.admin import statistics as m
from warren_wire.admin.requests import Listed, Shown
from warren_wire.admin.statistics import QueueStatistics

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


@handles(m.GetQueueStatisticsRequest)
def _queues(asker: Asker, request: m.GetQueueStatisticsRequest, answer: Answer) -> None:
    asker.access.must_be("management", "see statistics")
    told = asker.guard(lambda found: _listed(asker, "queues", found, answer))
    asker.broker.connections.statistics(asker.vhost, request.name, request.samples, told)


@handles(m.GetExchangeStatisticsRequest)
def _exchanges(asker: Asker, request: m.GetExchangeStatisticsRequest, answer: Answer) -> None:
    asker.access.must_be("management", "see statistics")
    told = asker.guard(lambda found: _listed(asker, "exchanges", found, answer))
    asker.broker.connections.statistics(
        asker.vhost, request.name, request.samples, told, "exchanges"
    )


@handles(m.GetVhostStatisticsRequest)
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


@handles(m.GetNodeStatisticsRequest)
def _nodes(asker: Asker, request: m.GetNodeStatisticsRequest, answer: Answer) -> None:
    asker.access.must_be("monitoring", "see statistics of nodes")

    def told(found: list[QueueStatistics]) -> None:
        answer(Shown(found[0]))

    asker.broker.connections.statistics("", "", True, asker.guard(told))


@handles(m.GetGaugeStatisticsRequest)
def _gauges(asker: Asker, request: m.GetGaugeStatisticsRequest, answer: Answer) -> None:
    asker.access.must_be("monitoring", "see statistics of nodes")
    told = asker.guard(lambda found: _listed(asker, "nodes", found, answer))
    asker.broker.connections.statistics("", "", request.samples, told, "gauges")
