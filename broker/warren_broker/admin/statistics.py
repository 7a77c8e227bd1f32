"""Handlers of the requests for statistics."""

from __future__ import annotations

from typing import Final

import msgspec

from warren_broker.admin.caller import Answer, Asker
from warren_broker.cluster.connections import Counted
from warren_wire.admin import statistics as m
from warren_wire.admin.statistics import PairStatistics, QueueStatistics

STATISTICS_LISTED_MAX: Final = 2_000
"""Queues, exchanges or vhosts in one answer over AMQP 1.0: Proton's values hold 65,535 parts, and
each of these has 30 at most."""
PAIRS_LISTED_MAX: Final = 1_000
"""Pairs in one answer over AMQP 1.0; each has 50 parts at most."""


def _get(asker: Asker, request: m.GetStatisticsRequest, answer: Answer) -> None:
    of = request.of

    def told(found: list[QueueStatistics]) -> None:
        if of == "vhosts":
            found = [one for one in found if asker.looks_into(one.name)]
        what, less = f"statistics of {of}", "one with ?name="
        answer(asker.listed(found, STATISTICS_LISTED_MAX, what, less, parts_only=True))

    vhost, name = ("", "") if of in ("nodes", "gauges") else (asker.vhost, request.name)
    if of == "vhosts":
        vhost, name = name, ""
    counted: Counted = "" if of == "queues" or of == "nodes" else of
    done = asker.guard(told)
    asker.broker.connections.statistics(vhost, name, request.samples, done, counted)


def _get_pairs(asker: Asker, request: m.GetPairsRequest, answer: Answer) -> None:
    broker, user = asker.broker, asker.user
    every = asker.access.has_tag("monitoring")

    def told(answers: dict[str, tuple[PairStatistics, ...]]) -> None:
        found: dict[tuple[object, ...], PairStatistics] = {}
        for node in sorted(answers):
            for one in answers[node]:
                if every or one.channel is None or one.channel.user == user:
                    key = one.kind, one.exchange, one.queue, one.channel
                    known = found.get(key)
                    found[key] = one if known is None else known.plus(one)
        what, less = "pairs", "one channel's"
        answer(asker.listed(found.values(), PAIRS_LISTED_MAX, what, less, parts_only=True))

    nodes = [broker.cluster.host.node_id, *broker.definitions.within_reach()]
    asked = msgspec.structs.replace(request, vhost=asker.vhost)
    broker.node_questions.ask(asked, nodes, asker.guard(told))
