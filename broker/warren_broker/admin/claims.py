"""Handlers of the requests for claims, and for the batches of sinks.

Publishing a batch and settling the claims that it was computed from is one decision. Each claim is
bound to the batch first: from then on its queue neither gives it back nor lets it expire.
The batch's publishing, in its own queue's log, is the decision. What is left to do then (settle the
claims) is done here, or, when this node ends before, by the next request about the claim: the same
batch again, another batch, or its release.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from warren_broker.admin.caller import PERFORMED, Answer, Asker, counted, made_from
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue import commands
from warren_machines.queue.claims.decision_commands import (
    AskBatch,
    BatchFate,
    BindClaim,
    BoundClaim,
    ClaimBinding,
    ClaimName,
    Fate,
    ResolveClaim,
)
from warren_wire import errors
from warren_wire.admin import claims as requests
from warren_wire.admin.requests import MessagesCounted
from warren_wire.queue_values.give_up_command import ORIGINS, GiveUpClaim

BATCH_QUEUES_MAX = 10_000


# ------------------------------------------------------------------ batches that settle claims


class _BoundClaim:
    """A claim that a batch is to decide about, or has decided about.

    queue  of the claim
    """

    def __init__(self, asker: Asker, queue: QueueRecord, reader: str, number: int) -> None:
        self._asker = asker
        self._queue = queue
        self._reader = reader
        self._number = number
        self.name = ClaimName(queue.group, reader, number)

    def bind(
        self, epoch: int, binding: ClaimBinding, done: Callable[[errors.Refusal | None], None]
    ) -> None:
        """Bind the claim to a batch; free it first of one that was not published."""

        def replied(reply: object) -> None:
            if isinstance(reply, BoundClaim):
                then = errors.continued(done, partial(decided, reply.binding))
                self.decide(reply.binding, then)
            else:
                done(reply if isinstance(reply, errors.Refusal) else None)

        def decided(other: ClaimBinding, fate: Fate) -> None:
            if fate == "closed":
                self.bind(epoch, binding, done)
            else:
                done(self._settled_by(other) if fate == "published" else self.unknown(other))

        command = BindClaim(self._reader, self._number, epoch, binding)
        self._ask(self._queue, command, replied)

    def decide(self, binding: ClaimBinding, done: Callable[[Fate | errors.Refusal], None]) -> None:
        """Have the batch's queue decide about the claim, and do what it has decided."""
        asker = self._asker
        queue = asker.state.queue(asker.vhost, binding.queue)

        def told(reply: Any) -> None:
            if isinstance(reply, errors.NotFound):
                done("unknown")
            elif isinstance(reply, errors.Refusal):
                done(reply)
            else:
                assert isinstance(reply, BatchFate), reply
                fate = reply.fate
                if fate == "unknown":
                    done(fate)
                else:
                    self.resolve(
                        binding, fate == "published", lambda refused: done(refused or fate)
                    )

        if queue is None or queue.group != binding.group:
            done("unknown")
            return
        batch = (binding.sink, binding.run, binding.batch, binding.epoch)
        # No right to write there is needed: the batch was bound by a user with that right.
        self._ask(queue, AskBatch(*batch, self.name), told)

    def resolve(
        self, binding: ClaimBinding, published: bool, done: Callable[[errors.Refusal | None], None]
    ) -> None:
        """Settle the claim, or free it of the batch."""
        command = ResolveClaim(self._reader, self._number, binding, published)

        def resolved(_: object) -> None:
            claims = self._asker.broker.traced_claims
            if claims is not None and published:
                claims.ended((self._queue.group, self._reader, self._number), self._queue.name)
            done(None)

        self._ask(self._queue, command, errors.continued(done, resolved))

    def _ask(
        self, queue: QueueRecord, command: commands.AnyCommand, done: Callable[[object], None]
    ) -> None:
        self._asker.broker.queues.ask(queue, command, self._asker.guard(done))

    def _said(self) -> str:
        return f"claim {self._number} of reader {self._reader!r} in queue {self._queue.name!r}"

    def _settled_by(self, other: ClaimBinding) -> errors.ClaimNotOpen:
        return errors.ClaimNotOpen(
            f"{self._said()} is settled: {_batch(other)} was published with it; nothing was "
            "published now: continue with the next claim"
        )

    def unknown(self, other: ClaimBinding) -> errors.PreconditionFailed:
        """Return the refusal when it is not known what was decided."""
        return errors.PreconditionFailed(
            f"{self._said()} is settled when {_batch(other)} is published, and that queue was "
            "deleted, or does not remember the batch: find out whether it was published; then "
            "settle the claim (warren claims settle), or release it with undecided=true "
            "(warren claims release --undecided)"
        )


