"""Handlers of the requests for the nodes' logs."""

from __future__ import annotations

from warren_broker.admin.caller import Answer, Asker
from warren_wire import errors
from warren_wire.admin import logs as m
from warren_wire.admin.requests import Listed


def _nodes(asker: Asker, node: str) -> list[str]:
    """Return the nodes that are asked; raises NotFound, Unavailable."""
    broker = asker.broker
    here = broker.cluster.host.node_id
    reached = [here, *broker.definitions.within_reach()]
    if not node:
        return reached
    broker.membership.nodes.check_known(node)
    if node not in reached:
        raise errors.Unavailable(f"node '{node}' is not in reach")
    return [node]


def _levels(
    asker: Asker, request: m.ListLogLevelsRequest | m.SetLogLevelRequest, answer: Answer
) -> None:
    def told(found: dict[str, tuple[m.LogLevelInfo, ...]]) -> None:
        answer(Listed(tuple(one for _, of in sorted(found.items()) for one in of)))

    if isinstance(request, m.SetLogLevelRequest):
        asker.log(f"set the log's level of category {request.category} to {request.level}")
    asker.broker.node_questions.ask(request, _nodes(asker, request.node), asker.guard(told))


def _lines(asker: Asker, request: m.ListLogLinesRequest, answer: Answer) -> None:
    every = [request.node] if request.node else asker.broker.definitions.nodes()

    def told(found: dict[str, tuple[m.LoggedLine, ...]]) -> None:
        lines = sorted((one for of in found.values() for one in of), key=lambda one: one.number)
        missing = tuple(sorted(one for one in every if one not in found))
        answer(m.LogLines(tuple(lines[-request.count :]), missing))

    asker.broker.node_questions.ask(request, _nodes(asker, request.node), asker.guard(told))
