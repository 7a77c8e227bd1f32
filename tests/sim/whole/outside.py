"""The substitutes for threads, sockets and randomness in whole nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from sim.checkers import Violation, require
from sim.whole.process import Process
from sim.whole.programs import NEW
from sim.whole.sync import NoThreading, SimulatedBackgroundWriter, SimulatedWal
from sim.whole.windows import shrunk
from sim.whole.wire import SimulatedConnector, SimulatedListener
from warren_machines.metadata import passwords
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.codec import MalformedEntry, decode_submission
from warren_machines.queue.machine import QueueMachine
from warren_machines.queue.state import QueueState
from warren_raft.errors import PeerError
from warren_raft.machine import Applied, Meta
from warren_raft.messages import AnyRaftMessage
from warren_raft.runtime.net import transport as transport_module
from warren_raft.runtime.net.connection import PeerConnection
from warren_raft.runtime.net.handshake import CrossedCalls, PeerRefused
from warren_raft.runtime.net.transport import Transport
from warren_raft.storage import log_store as log_store_module
from warren_raft.storage import wal as wal_module

if TYPE_CHECKING:
    from sim.whole.world import World


def machines(world: World) -> list[tuple[Any, str, Any]]:
    """Report the machines' actions to the checkers."""
    dead_letter = QueueContext.dead_letter

    def heard(
        self: QueueContext, reason: Any, index: int, first: int, last: int, failures: int
    ) -> None:
        world.checkers.buried(reason, index, first, last, self.now)
        dead_letter(self, reason, index, first, last, failures)

    apply = QueueMachine.apply

    def applying(self: QueueMachine, meta: Meta, data: Any, state: QueueState) -> Applied:
        with suppress(MalformedEntry):
            submission, _ = decode_submission(data, NEW.newest)
            world.checkers.order.begins(state, submission, meta.time_ms)
            require(
                not submission.uplink or submission.incarnation > 0,
                "a life without a number has submitted",
                submission.node,
                submission.uplink,
            )
        return apply(self, meta, data, state)

    return [(QueueContext, "dead_letter", heard), (QueueMachine, "apply", applying)]


def running(world: World, is_it: Callable[[Process], bool]) -> Process:
    """The process of which that is true."""
    return next(
        machine.running
        for machine in world.processes.values()
        if machine.running is not None and is_it(machine.running)
    )


def network(world: World) -> list[tuple[Any, str, Any]]:
    """Let the product's transport use the simulated network, and report what it sends."""

    def at(loop: Any) -> Process:
        return running(world, lambda process: process.loop is loop)

    def connector(loop: Any, *args: Any) -> SimulatedConnector:
        return SimulatedConnector(at(loop), *args)

    def listener(loop: Any, *args: Any) -> SimulatedListener:
        return SimulatedListener(at(loop), *args)

    send_raft = Transport.send_raft

    def sending(
        self: Transport, node: str, batch: Sequence[AnyRaftMessage], now: bool = False
    ) -> bool:
        if self.up(node):
            for message in batch:
                world.checkers.sent(at(self._loop), message)
        return send_raft(self, node, batch, now)

    on_error = PeerConnection._on_error

    def failing(self: PeerConnection, error: Exception) -> None:
        if isinstance(error, PeerError) and not isinstance(error, (PeerRefused, CrossedCalls)):
            raise Violation(f"a node sent what no node sends: {error!r}") from error
        on_error(self, error)

    return [
        (PeerConnection, "_on_error", failing),
        (transport_module, "Connector", connector),
        (transport_module, "Listener", listener),
        (Transport, "send_raft", sending),
    ]


@contextmanager
def outside(world: World) -> Iterator[None]:
    """Install the substitutes while the context lasts."""

    def wal(files: Any, *args: Any, **named: Any) -> SimulatedWal:
        process = running(world, lambda process: process.machine.files is files)
        process.wal = SimulatedWal(process, files, *args, **named)
        return process.wal

    def background_writer(post: Any, path: Any) -> SimulatedBackgroundWriter:
        process = running(world, lambda process: process.loop.post == post)
        process.background_writer = SimulatedBackgroundWriter(
            process.after_sync, lambda: world.checkers.rewritten(process), post, path
        )
        return process.background_writer

    class Time:
        """The clock with which the log measures its syncs."""

        @staticmethod
        def monotonic() -> float:
            """In seconds."""
            return world.agenda.now_ms / 1000

    with ExitStack() as stack:
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        for where, name, by in (
            *network(world),
            (log_store_module, "Wal", wal),
            (log_store_module, "BackgroundWriter", background_writer),
            (wal_module, "threading", NoThreading),
            (wal_module, "time", Time),
            (passwords, "hash_password", lambda password, salt: "hash"),
            *machines(world),
        ):
            stack.enter_context(patch.object(where, name, by))
        stack.enter_context(shrunk(world.profile.windows))
        stack.enter_context(patch("warren_broker.broker.broker.random", world.rng))
        yield
