"""The requests of block links: stage, publish, fetch, browse."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from warren_broker.access.message_checks import looking_steps
from warren_broker.admin.caller import Answer, Asker, refusal_of
from warren_broker.clients.client_counts import PublishCounts
from warren_broker.clients10 import connection_requests
from warren_broker.clients10.block_admission import LOOKED_AT_ONCE, admit
from warren_broker.cluster.client.queues import ENQUEUE
from warren_broker.cluster.client.reads import ReadFailed, Runs, cut_runs
from warren_broker.counting.counters import AMQP_10
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue import commands
from warren_machines.routing.matcher import RoutedMessage
from warren_machines.steps import Steps, Work, pieces
from warren_wire import errors
from warren_wire.kernel import (
    CC,
    HAS_DEATHS,
    USER_ID,
    MessageTable,
    Route,
    Selection,
    content_digest,
    flags_of,
    partition,
    set_deaths_apart,
)
from warren_wire.queue_values.describe_command import DescribeClaim


def _allowed(
    asker: Asker, exchange: str, data: bytes | memoryview, key: str | None, steps: Steps
) -> Work[MessageTable]:
    """Return the block's messages, checked; raises Refusal, and then none is published.

    key  the routing key of all of them; None: each has that of its route
    """
    limits, access = asker.broker.settings.limits, asker.access
    access.publish(exchange, ())  # before the block is unpacked
    table = yield from admit(data, exchange, limits.message_size_max, limits.frame_max, steps)
    keys = (Route(*route).routing_key for route in table.routes.entries)
    named = (each.decode("utf-8", "surrogateescape") for each in keys)
    for some in pieces(named if key is None else (key,)):
        access.publish(exchange, some)
        if steps.take(len(some)):
            yield
    flags = flags_of(table, 0, table.count)
    if flags & (USER_ID | CC):
        for first in range(0, table.count, LOOKED_AT_ONCE):
            piece = (first, min(first + LOOKED_AT_ONCE, table.count))
            _, refusal = access.refused_message(table, *piece, flags, exchange)
            if refusal is not None:
                raise refusal
            if steps.take(looking_steps(table, *piece)):
                yield
    if flags & HAS_DEATHS:
        set_deaths_apart(table, 0, table.count)
    counts = PublishCounts(asker.broker.cluster, AMQP_10, asker.vhost)
    counts.received(table, 0, table.count, True)
    return table


def _split(
    asker: Asker,
    exchange: str,
    data: bytes | memoryview,
    answer: Answer,
    split: Callable[[list[tuple[QueueRecord, Selection]]], None],
) -> None:
    """Call with a block's messages by queue, or answer why it is refused: one is unroutable."""
    share = asker.broker.publishing.shares.of(asker.connection)

    def routing() -> Work[tuple[MessageTable, list[tuple[str, ...]]]]:
        table = yield from _allowed(asker, exchange, data, None, share.steps)
        return table, (yield from _routing(asker, exchange, table, share.steps))

    def found(routed: tuple[MessageTable, list[tuple[str, ...]]]) -> None:
        try:
            parts = _by_queue(asker, exchange, *routed)
        except errors.Refusal as refusal:
            answer(refusal)
        else:
            split(parts)

    share.run(routing(), found, answer)


def _routing(
    asker: Asker, exchange: str, table: MessageTable, steps: Steps
) -> Work[list[tuple[str, ...]]]:
    """Find the queues of each of a block's routes; raises NoRoute when one has none."""
    topology = asker.broker.definitions.topology
    if (yield from topology.search_dependence(asker.vhost, exchange, steps)):
        # A batch that is staged again must be routed as before: drawn again, its messages would be
        # published in other queues as well.
        raise errors.NotImplementedHere(
            f"exchange {exchange!r} routes by more than the routing key (headers, properties or "
            "chance), which blocks are not yet; publish to its queue, or over AMQP 0.9.1"
        )
    every = []
    for route in table.routes.entries:
        key = Route(*route).routing_key.decode("utf-8", "surrogateescape")
        names = yield from topology.search(asker.vhost, exchange, RoutedMessage((key,)), steps)
        if not names:
            raise errors.NoRoute(
                f"exchange {exchange!r} has no queue for routing key {key!r}, so the whole block "
                "was refused; bind one for that key, or leave such messages out"
            )
        every.append(names)
        if steps.take(1 + len(names)):
            yield
    return every


