"""Staged publishing: blocks stay invisible until their batch is published as a whole.

A batch belongs to a run of a sink: the sink's name is permanent, and a run is new whenever batch
numbers start again. A program that writes a run is its driver.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple
from urllib.parse import quote

from warren.calls import AdminCalls
from warren.claims import ClaimReader
from warren.connection import Connection
from warren.errors import BatchConflict, UsageError
from warren.outgoing import SEND_WINDOW_BYTES, BlockSender
from warren_wire.admin import claims as m
from warren_wire.arguments import NAME_BYTES_MAX

ATTEMPT_BITS = 62
REQUEST_BYTES = 1 << 20
"""Limit of one request's size; a batch over more queues and attempts takes several requests."""


@dataclass(frozen=True, slots=True)
class SinkDriver:
    """A program that writes one run of a sink; picklable, for the tasks that stage for it.

    sink   names an output
    run    batch numbers ascend within it, and start again in the next one
    epoch  newer ones fence older ones, in each queue from its first request with the newer one
    expires_ms  a queue forgets the run once it has staged and published nothing there for that
                long: a batch that was published is published again when it comes again after that.
                0: not by itself
    """

    sink: str
    run: str
    epoch: int
    expires_ms: int = 0

    def __post_init__(self) -> None:
        for what, name in (("sink", self.sink), ("run", self.run)):
            if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
                raise UsageError(f"{what} {name!r}: a name has 1 to {NAME_BYTES_MAX} bytes")


def draw_epoch(connection: Connection, *, timeout_s: float | None = None) -> int:
    """Draw a number above all that were drawn before in this cluster, for a `SinkDriver`."""
    return AdminCalls(connection).ask(m.DrawEpochRequest(), timeout_s=timeout_s).epoch


@dataclass(frozen=True, slots=True)
class StagedPart:
    """The stage of one attempt at one partition; picklable, for the driver.

    queues  (name, number of blocks) of the queues that hold some of it, by name
    """

    partition: int
    attempt: int
    queues: tuple[tuple[str, int], ...]
    blocks: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SettledClaim:
    """A claim that a batch settles; epoch: of the driver that has opened it."""

    queue: str
    reader: str
    number: int
    epoch: int

    @classmethod
    def of(cls, reader: ClaimReader, number: int) -> SettledClaim:
        """Name a claim that a reader has opened."""
        return cls(reader.queue, reader.reader, number, reader.registered_epoch())

    def settle(self, connection: Connection) -> None:
        """Settle it, and those before it."""
        ClaimReader(connection, self.queue, self.reader, self.epoch).settle(self.number)


class StageKey(NamedTuple):
    """One attempt at one partition of a batch: what names a stage within a run of a sink."""

    batch: int
    partition: int
    attempt: int


