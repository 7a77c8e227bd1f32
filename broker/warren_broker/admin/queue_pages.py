"""The handler of requests for pages of queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.queues import count_queues, info_of
from warren_broker.cluster.queue_numbers import Column
from warren_broker.cluster.turns import Work, filtered
from warren_machines.metadata.records import QueueRecord
from warren_wire.admin.queue_pages import DEFINED, PageQueuesRequest, QueuesPage
from warren_wire.name_patterns import NameMatcher, Pattern

QUEUES_AT_ONCE: Final = 1_000
"""Queues that are looked at before the steps are counted."""
QUEUE_STEPS: Final = 400
"""Of a turn, for a queue that is compared or ranked: two microseconds."""
Found = tuple[int, list[QueueRecord]]


def _page(asker: Asker, request: PageQueuesRequest, answer: Answer) -> None:
    """Find the queues of a page, in turns; then have them counted."""

    def found(result: Found) -> None:
        total, queues = result
        first = (request.page - 1) * request.page_size
        page = queues[first : first + request.page_size]

        def told(infos: list[Any], statistics: list[Any]) -> None:
            known = tuple(statistics) if request.statistics else ()
            answer(QueuesPage(total, len(queues), tuple(infos), known))

        if request.counts or request.statistics:
            count_queues(asker, page, told)
        else:
            told([info_of(asker, queue, None) for queue in page], [])

    def begin(column: Column) -> None:
        asker.divide(_found(asker, request, column), found, answer)

    counted = request.having or request.sort
    if not counted or counted in DEFINED:
        begin({})
    else:
        asker.broker.connections.column(counted, asker.guard(begin))


def _found(asker: Asker, request: PageQueuesRequest, column: Column) -> Work[Found]:
    """Return how many queues there are, and those that match in their order."""
    numbers, scopes = asker.broker.connections.own_numbers, asker.state.scopes
    numbers.forget(scopes)
    every = [name for name in sorted(scopes) if asker.sees_vhost(name)]
    queues: list[QueueRecord] = []
    for vhost in [asker.vhost] if asker.vhost else every:
        scope = scopes[vhost]
        names = yield from numbers.names(vhost, scope)
        known = scope.queues
        queues += [known[name] for name in names if name in known]
        yield len(names) * QUEUE_STEPS // 20
    total = len(queues)
    if request.name:
        queues = yield from _named(queues, request)
    if request.having:
        queues = [queue for queue in queues if queue.group in column]
        queues.sort(key=lambda queue: -column[queue.group])
    elif request.sort and request.sort != "vhost":
        queues = yield from _sorted(queues, _rank(asker, request.sort, column))
    if request.sort_reverse:
        queues.reverse()
    return total, queues


def _named(queues: list[QueueRecord], request: PageQueuesRequest) -> Work[list[QueueRecord]]:
    """Return the queues with the text in their names, or matched by it, whatever the case."""
    if request.use_regex:
        matcher = NameMatcher([Pattern(request.name, ignore_case=True)])
        return (
            yield from filtered(
                queues,
                lambda queue: matcher.first(queue.name) is not None,
                lambda queue: matcher.cost(queue.name),
            )
        )
    wanted, found = request.name.lower(), []
    for at in range(0, len(queues), QUEUES_AT_ONCE):
        found += [one for one in queues[at : at + QUEUES_AT_ONCE] if wanted in one.name.lower()]
        yield QUEUES_AT_ONCE * QUEUE_STEPS // 4
    return found


def _sorted(
    queues: list[QueueRecord], rank: Callable[[QueueRecord], Any]
) -> Work[list[QueueRecord]]:
    """Return the queues by rank; those of one rank keep their order."""
    ranks: list[Any] = []
    for at in range(0, len(queues), QUEUES_AT_ONCE):
        ranks += map(rank, queues[at : at + QUEUES_AT_ONCE])
        yield QUEUES_AT_ONCE * QUEUE_STEPS
    return [queues[at] for at in sorted(range(len(queues)), key=ranks.__getitem__)]


def _rank(asker: Asker, sort: str, column: Column) -> Callable[[QueueRecord], Any]:
    """Return what orders queues as the HTTP API does what it shows: numbers, nothing, texts."""
    cluster, definitions = asker.broker.cluster, asker.broker.definitions

    def leader(queue: QueueRecord) -> tuple[int, str]:
        if queue.config.kind != "quorum" and len(queue.nodes) <= 1:
            return (0, "")
        found = cluster.leader_of(queue.group)
        return (2, found) if found else (1, "")

    ranks: dict[str, Callable[[QueueRecord], Any]] = {
        "name": lambda queue: queue.name,
        "type": lambda queue: queue.config.kind,
        "durable": lambda queue: queue.config.durable,
        "auto_delete": lambda queue: queue.config.auto_delete,
        "exclusive": lambda queue: queue.config.exclusive,
        "policy": lambda queue: definitions.policy(queue).policy,
        "operator_policy": lambda queue: definitions.policy(queue).operator_policy,
        "node": lambda queue: cluster.leader_of(queue.group) or queue.nodes[0],
        "leader": leader,
        "state": lambda queue: cluster.leader_of(queue.group) in alive,
    }
    alive = {cluster.host.node_id, *definitions.within_reach()}
    return ranks.get(sort) or (lambda queue: column.get(queue.group, 0))
