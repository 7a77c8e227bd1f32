"""Handlers of the requests for what only a node itself knows."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from warren_broker.admin.caller import Answer, Asker
from warren_wire import errors
from warren_wire.admin import node_facts as m
from warren_wire.admin.requests import Listed


def _settings(asker: Asker, request: m.GetSettingsRequest, answer: Answer) -> None:
    asker.broker.membership.nodes.check_known(request.node)

    def told(found: dict[str, Any]) -> None:
        if request.node in found:
            answer(Listed(found[request.node]))
        else:
            answer(
                errors.Unavailable(
                    f"node '{request.node}' did not answer: it is down, hangs, or is of an "
                    "earlier version"
                )
            )

    asker.broker.node_questions.ask(request, [request.node], asker.guard(told))


def _conditions(asker: Asker, request: m.ListConditionsRequest, answer: Answer) -> None:
    broker = asker.broker
    clock, here = broker.cluster.loop.clock, broker.cluster.host.node_id
    asked_ms, even_ms = clock.epoch_ms(), clock.monotonic_ms()

    def told(found: dict[str, Any]) -> None:
        trip_ms = clock.monotonic_ms() - even_ms
        middle_ms = asked_ms + trip_ms // 2
        shown = [
            one if name == here else _compared(one, middle_ms, trip_ms)
            for name, one in sorted(found.items())
        ]
        answer(Listed(tuple(shown)))

    nodes = [here, *broker.definitions.within_reach()]
    broker.node_questions.ask(request, nodes, asker.guard(told))


def _compared(found: m.NodeCondition, middle_ms: int, trip_ms: int) -> m.NodeCondition:
    return replace(found, clock_off_ms=found.clock_ms - middle_ms, round_trip_ms=trip_ms)
