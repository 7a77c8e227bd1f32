"""This node's consumers, basic.get included."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from warren_broker.access import requests
from warren_broker.cluster.client import read_ahead
from warren_broker.cluster.client.queue_client import GroupClient, LocalConsumer, Receiver
from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.client.read_ahead import ReadAhead
from warren_broker.cluster.client.uplink import OnReply
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue import commands
from warren_machines.queue.attach import surely_empty
from warren_machines.queue.ready.limits import UNLIMITED_WINDOW
from warren_raft.errors import NotLeader, TooManyReads
from warren_raft.runtime.host import UnknownGroup
from warren_raft.storage.errors import EntryDamaged
from warren_wire import errors

Done: TypeAlias = errors.Answer[requests.RequestDone]
Got: TypeAlias = errors.Answer[requests.GotMessage | requests.GotNothing]
GET_READ_MS = 200
"""A read that takes longer is given up: the get becomes a log entry, which waits for a leader."""


def _read_ahead(command: commands.Checkout) -> ReadAhead | None:
    """Return the place of what a new consumer may be given beyond its prefetch."""
    own = command.no_ack or command.explicit_credit or command.relay
    if own or command.prefetch < read_ahead.PREFETCH_MIN:
        return None
    return ReadAhead(command.prefetch)


class Consumers:
    """The queue of each consumer number, until the consumer's session ends.

    parting  this node sends its clients away: it ends, or is drained
    reading  consumer numbers of gets that wait for a read, by session
    kept     consumers of relays, and those of which no answer says that they are cancelled
    A queue may be deleted and declared again under its name while a consumer of the old one still
    exists: messages are settled by number, never by name.
    """

    def __init__(self, queues: QueueClients, new_number: Callable[[], int]) -> None:
        self.parting = False
        self._queues = queues
        self._new_number = new_number
        self._groups: dict[int, int] = {}
        self._sessions: dict[int, dict[int, None]] = {}
        self._reading: dict[int, set[int]] = {}
        self._kept: set[int] = set()

    def _client(self, consumer: int) -> GroupClient | None:
        group = self._groups.get(consumer)
        return None if group is None else self._queues.cluster.client(group)

    def _remember(self, consumer: int, session: int, queue: QueueRecord) -> GroupClient:
        self._groups[consumer] = queue.group
        self._sessions.setdefault(session, {})[consumer] = None
        return self._queues.client(queue)

    # ------------------------------------------------------------ consumers

    def checkout(
        self,
        queue: QueueRecord,
        command: commands.Checkout,
        receiver: Receiver,
        done: Done,
        cancel_on_failover: bool = False,
        missed: Callable[[int], None] | None = None,
        timed_out: Callable[[commands.MsgIds, int | None], None] | None = None,
        activity: Callable[[bool], None] | None = None,
        has_room: Callable[[int], bool] | None = None,
        needs_acks: Callable[[], None] | None = None,
    ) -> None:
        """Add a consumer; `done` is called before its first message.

        cancel_on_failover  cancel it when another node begins to lead, unless it is auto-delete
        missed, timed_out, activity, has_room, needs_acks  see `LocalConsumer`
        """
        if self._queues.deleted(queue):
            done(errors.no_queue(queue.name, queue.vhost))
            return
        number = command.consumer
        client = self._remember(number, command.session, queue)
        if command.relay:
            self._kept.add(number)
        timeout_ms = command.timeout_ms
        if timeout_ms is None:
            timeout_ms = self._queues.definitions.config(queue).consumer_timeout_ms
        client.consumers[number] = LocalConsumer(
            number,
            receiver,
            command.no_ack,
            timeout_ms=timeout_ms,
            ends=cancel_on_failover and not queue.config.auto_delete,
            led_by=self._queues.cluster.leader_of(queue.group) or "",
            limit=command.prefetch or UNLIMITED_WINDOW,
            ahead=_read_ahead(command),
            missed=missed,
            timed_out=timed_out,
            activity=activity,
            has_room=has_room,
            needs_acks=needs_acks,
        )

        def joined(reply: object) -> None:
            if isinstance(reply, errors.Refusal):
                client.consumers.pop(number, None)
                if isinstance(reply, errors.Unavailable):
                    # 1. The consumer joins anyway when the queue is back, and is given a message.
                    # 2. It is cancelled, and keeps what it holds.  So its session does not forget
                    # it: when the session ends, the message goes back to the queue.
                    # Replayed by tests/broker/cluster/membership/test_absences.py
                    client.command(commands.Cancel(number))
                else:
                    self._forget(number, command.session)
                done(reply)
            else:
                done(requests.RequestDone())

        self._queues.ask(queue, command, joined)

    def resume(self, consumer: int, answered: Callable[[], None]) -> None:
        """Ask for what a consumer had no room for; `answered` is called before it comes."""
        client = self._client(consumer)
        local = None if client is None else client.consumers.get(consumer)
        if client is not None and local is not None and local.left_out:
            client.resume(local, answered)
        else:
            answered()

    def queue_of(self, consumer: int) -> QueueRecord | None:
        """Return the queue of a consumer, unless either has ended."""
        return self._queues.definitions.state.groups.get(self._groups.get(consumer, 0))

    def timeout_ms(self, consumer: int) -> int | None:
        """Return how long a consumer may hold a message; None: for ever, or it has ended."""
        client = self._client(consumer)
        local = None if client is None else client.consumers.get(consumer)
        return None if local is None else local.timeout_ms

    def cancel(self, consumer: int, done: Done) -> None:
        """Cancel a consumer; it gets nothing more after `done`, and keeps what it holds."""
        client = self._client(consumer)
        queue = self.queue_of(consumer)
        if client is None or queue is None or consumer not in client.consumers:
            done(requests.RequestDone())
            return

        def cancelled(reply: object) -> None:
            # Whatever the answer is, later deliveries are not for the client.
            if isinstance(reply, errors.Unavailable):
                self._kept.add(consumer)
            client.leave(consumer)
            done(requests.RequestDone())

        client.give_back_unsent(consumer)
        if self._queues.absent(queue):
            client.command(commands.Cancel(consumer))
        self._queues.ask(queue, commands.Cancel(consumer), cancelled)

    def credit(self, command: commands.Credit, on_reply: OnReply | None = None) -> None:
        """Pass on a consumer's flow."""
        client = self._client(command.consumer)
        if client is not None:
            client.command(command, on_reply)

    def acknowledge(self, command: commands.Acknowledgement, late: bool = False) -> None:
        """Pass on a consumer's acknowledgements; late: see `GroupClient.acknowledge`."""
        client = self._client(command.consumer)
        if client is not None:
            client.acknowledge(command, late)

    def set_aside(self, consumer: int, index: int, msg_id: int, reason: str) -> None:
        """Record that a message for a consumer could not be sent as it is."""
        group = self._groups.get(consumer)
        if group is not None:
            where = f"entry {index}, delivery {msg_id} of consumer {consumer}"
            self._queues.cluster.set_aside.note(group, where, reason)

    def session_down(self, session: int, failed: bool) -> None:
        """End a channel: remove its consumers and return what they hold.

        A node that sends its clients away tells a durable auto-delete queue what other nodes would
        when it has ended: it is suspected. A queue without another consumer then expects the client
        on another node (`QueueDeletions`), and is not deleted as when a client leaves.
        """
        told: dict[int, GroupClient] = {}
        self._reading.pop(session, None)
        for consumer in self._sessions.pop(session, ()):
            group = self._groups.pop(consumer)
            self._kept.discard(consumer)
            client = self._queues.cluster.client(group)
            if client is not None:
                if group not in told and self._is_to_stay(group):
                    client.command(commands.NodeSuspected(self._queues.cluster.host.node_id))
                if client.give_back_unsent(consumer):
                    client.command(commands.Cancel(consumer))
                client.consumers.pop(consumer, None)
                told[group] = client
        for group, client in told.items():
            client.command(commands.SessionDown(session, failed))
            if self._is_to_stay(group):
                # 1. The node is drained, and revived.  2. It is no news that it is reachable: its
                # next consumers would be suspended for ever.
                client.command(commands.NodeBack(self._queues.cluster.host.node_id))

    def _is_to_stay(self, group: int) -> bool:
        if not self.parting:
            return False
        queue = self._queues.definitions.state.groups.get(group)
        return queue is not None and queue.config.auto_delete and queue.config.durable

    def forget(self, consumer: int, session: int, getter: bool) -> None:
        """Forget a consumer that was cancelled, or one of gets, and holds nothing.

        Not one of which the queue may not know that, so that the end of its session is told there,
        nor a relay: its queue has to hear that the session is over.
        """
        client = self._client(consumer)
        if client is not None:
            if consumer in self._kept:
                return
            if getter:
                client.command(commands.Cancel(consumer))
            client.leave(consumer)
        self._forget(consumer, session)

    def _forget(self, consumer: int, session: int) -> None:
        self._groups.pop(consumer, None)
        self._sessions.get(session, {}).pop(consumer, None)

    # ------------------------------------------------------------ gets

    def get(self, queue: QueueRecord, command: commands.Get, done: Got) -> None:
        """Get one message, or none; that a queue is empty is read where that is possible.

        1. A message was got, and its queue deleted and declared again.  2. The new queue gives its
        first message, under the same number.  3. The old one is acknowledged: both are the first
        that their queues gave that number, and the new message was lost. So that gets another one,
        which the session is told, also with none: the queue remembers each number that asked it.
        Replayed by tests/live/test_basic_get.py
        """
        if self._groups.get(command.consumer, queue.group) == queue.group:
            self._get(queue, command, done)
            return
        number = self._new_number()

        def got(result: errors.Reply[requests.GotMessage | requests.GotNothing]) -> None:
            if isinstance(result, requests.GotMessage | requests.GotNothing):
                result = msgspec.structs.replace(result, getter=number)
            done(result)

        self._get(queue, msgspec.structs.replace(command, consumer=number), got)

    def _get(self, queue: QueueRecord, command: commands.Get, done: Got) -> None:
        """Get one message, or read that there is none.

        An empty queue costs a round of messages and no log entry (`Host.read_index`). The read sees
        what was committed before it, so all that this node sent to the queue must be answered: a
        message that the same client returned or published just now is not overlooked. A session
        that ends meanwhile gets nothing: nothing would ever settle it.
        """
        cluster, session = self._queues.cluster, command.session
        known = cluster.client(queue.group)
        if (known is None or known.all_answered) and self._seems_empty(queue):

            def read(current: bool) -> None:
                reading = self._reading.get(session, set())
                ended = command.consumer not in reading
                reading.discard(command.consumer)
                if not reading:
                    self._reading.pop(session, None)
                if ended or (current and self._seems_empty(queue)):
                    done(requests.GotNothing())
                else:
                    self._take_one(queue, command, done)

            try:
                cluster.host.read_index(queue.group, GET_READ_MS, read)
                self._reading.setdefault(session, set()).add(command.consumer)
                return
            except (NotLeader, TooManyReads, UnknownGroup):
                pass
        self._take_one(queue, command, done)

    def _seems_empty(self, queue: QueueRecord) -> bool:
        """Return whether this node's member, which may be behind, has no message."""
        try:
            return surely_empty(self._queues.cluster.host.state(queue.group))
        except UnknownGroup:
            return False

    def _take_one(self, queue: QueueRecord, command: commands.Get, done: Got) -> None:
        if self._queues.deleted(queue):
            done(errors.no_queue(queue.name, queue.vhost))
            return
        self._remember(command.consumer, command.session, queue)

        def got(reply: object) -> None:
            if not isinstance(reply, commands.GetReply):
                done(reply if isinstance(reply, errors.Refusal) else requests.GotNothing())
            elif reply.delivery is None:
                done(requests.GotNothing())
            else:
                cluster = self._queues.cluster
                try:
                    delivery, block = cluster.got(queue.group, reply.delivery)
                except EntryDamaged as damage:
                    cluster.host.repair.when(queue.group, damage.index, lambda: got(reply))
                    return
                except (KeyError, UnknownGroup):
                    # Purged while its damaged entry was awaited, here or on the queue's leader: the
                    # session that got it has ended.
                    done(requests.GotNothing())
                    return
                done(requests.GotMessage(delivery, block, reply.messages_ready))

        def late(reply: object) -> None:
            # The client was told that the queue is out of reach: return the message at once.
            if isinstance(reply, commands.GetReply) and reply.delivery is not None:
                number = reply.delivery.first_msg_id
                self.acknowledge(commands.Return(command.consumer, ((number, number),), False))

        self._queues.ask(queue, command, got, late)
