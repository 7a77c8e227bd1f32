"""The source over queues of Warren.

The driver's side is imported where it begins, and the tasks' where they read: each process has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_warren.claims.offset import Offset
from pyspark_warren.options.amqp import FAIL
from pyspark_warren.options.options import Options
from pyspark_warren.source_reading import SourceReading

if TYPE_CHECKING:
    from pyspark_warren.claims.client import Connect
    from pyspark_warren.claims.driver import ClaimDriver
    from pyspark_warren.claims.plan import Slice


class ClaimReading(SourceReading):
    """A micro-batch is one claim of each queue; connect returns the connection of a process."""

    offsets = Offset

    def __init__(self, options: Options, schema: pa.Schema, connect: Connect) -> None:
        super().__init__(options, schema)
        self._connect = connect

    def begin(self) -> ClaimDriver:
        """Return the driver's side."""
        from pyspark_warren.claims.driver import ClaimDriver
        from pyspark_warren.surroundings import Surroundings

        broker = self._connect(self.options)
        return ClaimDriver(broker, self.options, Surroundings.of_this_process())

    def rows(self, work: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some slices."""
        from pyspark_warren.claims.reader import read_task

        yield from read_task(self._connect, self.options, work, self.schema)

    def tasks(self, slices: Sequence[Slice]) -> Sequence[Sequence[Slice]]:
        """Return small slices together."""
        from pyspark_warren.claims.plan import pack

        whole = self.options.partitions or not self.options.several
        return [(each,) for each in slices] if whole else pack(slices)

    @property
    def first_has_rows(self) -> bool:
        """Whether the first claim has the limits of the options, which is all that it needs."""
        given = self.options
        plain = given.on_batch_failure == FAIL and not given.target_batch_ms
        return plain and not (given.several or given.min_messages or given.min_bytes)

    def renewed_every_ms(self) -> int:
        """Return the shorter one of claimTtl and readerExpires."""
        times = (self.options.claim_ttl_ms, self.options.reader_expires_ms)
        return min((each for each in times if each), default=0)