class StageWriter:
    """A writer of one attempt at one partition of a batch.

    A block is routed by the exchange (empty: the default exchange, where routing keys are queue
    names) with the routing keys in its routes. Accepted blocks are on a majority's disks. When a
    connection is lost the unaccepted blocks are sent again through another node; they are numbered,
    so that none is staged twice.

    attempt       must differ from that of every other writer of this partition and batch, even of
                  one that ended with its program, which may have left blocks; None: random
    window_bytes  limit of unaccepted bytes in flight; `write` waits when it is reached
    timeout_s     the longest wait for one block to be accepted, over all reconnections
    """

    def __init__(
        self,
        connection: Connection,
        driver: SinkDriver,
        *,
        batch: int,
        partition: int,
        attempt: int | None = None,
        exchange: str = "",
        window_bytes: int = SEND_WINDOW_BYTES,
        timeout_s: float | None = None,
    ) -> None:
        if attempt is None:
            attempt = secrets.randbits(ATTEMPT_BITS)
        self.partition = partition
        self.attempt = attempt
        target = (
            f"/exchanges/{quote(exchange, safe='')}/stage?sink={quote(driver.sink, safe='')}"
            f"&run={quote(driver.run, safe='')}&epoch={driver.epoch}"
            f"&batch={batch}&partition={partition}&attempt={attempt}"
        )
        self._sender = BlockSender(
            connection,
            lambda number: f"{target}&seq={number}",
            window_bytes=window_bytes,
            timeout_s=timeout_s,
            numbered=True,
        )
        self._blocks = 0
        self._size_bytes = 0

    def write(self, block: bytes | bytearray | memoryview) -> None:
        """Send one encoded block; waits while the window is full.

        Raises Unroutable when a message has no queue, NotFound when the exchange does not exist,
        TooLarge, Fenced, BatchPast, Unavailable. After an error the attempt cannot continue.
        """
        self._sender.send(block)
        self._blocks += 1
        self._size_bytes += len(block)

    def finish(self) -> StagedPart:
        """Wait until every block is accepted; return what the driver needs for `publish_batch`."""
        self._sender.flush()
        self._sender.close()
        queues = tuple(sorted(self._sender.queues.items()))
        return StagedPart(self.partition, self.attempt, queues, self._blocks, self._size_bytes)

    def close(self) -> None:
        """Close without finishing: staged blocks stay invisible until the batch ends."""
        self._sender.close()

    def __enter__(self) -> StageWriter:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def publish_batch(
    connection: Connection,
    driver: SinkDriver,
    batch: int,
    parts: Iterable[StagedPart],
    *,
    settles: Iterable[SettledClaim] = (),
    timeout_s: float | None = None,
) -> int:
    """Make the batch visible in every queue that it was staged in, in the order of `parts`.

    Each queue publishes it as a whole, or refuses: StageLost when its blocks are not exactly those
    of `parts`, BatchConflict when the run has published this batch there with other messages,
    BatchPast, Fenced. A BatchConflict is raised after every other queue has published. Returns the
    number of messages of the batch; a repeat (the same parts, or others with the same messages in
    any order) publishes nothing and returns the same. So an interrupted call is completed by
    repeating it.

    settles  claims that the batch was computed from. They are settled if, and only if, the batch is
             published: one decision, in the log of the batch's queue, that no crash splits. The
             batch must be in one queue of their vhost (UsageError); without rows it is not
             published, and the claims are just settled. Raises ClaimLost, Fenced when one of them
             is not open, or another driver's: nothing is published or settled then. A program that
             is started again opens the same claims again, stages the same batch and publishes it
             with the same claims: what was published is not published a second time
    """
    claims = tuple(settles)
    parts = tuple(parts)
    queues = {name for part in parts for name, _ in part.queues}
    if claims and len(queues) > 1:
        raise UsageError(
            f"batch {batch} is staged in queues {', '.join(map(repr, sorted(queues)))}: one that "
            "settles claims must be in one queue"
        )
    if not queues:
        for claim in claims:
            claim.settle(connection)
        return 0
    total = 0
    conflict: BatchConflict | None = None
    settled = tuple(asdict(claim) for claim in claims)
    run = (driver.sink, driver.run, driver.epoch, batch)
    for rows in _rows(parts, True):
        request = m.PublishBatchRequest(*run, rows, settled, driver.expires_ms)
        try:
            total += AdminCalls(connection).ask(request, timeout_s=timeout_s)
        except BatchConflict as error:
            # Raised last: a caller that accepts it assumes that the other queues have published.
            conflict = error
    if conflict is not None:
        raise conflict
    return total


def drop_batch(
    connection: Connection, driver: SinkDriver, batch: int, parts: Iterable[StagedPart]
) -> None:
    """Drop only these parts of an aborted batch; harmless when there is nothing."""
    for rows in _rows(parts, False):
        request = m.DropBatchRequest(driver.sink, driver.run, driver.epoch, batch, rows)
        AdminCalls(connection).ask(request)


def _rows(parts: Iterable[StagedPart], counted: bool) -> Iterator[dict[str, str]]:
    """Return the rows of each request by queue; counted: with the number of blocks per attempt."""
    rows: dict[str, list[str]] = {}
    for part in parts:
        for name, blocks in part.queues:
            row = f"{part.partition}:{part.attempt}"
            rows.setdefault(name, []).append(f"{row}:{blocks}" if counted else row)
    queues: dict[str, str] = {}
    size = 0
    for name in sorted(rows):
        text = ",".join(rows[name])
        if queues and size + len(text) > REQUEST_BYTES:
            yield queues
            queues, size = {}, 0
        queues[name] = text
        size += len(text) + len(name)
    if queues:
        yield queues
