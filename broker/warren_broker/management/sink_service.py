"""The handler of the request in `management.sinks`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren_broker import errors
from warren_broker.amqp10.caller import Answer, Asker
from warren_broker.cluster.client.reads import ReadFailed
from warren_broker.cluster.client.sink_reads import SinksFound
from warren_broker.management import sinks as requests
from warren_broker.management.queue_values import SinkInfo, SinksInfo
from warren_broker.management.resource import Shown


def _list_sinks(asker: Asker, request: requests.ListSinksRequest, answer: Answer) -> None:
    queue = asker.queue(request.name)

    def found(result: SinksFound | ReadFailed) -> None:
        if isinstance(result, ReadFailed):
            answer(errors.Unavailable(result.detail))
        else:
            runs = tuple(SinkInfo(*row) for row in result.rows)
            answer(Shown(SinksInfo(result.total, runs)))

    asker.broker.sinks.of_queue(
        queue.group, request.sink, request.run, request.count, asker.guard(found)
    )


SINK_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    requests.ListSinksRequest: _list_sinks,
}
