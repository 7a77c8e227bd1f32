"""Requests about what a queue holds, in every state: where to cut a view, and its pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from warren_broker.admin.caller import Answer, Asker
from warren_broker.clients10 import connection_requests
from warren_broker.cluster.client.reads import ReadFailed
from warren_broker.cluster.client.view_reads import Kept
from warren_broker.cluster.messages import ViewIs
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.places import ViewRow
from warren_wire import errors
from warren_wire.admin.queues import ViewEdges, ViewEdgesRequest
from warren_wire.amqp10.viewed import ViewHead
from warren_wire.message_states import STATES

ROWS_READ: Final = 5_000
"""Rows of one read of messages: they may have to be sent to the leader."""
_Cursor: TypeAlias = tuple[tuple[str, ...], tuple[ViewRow, ...]]
"""The names of a view, and its rows that have not been sent yet."""


def _failed(failure: ReadFailed) -> errors.Refusal:
    if failure.unavailable:
        return errors.Unavailable(failure.detail)
    return errors.PreconditionFailed(failure.detail)


def _states(given: tuple[str, ...]) -> tuple[str, ...]:
    """Check the names of states; raises InvalidArgument."""
    for name in given:
        if name not in STATES:
            raise errors.InvalidArgument(
                f"states: {name[:40]!r} is none of a message's; known: {', '.join(STATES)}"
            )
    return given


def _edges(asker: Asker, request: ViewEdgesRequest, answer: Answer) -> None:
    asker.access.browse_queue(request.name)
    queue = asker.queue(request.name, store=True)

    def found(view: ViewIs | ReadFailed) -> None:
        answer(_failed(view) if isinstance(view, ReadFailed) else ViewEdges(view.edges))

    asker.broker.viewing.view(
        queue.group, _states(request.states), 0, 0, 0, request.pieces, asker.guard(found)
    )


def _view(asker: Asker, request: connection_requests.ViewQueue, answer: Answer) -> None:
    source = request.source
    asker.access.browse_queue(source.queue)
    queue = asker.queue(source.queue, store=True)

    def found(view: ViewIs | ReadFailed) -> None:
        if isinstance(view, ReadFailed):
            answer(_failed(view))
        else:
            _read(asker, queue, request, (view.names, view.rows), answer)

    if request.cursor is not None:
        _read(asker, queue, request, request.cursor, answer)
    else:
        asker.broker.viewing.view(
            queue.group,
            _states(source.states),
            source.first,
            source.last,
            source.count,
            0,
            asker.guard(found),
        )


def _read(
    asker: Asker,
    queue: QueueRecord,
    request: connection_requests.ViewQueue,
    left: _Cursor,
    answer: Answer,
) -> None:
    """Answer with the first of the rows that are left, and a cursor for the others."""
    names, rows = left
    now, later = rows[:ROWS_READ], rows[ROWS_READ:]
    source = request.source

    def read(kept: Kept | ReadFailed) -> None:
        if isinstance(kept, ReadFailed):
            answer(_failed(kept))
            return
        gone = frozenset(kept.gone)
        taken, rest = cut_rows(tuple(row for row in now if row[2] not in gone), kept.messages)
        answer(_fetched(names, taken, rest + later, kept))

    if now and (source.times or source.blocks):
        runs = tuple(row[2:7] for row in now)
        asker.broker.viewing.kept(
            queue.group,
            runs,
            request.max_bytes,
            source.times,
            source.blocks,
            source.areas,
            asker.guard(read),
        )
    else:
        answer(_fetched(names, now, later, Kept((), 0, (), b"")))


def _fetched(
    names: tuple[str, ...], taken: tuple[ViewRow, ...], rest: tuple[ViewRow, ...], kept: Kept
) -> connection_requests.Fetched:
    messages = sum(row[4] - row[3] + 1 for row in taken)
    head = ViewHead(names, taken, kept.times)
    pieces = (connection_requests.ViewedPiece(head, kept.block),) if taken else ()
    return connection_requests.Fetched(pieces, messages, (names, rest) if rest else None)


def cut_rows(
    rows: tuple[ViewRow, ...], count: int
) -> tuple[tuple[ViewRow, ...], tuple[ViewRow, ...]]:
    """Return the first `count` messages, and the others."""
    for at, row in enumerate(rows):
        size = row[4] - row[3] + 1
        if count < size:
            middle = row[3] + count
            before = (*rows[:at], (*row[:4], middle - 1, *row[5:])) if count else rows[:at]
            return before, ((*row[:3], middle, *row[4:]), *rows[at + 1 :])
        count -= size
    return rows, ()


VIEW_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    ViewEdgesRequest: _edges,
    connection_requests.ViewQueue: _view,
}
