"""The deletion of queues: by the leader when they have expired, and of their definitions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.definitions import Done
from warren_machines.metadata.commands import DeleteQueue
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue import commands
from warren_wire import errors

log = logging.getLogger(__name__)
DELETION_MS: Final = 1_000
"""The node that deletes a queue has it forgotten; after so long the queue's leader does."""


class QueueDeletions:
    """Deletes queues that are not in use, and has the definitions forget deleted ones."""

    def __init__(self, queues: QueueClients) -> None:
        self._queues = queues
        self._cluster = queues.cluster
        self._definitions = queues.definitions

    def forget(self, queue: QueueRecord, done: Done, forever: bool = False) -> None:
        """Have the definitions forget a queue that was deleted, or of which no member is asked."""

        def forgotten(reply: object) -> object:
            self._cluster.counters.add("queues_deleted", 1)
            return reply

        command = DeleteQueue(queue.vhost, queue.name, queue.group)
        self._definitions.submit(command, errors.converted(done, forgotten), forever=forever)

    def delete_unused(self, queue: QueueRecord, done: Callable[[], None]) -> None:
        """Delete a queue unless it is in use; `done` is called when either is known."""

        def deleted(reply: object) -> None:
            # Refused: there is a consumer again; Unavailable: the queue's next leader asks again.
            if isinstance(reply, commands.Count | errors.NotFound):
                self.forget(queue, lambda gone: done())
            else:
                done()

        self._queues.ask(queue, commands.Delete(if_unused=True), deleted)

    # ------------------------------------------------------------ queues that are led here

    def expired(self, group: int, reason: str) -> None:
        """Delete a queue that is led here.

        Nothing is submitted to a queue before this node knows its number, see `DeadLetters`. By
        then the queue may have been used again, or be led elsewhere, where this is found again.
        """
        if reason == "deleted":

            def due() -> None:
                self._definitions.call_at_ready(lambda: self._complete(group))

            self._cluster.loop.call_later(DELETION_MS, due)
            return
        host = self._cluster.host
        if not self._definitions.ready:
            unused_ms = host.state(group).unused_ms

            def ready() -> None:
                if host.is_leader(group) and host.state(group).unused_ms == unused_ms:
                    self.expired(group, reason)

            self._definitions.call_at_ready(ready)
            return
        queue = self._definitions.state.groups.get(group)
        if queue is None:
            return
        if reason == "disconnected" and queue.config.durable:
            self._expect_consumers(queue)
        else:
            self._delete(queue, reason)

    def _delete(self, queue: QueueRecord, reason: str) -> None:
        name = errors.named("queue", queue.name, queue.vhost)

        def done() -> None:
            if queue.group not in self._definitions.state.groups:
                log.info("deleted %s: %s", name, reason)

        self.delete_unused(queue, done)

    def _expect_consumers(self, queue: QueueRecord) -> None:
        """Delete a durable auto-delete queue unless it gets a consumer in time.

        1. A client publishes tasks, and consumes what answers them from such a queue.  2. All nodes
        end, and are started again; the queue has answers.  3. It is told that its consumer's node
        has ended, so that there is none.  4. The client connects, declares the queue as before, and
        consumes. If the queue were deleted at 3, it would find an empty one.  So the client has
        consumer-disconnected-timeout, as it has for what a consumer on a silent node holds: since
        the consumer's end, a later get, or the beginning of this leadership, as no node was there
        to connect to while there was no leader.
        """
        host, group = self._cluster.host, queue.group
        state = host.state(group)
        since = state.unused_ms

        def due() -> None:
            if not host.is_leader(group):
                return  # the next leader expects them
            state = host.state(group)
            if state.in_use or state.deleted:
                return
            if state.unused_ms != since:
                self._expect_consumers(queue)
            else:
                self._delete(queue, "auto-delete, and its last consumer was lost with its node")

        delay_ms = state.config.consumer_disconnected_timeout_ms
        self._cluster.loop.call_later(delay_ms, due)

    def _complete(self, group: int) -> None:
        """Have the definitions forget a queue that is led here and was deleted.

        The node that was asked does so when the queue has answered. But 1. that node dies between
        the two steps, or the request has timed out and is carried out later.  2. The queue is empty
        for good, and still defined.  3. Declarations find it, its publishers are answered as those
        of a queue that is being deleted: their messages are confirmed, and in no queue.
        Replayed by tests/broker/cluster/client/test_deleted_queues.py
        """
        queue = self._definitions.state.groups.get(group)
        if queue is None or not self._cluster.host.is_leader(group):
            return  # as a rule: it is forgotten; or another leader completes it
        log.info(
            "%s was deleted by a request that was not completed: its definition is removed",
            errors.named("queue", queue.name, queue.vhost),
        )
        self.forget(queue, lambda reply: None, forever=True)
