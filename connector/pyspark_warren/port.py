"""The interface between the connector and the client.

`client.connect` returns the real implementation; the connector's tests have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

from pyspark_warren.options import Options
from pyspark_warren.plan import GivenUp, ViewPiece
from warren.admin import Queue
from warren.claims import (
    Claim,
    ClaimSlice,
    FetchedBlock,
    ReaderStep,
    Registration,
    StepTaken,
)
from warren.errors import WarrenError
from warren.stages import SettledClaim, SinkDriver, StagedPart, StageKey
from warren.views import ViewedBlock
from warren_wire.block.layout import AREAS


class ReaderPort(Protocol):
    """A registered claim reader; see `warren.claims.ClaimReader`."""

    def register(self, *, go_on_after: int = 0, expires_ms: int = 0) -> Registration:
        """Get a new epoch, which fences older drivers.

        Lost claims up to go_on_after count as settled. expires_ms: silence after which the queue
        forgets the reader; 0: see `queues.reader_idle_ms`
        """

    def open(
        self,
        number: int,
        *,
        max_messages: int,
        max_bytes: int,
        ttl_ms: int = 0,
        keep_empty: bool = False,
    ) -> Claim:
        """Open claim `number`; a repeat returns the same content. Empty only with keep_empty."""

    def settle(self, number: int) -> int:
        """Settle claims up to `number`."""

    def withdraw(self, number: int) -> int:
        """Give a claim's messages back that was opened ahead; it stays open, and empty."""

    def release(self, number: int = 0, *, failed: bool = False) -> int:
        """Give claims back to the queue."""

    def renew(self) -> None:
        """Renew claims with a time to live."""


class WriterPort(Protocol):
    """A stage, or a plain publisher; see `warren.stages.StageWriter`."""

    def write(self, block: bytes | bytearray | memoryview) -> None:
        """Send one encoded block; may wait for room in the window."""

    def finish(self) -> StagedPart:
        """Wait until everything is confirmed."""

    def close(self) -> None:
        """Give up."""


class BrokerPort(Protocol):
    """One connection to a cluster. Errors are those of `warren.errors`."""

    def queue(self, name: str) -> Queue:
        """Return the counts of a queue."""

    def queues(self, pattern: str) -> list[Queue]:
        """Return the queues with names that match a pattern; zeros for counts not known."""

    def queues_named(self, names: Sequence[str]) -> list[Queue | WarrenError]:
        """Return the counts of several queues, asked at once; in the place of one its error."""

    def take_steps(self, steps: Sequence[ReaderStep]) -> list[StepTaken | WarrenError]:
        """Settle and open claims of several queues at once; in the place of one its error."""

    def reader(self, queue: str, reader: str) -> ReaderPort:
        """Return the driver's side of a claim reader."""

    def fetch_slices(
        self, slices: Sequence[ClaimSlice], areas: int
    ) -> Iterator[tuple[int, FetchedBlock]]:
        """Yield the messages of several slices in their order, each with its slice's number.

        An error is raised at the slice that it is about: the ones before it are complete.
        """

    def give_up(self, queue: str, reader: str, number: int, given_up: GivenUp) -> int:
        """Take all messages out of an open claim; a repeat changes nothing."""

    def browse(self, queue: str, max_messages: int, areas: int = AREAS) -> Iterator[FetchedBlock]:
        """Yield ready messages without a change."""

    def view_edges(self, queue: str, states: Sequence[str], pieces: int) -> list[int]:
        """Return log indexes that cut what is in these states into equal pieces."""

    def view(
        self, queue: str, states: Sequence[str], piece: ViewPiece, times: bool, areas: int | None
    ) -> Iterator[ViewedBlock]:
        """Yield messages with their states without a change; see `warren.views.view`.

        areas  None: no blocks
        """

    def draw_epoch(self, timeout_s: float) -> int:
        """Draw a number above all that were drawn before, for a driver."""

    def stage(
        self, exchange: str, driver: SinkDriver, key: StageKey, timeout_s: float
    ) -> WriterPort:
        """Open a writer of blocks that stay invisible until published."""

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

    def last_batches(self, queue: str, run: str) -> dict[str, int]:
        """Return the last batch of each sink of which a queue remembers a run of that name."""

    def drop_batch(self, driver: SinkDriver, batch: int, parts: Iterable[StagedPart]) -> None:
        """Drop these parts."""

    def publisher(self, exchange: str, timeout_s: float) -> WriterPort:
        """Open a writer of blocks that are visible at once."""


Connect: TypeAlias = Callable[[Options], BrokerPort]
"""Returns a connection, perhaps one that this process has already."""
