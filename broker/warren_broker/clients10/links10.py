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
from warren_broker.cluster.client.routed_runs import PublishedRun, QueuePart
from warren_broker.counting.counters import AMQP_10
from warren_wire import errors
from warren_wire.kernel import CC, USER_ID, distinct_routes
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)
CLASSIC: Final = {"x-queue-type": "classic"}
NAMED_BYTES: Final = 150
"""A temporary queue's name has the client's container and link if these are shorter together."""


class _PublishedMessages:
    """The messages of one request on their way to their queues.

    open  messages without an outcome
    """

    def __init__(
        self, asker: Asker, request: link_requests.PublishMessages, answer: Answer
    ) -> None:
        self.asker = asker
        self.request = request
        self.answer = answer
        self._open = request.table.count
        self.counts = PublishCounts(asker.broker.cluster, AMQP_10, asker.vhost)

    def publish(self) -> None:
        """Check and publish the messages, in order."""
        request, count, first = self.request, self.request.table.count, 0
        for at, refusal in self._refused():
            if at > first:
                self._hand_over(first, at)
            first = at + 1 if request.anonymous else count
            self.tell(link_requests.PublishOutcomes(refused=[(at, refusal)]), first - at)
        if first < count:
            self._hand_over(first, count)

    def _refused(self) -> Iterator[tuple[int, errors.Refusal]]:
        """Give the messages that may not be published, and why not; all that matter.

        A link may have thousands on their way, each refused for itself: each is looked at twice.
        """
        count = self.request.table.count
        at, refusal = self._checked(0, count)
        if refusal is not None:
            yield at, refusal
            for one in range(at + 1, count) if self.request.anonymous else ():
                _, refusal = self._checked(one, one + 1)
                if refusal is not None:
                    yield one, refusal

    def _checked(self, first: int, last: int) -> tuple[int, errors.Refusal | None]:
        """Return the first message of first <= i < last that may not be published, and why not."""
        table, access, flags = self.request.table, self.asker.access, self.request.flags
        routes = distinct_routes(table, first, last)
        last, refusal = access.refused_route(table, routes, first, last)
        last, refused = first_refused(table, first, last, flags)
        refusal = refused or refusal
        if flags & (USER_ID | CC):
            last, refused = access.refused_message(table, first, last, flags)
            refusal = refused or refusal
        return last, refusal

    def _hand_over(self, first: int, last: int) -> None:
        asker, request, publishing = self.asker, self.request, self.asker.broker.publishing
        self.counts.received(request.table, first, last, not request.settled)
        run, share = _HandedOver(self, first, last), publishing.shares.of(asker.connection)
        publishing.publish(asker.vhost, request.table, first, last, run, request.flags, share)

    def tell(self, outcomes: link_requests.PublishOutcomes, count: int) -> None:
        """Tell outcomes of so many messages; with the last of them, that it is the last."""
        self._open -= count
        self.answer(outcomes if self._open else msgspec.structs.replace(outcomes, last=True))


class _HandedOver(PublishedRun):
    """Messages first <= i < last of a request, which are published together."""

    confirms = counted = True

    def __init__(self, whole: _PublishedMessages, first: int, last: int) -> None:
        self._whole, self._first, self._last = whole, first, last
        self._answers = PartAnswers(last - first)
        self.names = whole.request.names

    def routed(self, parts: list[QueuePart]) -> list[QueuePart]:
        """See `PublishedRun`."""
        selections, counts = [part.selection for part in parts], self._whole.counts
        counts.routed(selections, 0, self._first, self._last)
        lost = [self._first + at for at in self._answers.route(selections, self._first)]
        if lost:
            if self._whole.request.settled:
                counts.dropped(len(lost))
            else:
                counts.answered(0, len(lost))
            self._whole.tell(link_requests.PublishOutcomes(released=lost), len(lost))
        return parts

    def refused(self, refusal: errors.Refusal) -> None:
        """See `PublishedRun`."""
        self._whole.answer(refusal)

    def confirmed(self, number: int, part: QueuePart, ok: bool, refused: list[int] | None) -> None:
        """See `PublishedRun`."""
        self._whole.asker.guard(self._confirmed)(number, part, ok, refused)

    def _confirmed(self, number: int, part: QueuePart, ok: bool, refused: list[int] | None) -> None:
        whole, first = self._whole, self._first
        positions = None if refused is None else [at - first for at in refused]
        accepted, rejected = self._answers.answer(number, ok, positions)
        if rejected:
            broker = whole.asker.broker
            record = broker.definitions.state.queue(whole.asker.vhost, part.name)
            gone = record is None or broker.queues.absent(record)
            by = link_requests.RejectedBy(part.name, gone)
            told = [(first + at, by) for at in rejected]
            whole.tell(link_requests.PublishOutcomes(rejected=told), len(told))
        if accepted:
            if not whole.request.settled:
                whole.counts.answered(len(accepted), 0)
            taken = [first + at for at in accepted] if first else accepted
            whole.tell(link_requests.PublishOutcomes(accepted=taken), len(taken))


def _publish(asker: Asker, request: link_requests.PublishMessages, answer: Answer) -> None:
    _PublishedMessages(asker, request, answer).publish()


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
