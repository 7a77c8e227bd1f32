"""Handlers of the requests for claims."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from warren_broker.admin import batches
from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.handlers import handles
from warren_machines.queue import commands
from warren_wire import errors
from warren_wire.admin import claims as requests
from warren_wire.admin.requests import MessagesCounted, Performed
from warren_wire.queue_values.give_up_command import ORIGINS

BATCH_QUEUES_MAX = 10_000


@handles(requests.RegisterReaderRequest)
def _register(asker: Asker, request: requests.RegisterReaderRequest, answer: Answer) -> None:
    queue = asker.queue(request.queue)
    asker.ask(
        queue,
        commands.RegisterReader(
            request.reader,
            request.go_on_after,
            request.call,
            asker.broker.settings.queues.reader_idle_ms,
            request.expires_ms,
        ),
        answer,
        lambda reply: requests.ReaderRegistered(reply.epoch, reply.settled, reply.starts),
    )


@handles(requests.OpenClaimRequest)
def _open_claim(asker: Asker, request: requests.OpenClaimRequest, answer: Answer) -> None:
    queue = asker.queue(request.queue)
    command = commands.OpenClaim(
        request.reader,
        request.number,
        request.epoch,
        request.max_messages,
        request.max_bytes,
        request.ttl_ms,
        keep_empty=request.keep_empty,
        ahead=request.ahead,
    )

    def opened(reply: commands.ClaimReply | commands.EmptyClaim) -> requests.ClaimOpened:
        if isinstance(reply, commands.EmptyClaim):
            return requests.ClaimOpened(reply.number, 0, 0, True)
        return requests.ClaimOpened(
            reply.number,
            reply.messages,
            reply.size_bytes,
            reply.messages > 0,
            ORIGINS[reply.origin],
        )

    asker.ask(queue, command, answer, opened)


@handles(requests.RenewClaimsRequest)
def _renew(asker: Asker, request: requests.RenewClaimsRequest, answer: Answer) -> None:
    queue = asker.queue(request.queue)
    command = commands.RenewClaims(request.reader, request.epoch)
    asker.ask(queue, command, answer, lambda reply: Performed())


@handles(requests.SettleClaimsRequest)
def _settle(asker: Asker, request: requests.SettleClaimsRequest, answer: Answer) -> None:
    queue = asker.queue(request.queue)
    command = commands.SettleClaims(request.reader, request.number, request.epoch)

    def settled(reply: Any) -> MessagesCounted:
        asker.broker.cluster.queue_counts.settled(queue.vhost, queue.group, reply.messages)
        return MessagesCounted(reply.messages)

    asker.ask(queue, command, answer, settled)


@handles(requests.DrawEpochRequest)
def _draw_epoch(asker: Asker, request: requests.DrawEpochRequest, answer: Answer) -> None:
    def drawn(epoch: int | errors.Refusal) -> None:
        if isinstance(epoch, errors.Refusal):
            answer(epoch)
        else:
            answer(requests.EpochDrawn(epoch))

    asker.broker.definitions.number(asker.guard(drawn))


def _each(
    asker: Asker,
    wanted: dict[str, commands.AnyCommand],
    gone: Callable[[str], errors.Refusal | None],
    done: Callable[[int | errors.Refusal], None],
) -> None:
    """Send every queue its command; call back with the sum of their counts when all have answered.

    gone  returns the refusal for a queue that does not exist; None: it counts as nothing
    done  called with one of the refusals if there are any: a conflict only when all are conflicts,
          so that a client which accepts a conflict misses no other refusal
    """
    if len(wanted) > BATCH_QUEUES_MAX:
        raise errors.InvalidArgument(
            f"a batch over {len(wanted)} queues: at most {BATCH_QUEUES_MAX} are possible"
        )
    waiting = dict.fromkeys(wanted)
    refused: list[errors.Refusal] = []
    total = 0

    def replied(name: str, reply: Any) -> None:
        nonlocal total
        if isinstance(reply, errors.NotFound):
            reply = gone(name)
        if isinstance(reply, commands.Count):
            total += reply.messages
        elif isinstance(reply, errors.Refusal):
            refused.append(reply)
        waiting.pop(name)
        if not waiting:
            refused.sort(key=lambda each: isinstance(each, errors.BatchDiffers))
            done(refused[0] if refused else total)

    queues = []
    for name in wanted:
        asker.access.publish_stages(name)
        queues.append((name, asker.broker.definitions.state.queue(asker.vhost, name)))
    for name, queue in queues:
        if queue is None:
            replied(name, errors.no_queue(name, asker.vhost))
        else:
            asker.broker.queues.ask(queue, wanted[name], asker.guard(partial(replied, name)))


@handles(requests.PublishBatchRequest)
def _publish_batch(asker: Asker, request: requests.PublishBatchRequest, answer: Answer) -> None:
    if request.settles:
        batches.publish_settling(asker, request, answer)
        return
    batch = (request.sink, request.run, request.epoch, request.batch)
    _each(
        asker,
        {
            name: commands.SinkPublish(*batch, attempts, expires_ms=request.expires_ms)
            for name, attempts in request.queues
        },
        lambda name: batches.stages_gone(name, asker.vhost, request),
        lambda result: answer(
            result if isinstance(result, errors.Refusal) else MessagesCounted(result)
        ),
    )


@handles(requests.DropBatchRequest)
def _drop_batch(asker: Asker, request: requests.DropBatchRequest, answer: Answer) -> None:
    batch = (request.sink, request.run, request.epoch, request.batch)
    _each(
        asker,
        {name: commands.SinkDrop(*batch, attempts) for name, attempts in request.queues},
        lambda name: None,
        lambda result: answer(result if isinstance(result, errors.Refusal) else Performed()),
    )
