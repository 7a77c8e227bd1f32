"""Handlers of the requests for delayed messages."""

from __future__ import annotations

from typing import Any

from warren_broker.admin.caller import Answer, Asker
from warren_broker.cluster.client.reads import (
    FETCH_BYTES_MAX,
    DelayedRows,
    ReadFailed,
    Runs,
    cut_runs,
)
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.delayed.delay_commands import EndDelay
from warren_wire import errors
from warren_wire.admin import delayed as requests
from warren_wire.admin.delayed import DelayedInfo
from warren_wire.admin.requests import Listed, MessagesCounted
from warren_wire.amqp091 import properties
from warren_wire.block.block import Block
from warren_wire.kernel import readable

SHOWN: frozenset[str] = frozenset({"message_id"})


def _list_delayed(asker: Asker, request: requests.ListDelayedRequest, answer: Answer) -> None:
    """Answer as many of the first messages as fit into FETCH_BYTES_MAX."""
    queue = asker.queue(request.name, store=True)

    def found(rows: DelayedRows | ReadFailed) -> None:
        if isinstance(rows, ReadFailed):
            answer(errors.Unavailable(rows.detail))
        elif not rows:
            answer(Listed(()))
        else:
            _read(asker, queue, rows, answer)

    asker.broker.reading.delayed(queue.group, request.count, asker.guard(found))


def _read(asker: Asker, queue: QueueRecord, rows: DelayedRows, answer: Answer) -> None:
    """Answer with what the rows are, up to FETCH_BYTES_MAX.

    A member that lags reads only what it has applied of them, and is asked for the rest.
    """
    places = [
        (ready_ms, index, ordinal)
        for ready_ms, index, first, last, _, _ in rows
        for ordinal in range(first, last + 1)
    ]
    listed: list[DelayedInfo] = []
    read_bytes = 0

    def ask(runs: Runs) -> None:
        def read(result: tuple[int, bytes] | ReadFailed) -> None:
            nonlocal read_bytes
            if isinstance(result, ReadFailed):
                answer(errors.Unavailable(result.detail))
                return
            taken, data = result
            read_bytes += len(data)
            block = Block.decode(data)
            these = places[len(listed) : len(listed) + taken]
            listed.extend([_info(block, i, place) for i, place in enumerate(these)])
            rest = cut_runs(runs, taken)[1]
            if rest and read_bytes < FETCH_BYTES_MAX:
                ask(rest)
            else:
                answer(Listed(tuple(listed)))

        left = FETCH_BYTES_MAX - read_bytes
        asker.broker.reading.block(queue.group, runs, left, asker.guard(read))

    ask(tuple(row[1:] for row in rows))


def _info(block: Block, i: int, place: tuple[int, int, int]) -> DelayedInfo:
    exchange, key = block.route(i)
    raw = readable(bytes(block.properties(i)))
    said = properties.select(raw, SHOWN).get("message_id", "")
    return DelayedInfo(
        requests.delayed_id(*place),
        place[0],
        exchange.decode("utf-8", "replace"),
        key.decode("utf-8", "replace"),
        said.encode("utf-8", "replace").decode("utf-8", "replace"),
        block.size_bytes(i, i + 1),
    )


def _end_delay(asker: Asker, request: requests.EndDelayRequest, answer: Answer) -> None:
    queue = asker.queue(request.name, store=True)
    name = errors.named("queue", queue.name, queue.vhost)
    shown = requests.delayed_id(*request.place)
    if request.drop:
        asker.log(f"drops delayed message {shown} of {name}")

    def counted(reply: Any) -> Any:
        if not reply.messages:
            return errors.NotFound(f"no delayed message '{shown}' in {name}")
        return MessagesCounted(reply.messages)

    asker.ask(queue, EndDelay(*request.place, request.drop), answer, counted)
