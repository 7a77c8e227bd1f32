"""The requests of block links: stage, publish, fetch, browse."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from warren_broker import errors
from warren_broker.amqp10 import connection_requests
from warren_broker.amqp10.block_admission import BlockLimits, admit
from warren_broker.amqp10.caller import Answer, Asker, refusal_of
from warren_broker.cluster.client.queues import ENQUEUE
from warren_broker.cluster.client.reads import ReadFailed, Runs, cut_runs
from warren_broker.counters import AMQP_10
from warren_broker.kernel import (
    HAS_DEATHS,
    MessageTable,
    Route,
    Selection,
    content_digest,
    flags_of,
    partition,
    set_deaths_apart,
)
from warren_broker.metadata.records import QueueRecord
from warren_broker.queue import commands
from warren_broker.queue.describe_command import DescribeClaim
from warren_broker.server.publish_counts import PublishCounts


def _allowed(
    asker: Asker, exchange: str, data: bytes | memoryview, key: str | None
) -> MessageTable:
    """Return the block's messages, checked; raises Refusal, and then none is published.

    key  the routing key of all of them; None: each has that of its route
    """
    limits = asker.broker.settings.limits
    table = admit(data, exchange, BlockLimits.of(limits.message_size_max, limits.frame_max))
    asker.access.publish(
        exchange,
        [
            Route(*route).routing_key.decode("utf-8", "surrogateescape")
            for route in table.routes.entries
        ]
        if key is None
        else (key,),
    )
    flags = flags_of(table, 0, table.count)
    if flags:
        _, refusal = asker.access.refused_message(table, 0, table.count, flags, exchange)
        if refusal is not None:
            raise refusal
    if flags & HAS_DEATHS:
        set_deaths_apart(table, 0, table.count)
    PublishCounts(asker.broker.cluster, AMQP_10, asker.vhost).received(table.count, True)
    return table


def _split(
    asker: Asker, exchange: str, data: bytes | memoryview
) -> list[tuple[QueueRecord, Selection]]:
    """Split a block's messages by queue; raises NoRoute when one is unroutable."""
    table = _allowed(asker, exchange, data, None)
    definitions = asker.broker.definitions
    state = definitions.state
    if definitions.topology.dependence(asker.vhost, exchange):
        # A batch that is staged again must be routed as before: drawn again, its messages would be
        # published in other queues as well.
        raise errors.NotImplementedHere(
            f"exchange {exchange!r} routes by more than the routing key (headers, properties or "
            "chance), which blocks are not yet; publish to its queue, or over AMQP 0.9.1"
        )
    targets: list[tuple[int, ...]] = []
    numbers: dict[str, int] = {}
    for route in table.routes.entries:
        key = Route(*route).routing_key.decode("utf-8", "surrogateescape")
        names = definitions.topology.route(asker.vhost, exchange, key)
        if not names:
            raise errors.NoRoute(
                f"exchange {exchange!r} has no queue for routing key {key!r}, so the whole block "
                "was refused; bind one for that key, or leave such messages out"
            )
        targets.append(tuple(numbers.setdefault(name, len(numbers)) for name in names))
    found, counts = [], asker.broker.cluster.queue_counts
    selections = partition(table, 0, table.count, targets, len(numbers))
    for name, selection in zip(numbers, selections, strict=True):
        queue = state.queue(asker.vhost, name)
        assert queue is not None, name
        counts.published(queue.group, len(selection))
        found.append((queue, selection))
    counts.through(asker.vhost, exchange, table.count, sum(map(len, selections)))
    return found


def _to_each(
    asker: Asker,
    parts: list[tuple[QueueRecord, Selection]],
    command_for: Callable[[Selection], commands.Enqueue | commands.SinkStage],
    done: Callable[[errors.Refusal | None], None],
) -> None:
    waiting = len(parts)
    refusals: list[errors.Refusal] = []

    def replied(queue: QueueRecord, reply: Any, index: int) -> None:
        nonlocal waiting
        waiting -= 1
        refusal = refusal_of(reply, queue)
        if refusal is not None:
            refusals.append(refusal)
        if not waiting:
            done(refusals[0] if refusals else None)

    for queue, selection in parts:
        if asker.broker.queues.absent(queue):
            replied(queue, asker.broker.queues.unavailable(queue), 0)
            continue
        client = asker.broker.queues.client(queue)
        client.with_messages(
            command_for(selection), selection, asker.guard(partial(replied, queue))
        )


