"""The clients of queues by name, and the mapping of the machine's refusals to the protocol's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from warren_broker.cluster.client.queue_client import GroupClient
from warren_broker.cluster.client.uplink import Uplink
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.request_timeouts import RequestTimeouts
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.commands import (
    AnyCommand,
    Enqueue,
    Refused,
    Submission,
)
from warren_wire import errors
from warren_wire.block.block import FORM_AMQP091, compress
from warren_wire.kernel import Selection, assemble
from warren_wire.queue_values.config import QueueConfig

ENQUEUE = Enqueue()
Done: TypeAlias = errors.Answer[Any]
"""Called once with a reply of `queue.commands`, or with a Refusal."""


def block_for(config: QueueConfig, selections: Sequence[Selection], before: bytes = b"") -> bytes:
    """Assemble one block of all these, in the order of the queue's own priorities.

    If it were sorted by the publishers' priorities, a queue without priorities would deliver the
    messages of one block in another order than they arrived.

    before  what the result begins with, as the head of the block's entry
    """
    highest, default = config.priority_max, config.priority_default
    return assemble(selections, FORM_AMQP091, highest, default, before)


def to_refusal(refused: Refused, queue: QueueRecord) -> errors.Refusal:
    """Return the refusal for the client."""
    name, vhost = queue.name, queue.vhost
    match refused.reason:
        case "in_use":
            return errors.in_use("queue", name, vhost)
        case "not_empty":
            return errors.not_empty(name, vhost)
        case "exclusive_use":
            return errors.exclusive_use(name, vhost)
        case "no_job":
            return errors.NotFound(refused.detail)
        case "deleted":
            return errors.no_queue(name, vhost)
        case "invalid":
            return errors.InvalidArgument(refused.detail)
        case "filters_full":
            return errors.ResourceError(refused.detail)
        case "claim_lost" | "unknown_reader":
            return errors.ClaimNotOpen(refused.detail)
        case "stage_lost":
            return errors.StageMissing(refused.detail)
        case "batch_past":
            return errors.BatchNumberPast(refused.detail)
        case "batch_conflict":
            return errors.BatchDiffers(refused.detail)
        case "fenced":
            return errors.EpochSuperseded(refused.detail)
        case _:
            return errors.PreconditionFailed(refused.detail)


class QueueClients:
    """The clients of all queues of the cluster, on this node."""

    def __init__(
        self,
        cluster: Cluster,
        definitions: Definitions,
        timeout_ms: int,
        compress_bytes_min: int | None = None,
    ) -> None:
        """compress_bytes_min: smallest block to be compressed; None: none is."""
        self.cluster = cluster
        self._compress_bytes_min = compress_bytes_min
        self.definitions = definitions
        self._timeouts = RequestTimeouts(cluster.loop, timeout_ms)
        self._asked: dict[int, dict[int, Done]] = {}
        self._watches: dict[int, dict[object, Callable[[], None]]] = {}
        definitions.on_deleted.append(self._deleted)

    def find(
        self, vhost: str, name: str, connection: int = 0, *, store: bool = False
    ) -> QueueRecord:
        """Return the queue; raises NotFound, ResourceLocked, AccessRefused.

        connection  of the requesting client; 0: the broker itself
        store       it may be the store of an exchange
        """
        queue = self.definitions.state.queue(vhost, name)
        if queue is None:
            raise errors.no_queue(name, vhost)
        if connection and queue.store_of and not store:
            raise errors.store_refused(name, vhost, queue.store_of)
        if connection and not queue.owned_by(self.cluster.host.boot_id, connection):
            raise errors.locked_queue(name, vhost)
        return queue

    def watch(self, queue: QueueRecord, deleted: Callable[[], None]) -> Callable[[], None]:
        """Have `deleted` called after the queue's deletion; return what ends that."""
        key = object()
        self._watches.setdefault(queue.group, {})[key] = deleted

        def end() -> None:
            watching = self._watches.get(queue.group)
            if watching is not None and key in watching:
                del watching[key]
                if not watching:
                    del self._watches[queue.group]

        return end

    def client(self, queue: QueueRecord) -> GroupClient:
        """Return the uplink of an existing queue: not of one that may be `deleted`."""
        known = self.cluster.client(queue.group)
        if known is not None:
            return known
        host = self.cluster.host
        boot_id, node = host.boot_id, host.node_id

        smallest = self._compress_bytes_min

        def encode(seq: int, commands: tuple[AnyCommand, ...], block: Any, answered: int) -> bytes:
            # Compressed once, here: for the way to the leader, to its followers and to their disks.
            if smallest is not None and block is not None and len(block) >= smallest:
                block = compress(block, smallest)
            number = self.definitions.incarnation
            version = host.version
            submission = Submission(boot_id, node, seq, commands, version, answered, number)
            return encode_submission(submission, block)

        def assembled(selections: Any, head: bytes) -> bytes:
            entry = block_for(queue.config, selections, head)
            if smallest is None or len(entry) - len(head) < smallest:
                return entry
            plain = memoryview(entry)[len(head) :]
            packed = compress(plain, smallest)
            return entry if packed is plain else head + packed

        uplink = Uplink(encode, assembled, ENQUEUE, self.cluster.in_flight)
        return self.cluster.open_client(queue.group, queue.nodes, uplink)

    def tell(self, queue: QueueRecord, command: AnyCommand) -> None:
        """Send a command without waiting for its reply."""
        self.client(queue).command(command)

    def ask(
        self, queue: QueueRecord, command: AnyCommand, done: Done, late: Done | None = None
    ) -> None:
        """Send a command that nothing published later may overtake.

        done  called with the reply, a Refusal, or Unavailable after the timeout
        late  called with a reply that comes after that: the command was applied nevertheless
        """
        if self.deleted(queue):
            done(errors.no_queue(queue.name, queue.vhost))
            return
        if self.absent(queue):
            done(self.unavailable(queue))
            return

        def give_up() -> None:
            self._answered(queue.group, number)
            done(self.unavailable(queue))

        def replied(reply: object, index: int) -> None:
            result = to_refusal(reply, queue) if isinstance(reply, Refused) else reply
            if self._timeouts.answered(number):
                self._answered(queue.group, number)
                done(result)
            elif late is not None:
                late(result)

        number = self._timeouts.add(give_up)
        self._asked.setdefault(queue.group, {})[number] = done
        self.client(queue).command(command, replied, ordered=True)

    def _answered(self, group: int, number: int) -> None:
        asked = self._asked[group]
        del asked[number]
        if not asked:
            del self._asked[group]

    def deleted(self, queue: QueueRecord) -> bool:
        """Return whether a queue that was found some time ago has been deleted since.

        1. A queue is found; a read or another answer is awaited.  2. It is deleted: what waits for
        it is answered, and its client is dropped.  3. A client that was made for it then would seek
        its leader for as long as this node runs.
        Replayed by tests/broker/cluster/client/test_deleted_queues.py
        """
        return queue.group not in self.definitions.state.groups

    def absent(self, queue: QueueRecord) -> bool:
        """Return whether the only node that has the queue is unreachable."""
        return self.definitions.absent.holds(queue)

    def park(self, queue: QueueRecord) -> None:
        """Stop waiting for a queue because its only node is unreachable.

        A queue that does not outlive its node is treated as if messages had never been routed to
        it. Messages for another queue are refused, as in RabbitMQ when a queue's process is lost.
        """
        client = self.cluster.client(queue.group)
        if client is not None:
            gone = Refused("deleted", f"queue {queue.name!r}: its node is unreachable")
            client.uplink.park(gone if queue.passing else self.unavailable(queue))
            self.cluster.answered(client)
        for number, done in list(self._asked.get(queue.group, {}).items()):
            if self._timeouts.answered(number):
                self._answered(queue.group, number)
                done(self.unavailable(queue))

    def unpark(self, queue: QueueRecord) -> None:
        """Count a queue's submissions again: its only node is reachable."""
        client = self.cluster.client(queue.group)
        if client is not None:
            client.uplink.unpark()

    def unavailable(self, queue: QueueRecord) -> errors.Unavailable:
        """Return the refusal for a queue without a reachable leader."""
        if self.absent(queue):
            durable = queue.config.durable
            return errors.home_node_down(queue.name, queue.vhost, durable, queue.home)
        return errors.Unavailable(
            f"{errors.named('queue', queue.name, queue.vhost)} did not answer within "
            f"{self._timeouts.timeout_ms} ms: {self.cluster.lost_majority(queue.nodes)}"
            f"{self.cluster.remark}"
        )

    def _deleted(self, queue: QueueRecord) -> None:
        client = self.cluster.close_client(queue.group)
        if client is not None:
            self._end(client, queue)
        for deleted in self._watches.pop(queue.group, {}).values():
            deleted()

    def _end(self, client: GroupClient, queue: QueueRecord) -> None:
        gone = Refused("deleted", f"queue {queue.name!r} was deleted")
        for on_reply in client.uplink.abandon():
            on_reply(gone, 0)
        for consumer in list(client.consumers):
            client.cancelled(consumer, "deleted")
        client.consumers.clear()
        self.cluster.answered(client)
