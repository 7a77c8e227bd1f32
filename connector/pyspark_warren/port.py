"""The interface between the connector and the client.

`client.connect` returns the real one; the connector's tests have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeAlias

from pyspark_warren.options import Options
from warren.admin import Queue
from warren.claims import Claim, FetchedBlock, Registration
from warren.stages import SinkDriver, StagedPart


class ReaderPort(Protocol):
    """A registered claim reader; see `warren.claims.ClaimReader`."""

    def register(self, *, go_on_after: int = 0) -> Registration:
        """Get a new epoch, which fences older drivers.

        Lost claims up to go_on_after count as settled.
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
        """Claim `number`, the same content however often; without messages only if keep_empty."""

    def settle(self, number: int) -> int:
        """Acknowledge claims up to `number`."""

    def renew(self) -> None:
        """Renew claims with a time to live."""

    def release(self, number: int = 0, *, failed: bool = False) -> int:
        """Give claims back to the queue."""


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
        """Counts of a queue."""

    def reader(self, queue: str, reader: str) -> ReaderPort:
        """The driver's side of a claim reader."""

    def fetch(
        self, queue: str, reader: str, number: int, first: int, last: int
    ) -> Iterator[FetchedBlock]:
        """The messages first <= i < last of an open claim; changes nothing."""

    def browse(self, queue: str, max_messages: int) -> Iterator[FetchedBlock]:
        """Ready messages, untouched."""

    def draw_epoch(self, timeout_s: float) -> int:
        """A number above all drawn before, for a driver."""

    def stage(
        self,
        exchange: str,
        driver: SinkDriver,
        batch: int,
        partition: int,
        attempt: int,
        timeout_s: float,
    ) -> WriterPort:
        """Somewhere to write blocks that stay invisible until published."""

    def publish_batch(
        self, driver: SinkDriver, batch: int, parts: Iterable[StagedPart], timeout_s: float
    ) -> int:
        """Make the batch visible, entirely; a repeat is answered as the first time."""

    def drop_batch(self, driver: SinkDriver, batch: int, parts: Iterable[StagedPart]) -> None:
        """Forget these parts."""

    def publisher(self, exchange: str, timeout_s: float) -> WriterPort:
        """Somewhere to write blocks that are visible at once."""


Connect: TypeAlias = Callable[[Options], BrokerPort]
"""Gives a connection, perhaps one that this process has already."""
