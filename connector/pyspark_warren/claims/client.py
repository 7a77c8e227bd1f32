"""The broker as the connector uses it: the `warren` client, one connection per process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from pyspark_warren.claims.plan import GivenUp, ViewPiece
from pyspark_warren.login.tokens import Login, TokenSecrets, login_address, login_of
from pyspark_warren.options.options import Options
from warren.calls import AdminCalls
from warren.claims import (
    ClaimReader,
    ClaimSlice,
    FetchedBlock,
    ReaderStep,
    StepTaken,
    browse,
    fetch_slices,
    take_steps,
)
from warren.connection import Connection
from warren.errors import WarrenError
from warren.outgoing import SEND_WINDOW_BYTES, BlockSender
from warren.queues import Queue, QueueCalls
from warren.stages import (
    SettledClaim,
    SinkDriver,
    StagedPart,
    StageKey,
    StageWriter,
    draw_epoch,
    drop_batch,
    publish_batch,
)
from warren.uri import Address
from warren.views import ViewedBlock, view, view_edges
from warren_wire.admin.queues import ListSinksRequest
from warren_wire.block.layout import AREAS

_CONNECTIONS_MAX = 8
_USER_OF_FILE = "oauth2"
"""Given with a token of `tokenFile`: without a user the client would log in as ANONYMOUS."""
_connections: dict[tuple[Address, bool, Login], Connection] = {}
"""Kept while the process runs, because Spark reuses its Python workers. They may end at any
time, so nothing that must be acknowledged depends on a connection."""


def connect(options: Options) -> WarrenBroker:
    """Return this process's connection to that address, or a new one (opened at its first use)."""
    address, source = login_address(options)
    if source is not None and not address.user:
        address = address.with_credentials(_USER_OF_FILE, "")
    wanted = address, options.prefer_local, login_of(options)
    connection = _connections.get(wanted)
    if connection is None:
        while len(_connections) >= _CONNECTIONS_MAX:
            _connections.pop(next(iter(_connections))).close()
        connection = Connection(
            address,
            name="pyspark_warren",
            prefer_near=options.prefer_local,
            secrets=None if source is None else TokenSecrets(source),
        )
        _connections[wanted] = connection
    return WarrenBroker(connection)


class WarrenBroker:
    """One connection to a cluster; the errors are those of `warren.errors`.

    The connector's tests have their own.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def queue(self, name: str) -> Queue:
        """Return the counts of a queue."""
        return QueueCalls(self._connection).get(name)

    def queues(self, pattern: str) -> list[Queue]:
        """Return the queues with names that match a pattern; zeros for counts not known."""
        return QueueCalls(self._connection).list(pattern)

    def queues_named(self, names: Sequence[str]) -> list[Queue | WarrenError]:
        """Return the counts of several queues, asked at once; in the place of one its error."""
        return QueueCalls(self._connection).get_each(names)

    def take_steps(self, steps: Sequence[ReaderStep]) -> list[StepTaken | WarrenError]:
        """Settle and open claims of several queues at once; in the place of one its error."""
        return take_steps(self._connection, steps)

    def reader(self, queue: str, reader: str) -> ClaimReader:
        """Make the driver's side of a claim reader."""
        return ClaimReader(self._connection, queue, reader)

    def fetch_slices(
        self, slices: Sequence[ClaimSlice], areas: int
    ) -> Iterator[tuple[int, FetchedBlock]]:
        """Yield the messages of several slices in their order, each with its slice's number.

        Each is requested while those before it are read. An error is raised at the slice that it
        is about: the ones before it are complete.
        """
        return fetch_slices(self._connection, slices, areas)

    def give_up(self, queue: str, reader: str, number: int, given_up: GivenUp) -> int:
        """Take all messages out of an open claim, as the driver with that epoch; repeatable."""
        driver = ClaimReader(self._connection, queue, reader, given_up.epoch)
        return driver.give_up(
            number, given_up.way, in_row_max=given_up.in_row_max, drop=given_up.drop
        )

    def browse(self, queue: str, max_messages: int, areas: int = AREAS) -> Iterator[FetchedBlock]:
        """Yield ready messages without a change."""
        return browse(self._connection, queue, max_messages, areas)

    def view_edges(self, queue: str, states: Sequence[str], pieces: int) -> list[int]:
        """Return log indexes that cut what is in these states into equal pieces."""
        return view_edges(self._connection, queue, states, pieces)

    def view(
        self, queue: str, states: Sequence[str], piece: ViewPiece, times: bool, areas: int | None
    ) -> Iterator[ViewedBlock]:
        """Yield messages with their states without a change; areas: None: no blocks."""
        return view(
            self._connection,
            queue,
            states,
            first=piece.first,
            last=piece.last,
            max_messages=piece.max_messages,
            times=times,
            blocks=areas is not None,
            areas=areas or 0,
        )

    def draw_epoch(self, timeout_s: float) -> int:
        """Draw a number above all that were drawn before, for a driver."""
        return draw_epoch(self._connection, timeout_s=timeout_s)

    def stage(
        self, exchange: str, driver: SinkDriver, key: StageKey, timeout_s: float
    ) -> StageWriter:
        """Open a writer of blocks that stay invisible until published."""
        return StageWriter(
            self._connection,
            driver,
            **key._asdict(),
            exchange=exchange,
            window_bytes=SEND_WINDOW_BYTES,
            timeout_s=timeout_s,
        )

    def publish_batch(
        self,
        driver: SinkDriver,
        batch: int,
        parts: Iterable[StagedPart],
        timeout_s: float,
        settles: Sequence[SettledClaim] = (),
    ) -> int:
        """Make the whole batch visible; a repeat has the answer of the first call.

        settles  claims that are settled if, and only if, it is
        """
        return publish_batch(
            self._connection, driver, batch, parts, settles=settles, timeout_s=timeout_s
        )

    def last_batches(self, queue: str, run: str) -> dict[str, int]:
        """Return the last batch of each sink of which a queue remembers a run of that name."""
        found = AdminCalls(self._connection).ask(ListSinksRequest(queue, run=run)).runs
        return {each.sink: each.last_batch for each in found}

    def drop_batch(self, driver: SinkDriver, batch: int, parts: Iterable[StagedPart]) -> None:
        """Drop these parts."""
        drop_batch(self._connection, driver, batch, parts)

    def publisher(self, exchange: str, timeout_s: float) -> DirectWriter:
        """Open a writer of blocks that are visible at once."""
        return DirectWriter(self._connection, exchange, timeout_s)


class DirectWriter:
    """A publisher of blocks, confirmed by `finish`; a lost connection may duplicate some."""

    def __init__(self, connection: Connection, exchange: str, timeout_s: float) -> None:
        self._sender = BlockSender.to_exchange(
            connection, exchange, window_bytes=SEND_WINDOW_BYTES, timeout_s=timeout_s
        )

    def write(self, block: bytes | bytearray | memoryview) -> None:
        """Send one block; waits while the window is full."""
        self._sender.send(block)

    def finish(self) -> StagedPart:
        """Wait for all confirms."""
        self._sender.flush()
        self._sender.close()
        return StagedPart(0, 0, (), 0, 0)

    def close(self) -> None:
        """Close without waiting for confirms."""
        self._sender.close()


Connect: TypeAlias = Callable[[Options], WarrenBroker]
"""Returns a connection, perhaps one that this process has already."""