def _by_queue(
    asker: Asker, exchange: str, table: MessageTable, names: list[tuple[str, ...]]
) -> list[tuple[QueueRecord, Selection]]:
    """Divide a block's messages; names: of the queues of each route."""
    numbers: dict[str, int] = {}
    targets = [tuple(numbers.setdefault(name, len(numbers)) for name in routed) for routed in names]
    found, counts = [], asker.broker.cluster.queue_counts
    selections = partition(table, 0, table.count, targets, len(numbers))
    queues = [asker.broker.definitions.state.queue(asker.vhost, name) for name in numbers]
    for name, queue, selection in zip(numbers, queues, selections, strict=True):
        if queue is None:  # deleted while the block was routed
            raise errors.no_queue(name, asker.vhost)
        found.append((queue, selection))
    for queue, selection in found:
        counts.published(queue.group, len(selection))
        if counts.pairs is not None:
            counts.pairs.routed((asker.vhost, exchange), queue.group, None, len(selection))
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

    def split(parts: list[tuple[QueueRecord, Selection]]) -> None:
        names = tuple(sorted(queue.name for queue, _ in parts))
        done = connection_requests.Staged(names)
        _to_each(asker, parts, staged, lambda refusal: answer(refusal or done))

    _split(asker, stage.exchange, request.block, answer, split)


def _publish(asker: Asker, request: connection_requests.PublishBlock, answer: Answer) -> None:
    def split(parts: list[tuple[QueueRecord, Selection]]) -> None:
        done = connection_requests.Published()
        _to_each(asker, parts, lambda selection: ENQUEUE, lambda refusal: answer(refusal or done))

    def allowed(table: MessageTable) -> None:
        try:
            queue = asker.broker.queues.find(asker.vhost, request.queue)
            if queue.store_of:
                raise errors.store_refused(queue.name, queue.vhost, queue.store_of)
        except errors.Refusal as refusal:
            answer(refusal)
            return
        counts = asker.broker.cluster.queue_counts
        counts.published(queue.group, table.count)
        if counts.pairs is not None:
            counts.pairs.routed((asker.vhost, ""), queue.group, None, table.count)
        counts.through(asker.vhost, "", table.count, table.count)
        split([(queue, Selection(table, 0, table.count))])

    if request.queue:
        share = asker.broker.publishing.shares.of(asker.connection)
        work = _allowed(asker, "", request.block, request.queue, share.steps)
        share.run(work, allowed, answer)
    else:
        _split(asker, request.exchange, request.block, answer, split)


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
        wanted = (request.max_bytes, source.areas)
        _read(asker, queue, runs, wanted, (source.reader, source.number), answer)

    def found_at_first(runs: Runs | ReadFailed) -> None:
        if not isinstance(runs, ReadFailed) or runs.unavailable:
            found(runs)
            return
        # 1. A leader is paused; another one opens the claim.  2. The first resumes, is asked
        # before it learns of that, and has no such claim.  A claim that a leader has is answered at
        # once, because it never changes; a missing one only after a command went through the log.
        asker.broker.queues.ask(
            queue, commands.Stat(touch=False), errors.continued(answer, lambda _: ask(found))
        )

    ask(found_at_first)


def _browse(asker: Asker, request: connection_requests.Browse, answer: Answer) -> None:
    asker.access.browse_queue(request.queue)
    queue = asker.queue(request.queue, store=True)

    def found(runs: Runs | ReadFailed) -> None:
        _read(asker, queue, runs, (request.max_bytes, request.areas), None, answer)

    if request.cursor is not None:
        found(request.cursor)  # the rest of the first answer's snapshot
    else:
        asker.broker.reading.runs(queue.group, "", 0, 0, request.max_messages, asker.guard(found))


def _read(
    asker: Asker,
    queue: QueueRecord,
    runs: Runs | ReadFailed,
    wanted: tuple[int, int],
    claim: tuple[str, int] | None,
    answer: Answer,
) -> None:
    """Answer with the first messages of the runs; to Browse with a cursor for the others.

    wanted  the most bytes, and the areas of the blocks
    claim   reader and number; None: for Browse
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
        cursor = rest or None if claim is None else None
        if claim is not None:
            asker.broker.cluster.queue_counts.claimed(queue.vhost, queue.group, count)
            claims = asker.broker.traced_claims
            if claims is not None:
                claims.fetched((queue.group, *claim), queue.name, data)
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
