"""Handlers of the requests for sinks."""

from __future__ import annotations

from warren_broker.admin.caller import Answer, Asker
from warren_broker.cluster.messages import SinksAre
from warren_machines.queue.commands import ForgetSink
from warren_wire.admin import sinks as requests
from warren_wire.admin.queues import left_ms
from warren_wire.admin.sinks import ForgottenSink, SinkInfo, SinksInfo
from warren_wire.quoting import quoted


def _list_sinks(asker: Asker, request: requests.ListSinksRequest, answer: Answer) -> None:
    queue = asker.queue(request.name)

    def found(result: SinksAre) -> SinksInfo:
        runs = tuple(SinkInfo(*row, left_ms(row[-1], result.now_ms)) for row in result.rows)
        return SinksInfo(result.total, runs)

    done = asker.then(answer, found)
    asker.broker.reading.sinks(queue.group, request.sink, request.run, request.count, done)


def _forget_sink(asker: Asker, request: requests.ForgetSinkRequest, answer: Answer) -> None:
    # What a sink may do to its queue is a publisher's right, and so is what undoes its memory.
    asker.access.publish_stages(request.name)
    queue = asker.queue(request.name)
    run = f", run {quoted(request.run)}" if request.run else ""
    asker.log(f"forget sink {quoted(request.sink)}{run} of queue {quoted(request.name)}")
    asker.ask(
        queue,
        ForgetSink(request.sink, request.run, request.force),
        answer,
        lambda reply: ForgottenSink(reply.runs, reply.messages_staged),
    )
