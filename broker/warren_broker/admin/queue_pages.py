"""The handlers of requests for pages of queues and bindings."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.queues import count_queues, info_of
from warren_broker.cluster.queue_numbers import Column
from warren_broker.cluster.turns import T, Work, filtered
from warren_machines.metadata.records import Binding, QueueRecord
from warren_machines.metadata.state import Scope
from warren_wire.admin.queue_pages import (
    DEFINED,
    BindingsPage,
    PageBindingsRequest,
    PagedBinding,
    PageQueuesRequest,
    PageRequest,
    QueuesPage,
)
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
    names_of = asker.broker.connections.own_names
    queues: list[QueueRecord] = []
    for vhost, scope in _scopes(asker):
        names = yield from names_of.queues(vhost, scope)
        known = scope.queues
        queues += [known[name] for name in names if name in known]
        yield len(names) * QUEUE_STEPS // 20
    total = len(queues)
    if request.name:
        queues = yield from _named(queues, request, lambda queue: (queue.name,))
    if request.having:
        queues = [queue for queue in queues if queue.group in column]
        queues.sort(key=lambda queue: -column[queue.group])
    elif request.sort and request.sort != "vhost":
        queues = yield from _sorted(queues, _rank(asker, request.sort, column))
    if request.sort_reverse:
        queues.reverse()
    return total, queues


def _scopes(asker: Asker) -> list[tuple[str, Scope]]:
    """Return the vhost that is asked for, or all that the user may enter, in order."""
    scopes = asker.state.scopes
    asker.broker.connections.own_names.forget(scopes)
    if asker.vhost:
        return [(asker.vhost, scopes[asker.vhost])]
    return [(name, scopes[name]) for name in sorted(scopes) if asker.sees_vhost(name)]


def _named(
    items: list[T], request: PageRequest[Any], texts: Callable[[T], tuple[str, ...]]
) -> Work[list[T]]:
    """Return the items with the text in one of theirs, or matched by it, whatever the case."""
    if request.use_regex:
        matcher = NameMatcher([Pattern(request.name, ignore_case=True)])
        return (
            yield from filtered(
                items,
                lambda one: any(matcher.first(text) is not None for text in texts(one)),
                lambda one: sum(map(matcher.cost, texts(one))),
            )
        )
    wanted, found = request.name.lower(), []
    for at in range(0, len(items), QUEUES_AT_ONCE):
        some = items[at : at + QUEUES_AT_ONCE]
        found += [one for one in some if wanted in "\0".join(texts(one)).lower()]
        yield QUEUES_AT_ONCE * QUEUE_STEPS // 4
    return found


def _sorted(queues: list[T], rank: Callable[[T], Any]) -> Work[list[T]]:
    """Return the items by rank; those of one rank keep their order."""
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


# ------------------------------------------------------------------ bindings

In = tuple[str, Binding]
"""A binding and its vhost."""
FoundBindings = tuple[int, int, list[In]]
SOURCES_AT_ONCE: Final = 10_000
"""Sources that are counted before the steps are."""


class _Run(NamedTuple):
    """The bindings of one source, in their order; source "": those of the default exchange."""

    vhost: str
    scope: Scope
    source: str
    number: int

    def taken(self, asker: Asker, first: int, last: int) -> Work[list[In]]:
        """Return those first <= i < last; what has been removed meanwhile is missing."""
        vhost, found = self.vhost, list[In]()
        if not self.source:
            names = yield from _bound_by_name(asker, vhost, self.scope)
            for name in names[first:last]:
                found.append((vhost, Binding(vhost, "", name, True, name)))
                yield QUEUE_STEPS
            return found
        keys = yield from asker.broker.connections.own_names.bindings(
            vhost, self.scope, self.source
        )
        for at in range(first, last, QUEUES_AT_ONCE):
            leaving = self.scope.bindings.get(self.source, {})
            some = keys[at : min(last, at + QUEUES_AT_ONCE)]
            found += [(vhost, leaving[key]) for key in some if key in leaving]
            yield len(some) * QUEUE_STEPS // 4
        return found


def _bound_by_name(asker: Asker, vhost: str, scope: Scope) -> Work[list[str]]:
    """Return the queues that the default exchange gives messages to; not those of exchanges."""
    names = yield from asker.broker.connections.own_names.queues(vhost, scope)
    if not scope.stores:
        return names
    found, known = list[str](), scope.queues
    for at in range(0, len(names), QUEUES_AT_ONCE):
        some = names[at : at + QUEUES_AT_ONCE]
        found += [name for name in some if name in known and not known[name].store_of]
        yield len(some) * QUEUE_STEPS // 4
    return found


def _runs(asker: Asker) -> Work[list[_Run]]:
    """Return the bindings that may be seen, by vhost and source."""
    found: list[_Run] = []
    for vhost, scope in _scopes(asker):
        names = yield from _bound_by_name(asker, vhost, scope)
        found.append(_Run(vhost, scope, "", len(names)))
        sources = yield from asker.broker.connections.own_names.sources(vhost, scope)
        for at in range(0, len(sources), SOURCES_AT_ONCE):
            some, of = sources[at : at + SOURCES_AT_ONCE], scope.bindings
            found += [_Run(vhost, scope, one, len(of.get(one, ()))) for one in some]
            yield len(some) * QUEUE_STEPS // 4
    return found


def _bindings(asker: Asker, request: PageBindingsRequest, answer: Answer) -> None:
    """Find the bindings of a page, in turns."""

    def found(result: FoundBindings) -> None:
        total, matching, page = result
        items = [
            PagedBinding(
                vhost,
                one.source,
                one.destination,
                "queue" if one.to_queue else "exchange",
                one.routing_key,
                one.arguments,
            )
            for vhost, one in page
        ]
        answer(BindingsPage(total, matching, tuple(items)))

    asker.divide(_found_bindings(asker, request), found, answer)


def _found_bindings(asker: Asker, request: PageBindingsRequest) -> Work[FoundBindings]:
    """Return how many bindings there are, how many match, and those of the page."""
    first = (request.page - 1) * request.page_size
    runs = yield from _runs(asker)
    total = sum([one.number for one in runs])
    whole = bool(request.name) or request.sort not in ("", "vhost")
    begins, ends = (0, total) if whole else (first, first + request.page_size)
    if request.sort_reverse:
        begins, ends = total - ends, total - begins
    some: list[In] = []
    at = 0
    for run in runs:
        begin, end = max(begins - at, 0), min(ends - at, run.number)
        if begin < end:
            some += yield from run.taken(asker, begin, end)
        at += run.number
    if not whole:
        return total, total, some[::-1] if request.sort_reverse else some
    if request.name:
        texts = lambda one: (one[1].source, one[1].destination, one[1].routing_key)  # noqa: E731
        some = yield from _named(some, request, texts)
    if request.sort not in ("", "vhost"):
        of = attrgetter(request.sort)
        some = yield from _sorted(some, lambda one: of(one[1]))
    if request.sort_reverse:
        some.reverse()
    return total, len(some), some[first : first + request.page_size]