def _stage(asker: Asker, request: connection_requests.StageBlock, answer: Answer) -> None:
    stage = request.stage
    parts = _split(asker, stage.exchange, request.block)
    names = tuple(sorted(queue.name for queue, _ in parts))
    ttl_ms = asker.broker.settings.queues.stage_ttl_ms

    def staged(selection: Selection) -> commands.SinkStage:
        return commands.SinkStage(
            stage.sink,
            stage.run,
            stage.epoch,
            stage.batch,
            stage.partition,
            stage.attempt,
            content_digest(selection),
            ttl_ms,
            request.seq,
        )

    _to_each(
        asker,
        parts,
        staged,
        lambda refusal: answer(connection_requests.Staged(names) if refusal is None else refusal),
    )


def _publish(asker: Asker, request: connection_requests.PublishBlock, answer: Answer) -> None:
    if request.queue:
        table = _allowed(asker, "", request.block, request.queue)
        queue = asker.broker.queues.find(asker.vhost, request.queue)
        if queue.store_of:
            raise errors.store_refused(queue.name, queue.vhost, queue.store_of)
        counts = asker.broker.cluster.queue_counts
        counts.published(queue.group, table.count)
        counts.through(asker.vhost, "", table.count, table.count)
        parts = [(queue, Selection(table, 0, table.count))]
    else:
        parts = _split(asker, request.exchange, request.block)
    _to_each(
        asker,
        parts,
        lambda selection: ENQUEUE,
        lambda refusal: answer(connection_requests.Published() if refusal is None else refusal),
    )


# ------------------------------------------------------------------ reading


def _failed(failure: ReadFailed) -> errors.Refusal:
    return (
        errors.Unavailable(failure.detail)
        if failure.unavailable
        else errors.ClaimNotOpen(failure.detail)
    )


def _fetch(asker: Asker, request: connection_requests.FetchClaim, answer: Answer) -> None:
    source = request.source
    queue = asker.queue(source.queue)
    if source.read_by is not None and source.first == 0:
        # For people to see: nothing waits for it, and nothing fails without it.
        described = DescribeClaim(source.reader, source.number, source.read_by)
        asker.broker.queues.ask(queue, described, lambda reply: None)

    def ask(found: Callable[[Runs | ReadFailed], None]) -> None:
        asker.broker.reading.runs(
            queue.group,
            source.reader,
            source.number,
            source.first,
            source.last,
            asker.guard(found),
        )

    def found(runs: Runs | ReadFailed) -> None:
        _read(asker, queue, runs, (request.max_bytes, source.areas), False, answer)

    def found_at_first(runs: Runs | ReadFailed) -> None:
        if not isinstance(runs, ReadFailed) or runs.unavailable:
            found(runs)
            return
        # 1. A leader is paused; another one opens the claim.  2. The first resumes, is asked
        # before it learns of that, and has no such claim.  A claim that a leader has is answered at
        # once, because it never changes; a missing one only after a command went through the log.
        asker.broker.queues.ask(queue, commands.Stat(touch=False), confirmed)

    def confirmed(reply: Any) -> None:
        if isinstance(reply, errors.Refusal):
            answer(reply)
        else:
            ask(found)

    ask(found_at_first)


def _browse(asker: Asker, request: connection_requests.Browse, answer: Answer) -> None:
    queue = asker.queue(request.queue, store=True)

    def found(runs: Runs | ReadFailed) -> None:
        _read(asker, queue, runs, (request.max_bytes, request.areas), True, answer)

    if request.cursor is not None:
        found(request.cursor)  # the rest of the first answer's snapshot
    else:
        asker.broker.reading.runs(queue.group, "", 0, 0, request.max_messages, asker.guard(found))


def _read(
    asker: Asker,
    queue: QueueRecord,
    runs: Runs | ReadFailed,
    wanted: tuple[int, int],
    browsing: bool,
    answer: Answer,
) -> None:
    """Answer with the first messages of the runs; to Browse with a cursor for the others.

    wanted  the most bytes, and the areas of the blocks
    """
    if isinstance(runs, ReadFailed):
        answer(_failed(runs))
        return
    if not runs:
        answer(connection_requests.Fetched((), 0))
        return

    def read(result: tuple[int, bytes] | ReadFailed) -> None:
        if isinstance(result, ReadFailed):
            answer(_failed(result))
            return
        count, data = result
        taken, rest = cut_runs(runs, count)
        cursor = rest or None if browsing else None
        if not browsing:
            asker.broker.cluster.queue_counts.claimed(queue.vhost, queue.group, count)
        answer(
            connection_requests.Fetched((connection_requests.Piece(taken, data),), count, cursor)
        )

    max_bytes, areas = wanted
    asker.broker.reading.block(queue.group, runs, max_bytes, asker.guard(read), areas)


BLOCK_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    connection_requests.StageBlock: _stage,
    connection_requests.PublishBlock: _publish,
    connection_requests.FetchClaim: _fetch,
    connection_requests.Browse: _browse,
}
