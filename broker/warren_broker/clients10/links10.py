"""The requests of single-message links: consumers and publishers over AMQP 1.0."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from warren_broker.access.message_checks import first_refused
from warren_broker.admin.caller import Answer, Asker
from warren_broker.clients.client_counts import PublishCounts
from warren_broker.clients.part_answers import PartAnswers
from warren_broker.clients10 import link_requests
from warren_broker.cluster.client.routed_runs import QueuePart
from warren_broker.counting.counters import AMQP_10
from warren_wire import errors
from warren_wire.kernel import CC, USER_ID, Selection, distinct_routes
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)
CLASSIC: Final = {"x-queue-type": "classic"}
NAMED_BYTES: Final = 150
"""A temporary queue's name has the client's container and link if these are shorter together."""


class _PublishedRun:
    """The messages of one request on their way to their queues.

    open  messages without an outcome
    """

    def __init__(
        self, asker: Asker, request: link_requests.PublishMessages, answer: Answer
    ) -> None:
        self._asker = asker
        self._request = request
        self._answer = answer
        self._open = request.table.count
        self._counts = PublishCounts(asker.broker.cluster, AMQP_10, asker.vhost)

    def publish(self) -> None:
        """Check and publish the messages, in order."""
        request, count, first = self._request, self._request.table.count, 0
        for at, refusal in self._refused():
            if at > first:
                self._hand_over(first, at)
            first = at + 1 if request.anonymous else count
            self._tell(link_requests.PublishOutcomes(refused=[(at, refusal)]), first - at)
        if first < count:
            self._hand_over(first, count)

    def _refused(self) -> Iterator[tuple[int, errors.Refusal]]:
        """Give the messages that may not be published, and why not; all that matter.

        A link may have thousands on their way, each refused for itself: each is looked at twice.
        """
        count = self._request.table.count
        at, refusal = self._checked(0, count)
        if refusal is not None:
            yield at, refusal
            for one in range(at + 1, count) if self._request.anonymous else ():
                _, refusal = self._checked(one, one + 1)
                if refusal is not None:
                    yield one, refusal

    def _checked(self, first: int, last: int) -> tuple[int, errors.Refusal | None]:
        """Return the first message of first <= i < last that may not be published, and why not."""
        table, access, flags = self._request.table, self._asker.access, self._request.flags
        routes = distinct_routes(table, first, last)
        last, refusal = access.refused_route(table, routes, first, last)
        last, refused = first_refused(table, first, last, flags)
        refusal = refused or refusal
        if flags & (USER_ID | CC):
            last, refused = access.refused_message(table, first, last, flags)
            refusal = refused or refusal
        return last, refusal

    def _hand_over(self, first: int, last: int) -> None:
        asker, request = self._asker, self._request
        broker = asker.broker
        self._counts.received(last - first, not request.settled)
        queues: list[str] = []
        answers = PartAnswers(last - first)

        def tap(parts: list[QueuePart]) -> None:
            queues.extend(part.name for part in parts)

        def routed(parts: list[Selection], kept: int) -> None:
            self._counts.routed(parts, 0, first, last)
            lost = [first + at for at in answers.route(parts, first)]
            if lost:
                if request.settled:
                    self._counts.dropped(len(lost))
                else:
                    self._counts.answered(0, len(lost))
                self._tell(link_requests.PublishOutcomes(released=lost), len(lost))

        def confirmed(part: int, ok: bool, refused: list[int] | None) -> None:
            positions = None if refused is None else [at - first for at in refused]
            accepted, rejected = answers.answer(part, ok, positions)
            if rejected:
                by = self._rejected_by(queues[part])
                told = [(first + at, by) for at in rejected]
                self._tell(link_requests.PublishOutcomes(rejected=told), len(told))
            if accepted:
                if not request.settled:
                    self._counts.answered(len(accepted), 0)
                taken = [first + at for at in accepted] if first else accepted
                self._tell(link_requests.PublishOutcomes(accepted=taken), len(taken))

        broker.publishing.publish(
            asker.vhost,
            request.table,
            first,
            last,
            routed,
            asker.guard(confirmed),
            request.flags,
            tap=tap,
            names=request.names,
            counted=broker.cluster.queue_counts.published,
            share=broker.publishing.shares.of(asker.connection),
            refused=self._answer,
        )

    def _rejected_by(self, queue: str) -> link_requests.RejectedBy:
        broker = self._asker.broker
        record = broker.definitions.state.queue(self._asker.vhost, queue)
        return link_requests.RejectedBy(queue, record is None or broker.queues.absent(record))

    def _tell(self, outcomes: link_requests.PublishOutcomes, count: int) -> None:
        """Tell outcomes of so many messages; with the last of them, that it is the last."""
        self._open -= count
        self._answer(outcomes if self._open else msgspec.structs.replace(outcomes, last=True))


def _publish(asker: Asker, request: link_requests.PublishMessages, answer: Answer) -> None:
    _PublishedRun(asker, request, answer).publish()


def _declare_temporary(
    asker: Asker, request: link_requests.DeclareTemporary, answer: Answer
) -> None:
    name = asker.broker.ids.name(_prefix(request.container, request.link))
    asker.access.declare_queue(name, {})

    declared = errors.converted(answer, lambda _: link_requests.TemporaryDeclared(name))
    asker.broker.declare_queue(
        asker.vhost,
        name,
        durable=True,
        exclusive=True,
        arguments=CLASSIC,
        connection=asker.connection,
        server_named=True,
        done=asker.guard(declared),
    )


def _prefix(container: str, link: str) -> str:
    """Return what a temporary queue's name begins with, as in RabbitMQ."""
    if len(container.encode()) + len(link.encode()) < NAMED_BYTES:
        return f"amq.dyn-{container}-{link}-"
    return "amq.dyn.gen-"


def _delete_temporary(asker: Asker, request: link_requests.DeleteTemporary, answer: Answer) -> None:
    def deleted(reply: object) -> None:
        if isinstance(reply, errors.Refusal) and not isinstance(reply, errors.NotFound):
            log.info("temporary queue %s: %s", quoted(request.queue), reply.detail)

    asker.broker.delete_queue(
        asker.vhost, request.queue, False, False, asker.connection, asker.guard(deleted)
    )


LINK_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    link_requests.PublishMessages: _publish,
    link_requests.DeclareTemporary: _declare_temporary,
    link_requests.DeleteTemporary: _delete_temporary,
}