def _batch(binding: ClaimBinding) -> str:
    return (
        f"batch {binding.batch} of sink {binding.sink!r}, run {binding.run!r}, in queue "
        f"{binding.queue!r}"
    )


def stages_gone(
    queue: str, vhost: str, request: requests.PublishBatchRequest
) -> errors.StageMissing:
    """Return the refusal when a batch's queue was deleted."""
    return errors.StageMissing(
        f"{errors.named('queue', queue, vhost)} was deleted with what sink "
        f"{request.sink!r} had staged in it for batch {request.batch}: stage the batch again"
    )


def publish_settling(asker: Asker, asked: requests.PublishBatchRequest, answer: Answer) -> None:
    """Publish a batch in its only queue, and settle claims by that; see `PublishBatchRequest`."""
    ((name, attempts),) = asked.queues
    asker.access.publish_stages(name)
    queue = asker.state.queue(asker.vhost, name)
    if queue is None:
        raise stages_gone(name, asker.vhost, asked)
    binding = ClaimBinding(name, queue.group, asked.sink, asked.run, asked.batch, asked.epoch)
    claims = [
        (_BoundClaim(asker, asker.queue(of), reader, number), epoch)
        for of, reader, number, epoch in asked.settles
    ]
    names = tuple(sorted(claim.name for claim, _ in claims))
    batch = (asked.sink, asked.run, asked.epoch, asked.batch)
    command = commands.SinkPublish(*batch, attempts, names, asked.expires_ms)

    def bind(at: int, refused: errors.Refusal | None = None) -> None:
        if refused is not None:
            answer(refused)
        elif at < len(claims):
            claim, epoch = claims[at]
            claim.bind(epoch, binding, partial(bind, at + 1))
        else:
            asker.broker.queues.ask(queue, command, asker.guard(published))

    def published(reply: Any) -> None:
        if isinstance(reply, errors.NotFound):
            reply = stages_gone(name, asker.vhost, asked)
        if isinstance(reply, errors.Refusal):
            answer(reply)
        else:
            settle(0, reply.messages)

    def settle(at: int, messages: int, refused: errors.Refusal | None = None) -> None:
        # A queue that was deleted meanwhile has no claim that could be given back.
        if refused is not None and not isinstance(refused, errors.NotFound):
            answer(refused)
        elif at < len(claims):
            claims[at][0].resolve(binding, True, partial(settle, at + 1, messages))
        else:
            answer(MessagesCounted(messages))

    bind(0)


def release(asker: Asker, request: requests.ReleaseClaimRequest, answer: Answer) -> None:
    """Release claims; those that are bound when their batches' queues have decided."""
    queue = asker.queue(request.queue)
    command = made_from(commands.ReleaseClaim, request)
    _ask_freed(asker, queue, command, request.undecided, answer)


def give_up(asker: Asker, request: requests.GiveUpRequest, answer: Answer) -> None:
    """Empty a claim; one that is bound when its batch's queue has decided."""
    queue = asker.queue(request.queue)
    _ask_freed(asker, queue, made_from(GiveUpClaim, request), False, answer)


