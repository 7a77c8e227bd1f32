"""Handlers of the requests in `management.delayed`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from warren_broker import errors
from warren_broker.amqp091.wire import properties
from warren_broker.amqp10.caller import Answer, Asker
from warren_broker.block.block import Block
from warren_broker.cluster.client.reads import FETCH_BYTES_MAX, DelayedRows, ReadFailed
from warren_broker.kernel import readable
from warren_broker.management import delayed as requests
from warren_broker.management.queue_values import DelayedInfo
from warren_broker.management.resource import MessagesCounted
from warren_broker.metadata.records import QueueRecord
from warren_broker.queue.delay_commands import EndDelay
from warren_raft.quoting import quoted

log = logging.getLogger(__name__)
SHOWN: frozenset[str] = frozenset({"message_id"})


def _list_delayed(asker: Asker, request: requests.ListDelayedRequest, answer: Answer) -> None:
    """Answer as many of the first messages as fit into one read."""
    queue = asker.queue(request.name, store=True)

    def found(rows: DelayedRows | ReadFailed) -> None:
        if isinstance(rows, ReadFailed):
            answer(errors.Unavailable(rows.detail))
        elif not rows:
            answer(requests.DelayedListed(()))
        else:
            _read(asker, queue, rows, answer)

    asker.broker.reading.delayed(queue.group, request.count, asker.guard(found))


def _read(asker: Asker, queue: QueueRecord, rows: DelayedRows, answer: Answer) -> None:
    def read(result: tuple[int, bytes] | ReadFailed) -> None:
        if isinstance(result, ReadFailed):
            answer(errors.Unavailable(result.detail))
            return
        taken, data = result
        places = [
            (ready_ms, index, ordinal)
            for ready_ms, index, first, last, _, _ in rows
            for ordinal in range(first, last + 1)
        ]
        block = Block.decode(data)
        answer(
            requests.DelayedListed(
                tuple(_info(block, i, places[i]) for i in range(min(taken, len(places))))
            )
        )

    runs = tuple(row[1:] for row in rows)
    asker.broker.reading.block(queue.group, runs, FETCH_BYTES_MAX, asker.guard(read))


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
        log.info("user %s: drops delayed message %s of %s", quoted(asker.user), shown, name)

    def counted(reply: Any) -> Any:
        if not reply.messages:
            return errors.NotFound(f"no delayed message '{shown}' in {name}")
        return MessagesCounted(reply.messages)

    asker.ask(queue, EndDelay(*request.place, request.drop), answer, counted)


DELAYED_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    requests.ListDelayedRequest: _list_delayed,
    requests.EndDelayRequest: _end_delay,
}
