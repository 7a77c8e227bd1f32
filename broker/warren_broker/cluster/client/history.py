"""Recent histories: a newly bound queue is given the last messages of its exchange."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from warren_broker.cluster.client.forwarding import AllAnswered, restored
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.client.reads import (
    FETCH_BYTES_MAX,
    ReadFailed,
    RemoteReads,
    Runs,
    cut_runs,
)
from warren_broker.cluster.definitions import Done
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.exchange_types import RECENT_HISTORY
from warren_machines.metadata.records import QueueRecord
from warren_machines.metadata.stores import store_name
from warren_machines.queue.commands import Stat
from warren_wire import errors
from warren_wire.block.block import Block, BlockError
from warren_wire.kernel import load_block

log = logging.getLogger(__name__)
DONE: Final = metadata.MetadataDone()


class History:
    """Gives the messages in an exchange's store to a new destination, oldest first.

    The store is read after a command of its log was answered, so by a leader that knows every
    message that was confirmed before the binding was asked for.
    """

    def __init__(self, queues: QueueClients, reading: RemoteReads, publishing: Publisher) -> None:
        self._queues = queues
        self._reading = reading
        self._publishing = publishing

    def replay(self, bound: metadata.Bind, done: Done) -> None:
        """Give a new destination what its source keeps; no history: nothing is done.

        done  called when every queue has taken or refused its messages
        """
        definitions = self._queues.definitions
        source = definitions.state.exchange(bound.vhost, bound.source)
        if source is None or source.kind != RECENT_HISTORY:
            done(DONE)
            return
        store = definitions.state.queue(bound.vhost, store_name(source))
        if store is None:
            done(DONE)
            return
        _Replay(self._queues, self._reading, self._publishing, store, bound, done).start()


@dataclass(eq=False, repr=False)
class _Replay:
    """One destination being given one store's messages, a block at a time."""

    queues: QueueClients
    reading: RemoteReads
    publishing: Publisher
    store: QueueRecord
    bound: metadata.Bind
    done: Done
    _left: Runs = ()

    def start(self) -> None:
        self.queues.ask(self.store, Stat(), errors.continued(self._fail, self._counted))

    def _counted(self, _: object) -> None:
        most = self.store.config.max_length or 0
        self.reading.runs(self.store.group, "", 0, 0, most, self._found)

    def _found(self, runs: Runs | ReadFailed) -> None:
        if isinstance(runs, ReadFailed):
            self._fail(errors.Unavailable(runs.detail))
            return
        self._left = runs
        self._next()

    def _next(self) -> None:
        if not self._left:
            self.done(DONE)
            return
        self.reading.block(self.store.group, self._left, FETCH_BYTES_MAX, self._read)

    def _read(self, result: tuple[int, bytes] | ReadFailed) -> None:
        if isinstance(result, ReadFailed):
            self._fail(errors.Unavailable(result.detail))
            return
        taken, data = result
        self._left = cut_runs(self._left, taken)[1]
        try:
            table = restored(load_block(Block.decode(data)))
        except BlockError as error:
            self._fail(errors.InternalError(f"a kept message cannot be read: {error}"))
            return
        run = AllAnswered(self._next)
        vhost, destination = self.bound.vhost, self.bound.destination
        state = self.queues.definitions.state
        if not self.bound.to_queue:
            self.publishing.publish(vhost, table, 0, table.count, run, start=destination)
        elif state.queue(vhost, destination) is not None:
            self.publishing.publish_to(vhost, destination, table, run)
        else:
            self._next()

    def _fail(self, refusal: errors.Refusal) -> None:
        log.warning(
            "%s is bound to %s without its recent messages: %s",
            errors.named("exchange", self.bound.source, self.bound.vhost),
            self.bound.destination,
            refusal.detail,
        )
        self.done(refusal)