def _ask_freed(
    asker: Asker,
    queue: QueueRecord,
    command: commands.ReleaseClaim | GiveUpClaim,
    undecided: bool,
    answer: Answer,
) -> None:
    """Carry out a command about claims, each of which is freed of its batch, or settled by it.

    undecided  free it although it is not known whether its batch was published
    """

    def ask() -> None:
        asker.broker.queues.ask(queue, command, asker.guard(replied))

    def replied(reply: object) -> None:
        if isinstance(reply, BoundClaim):
            claim = _BoundClaim(asker, queue, command.reader, reply.number)
            then = partial(decided, claim, reply.binding)
            claim.decide(reply.binding, errors.continued(answer, then))
        elif isinstance(reply, errors.Refusal):
            answer(reply)
        else:
            claims = asker.broker.traced_claims
            if claims is not None and isinstance(command, commands.ReleaseClaim):
                key = (queue.group, command.reader, command.number)
                claims.ended(key, queue.name, "released")
            answer(counted(reply))

    def decided(claim: _BoundClaim, binding: ClaimBinding, fate: Fate) -> None:
        if fate != "unknown":
            ask()
        elif undecided:
            claim.resolve(binding, False, lambda refused: answer(refused) if refused else ask())
        else:
            answer(claim.unknown(binding))

    ask()


# ------------------------------------------------------------------ claims, batches


def _register(asker: Asker, request: requests.RegisterReaderRequest, answer: Answer) -> None:
    queue = asker.queue(request.queue)
    idle_ms = asker.broker.settings.queues.reader_idle_ms
    command = made_from(commands.RegisterReader, request, idle_ms=idle_ms)
    asker.ask(queue, command, answer, partial(made_from, requests.ReaderRegistered))


def _open_claim(asker: Asker, request: requests.OpenClaimRequest, answer: Answer) -> None:
    queue = asker.queue(request.queue)

    def opened(reply: commands.ClaimReply | commands.EmptyClaim) -> requests.ClaimOpened:
        if isinstance(reply, commands.EmptyClaim):
            return requests.ClaimOpened(reply.number, 0, 0, True)
        claims = asker.broker.traced_claims
        if claims is not None and reply.messages:
            claims.opened((queue.group, request.reader, reply.number), reply.messages)
        origin = ORIGINS[reply.origin]
        return made_from(requests.ClaimOpened, reply, open=reply.messages > 0, origin=origin)

    asker.ask(queue, made_from(commands.OpenClaim, request), answer, opened)


def _renew(asker: Asker, request: requests.RenewClaimsRequest, answer: Answer) -> None:
    queue = asker.queue(request.queue)
    command = made_from(commands.RenewClaims, request)
    asker.ask(queue, command, answer, lambda reply: PERFORMED)


def _settle(asker: Asker, request: requests.SettleClaimsRequest, answer: Answer) -> None:
    queue = asker.queue(request.queue)

    def settled(reply: Any) -> MessagesCounted:
        asker.broker.cluster.queue_counts.settled(queue.vhost, queue.group, reply.messages)
        claims = asker.broker.traced_claims
        if claims is not None:
            key = (queue.group, request.reader, request.number)
            claims.ended_up_to(key, queue.name)
        return counted(reply)

    asker.ask(queue, made_from(commands.SettleClaims, request), answer, settled)


def _draw_epoch(asker: Asker, request: requests.DrawEpochRequest, answer: Answer) -> None:
    asker.broker.definitions.number(asker.then(answer, requests.EpochDrawn))


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

    def replied(name: str, reply: object) -> None:
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
        queues.append((name, asker.state.queue(asker.vhost, name)))
    for name, queue in queues:
        if queue is None:
            replied(name, errors.no_queue(name, asker.vhost))
        else:
            asker.broker.queues.ask(queue, wanted[name], asker.guard(partial(replied, name)))


def _publish_batch(asker: Asker, request: requests.PublishBatchRequest, answer: Answer) -> None:
    if request.settles:
        publish_settling(asker, request, answer)
        return
    batch = (request.sink, request.run, request.epoch, request.batch)
    _each(
        asker,
        {
            name: commands.SinkPublish(*batch, attempts, expires_ms=request.expires_ms)
            for name, attempts in request.queues
        },
        lambda name: stages_gone(name, asker.vhost, request),
        errors.converted(answer, MessagesCounted),
    )


def _drop_batch(asker: Asker, request: requests.DropBatchRequest, answer: Answer) -> None:
    batch = (request.sink, request.run, request.epoch, request.batch)
    _each(
        asker,
        {name: commands.SinkDrop(*batch, attempts) for name, attempts in request.queues},
        lambda name: None,
        errors.converted(answer, lambda _: PERFORMED),
    )
