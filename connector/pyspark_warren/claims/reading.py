"""The source over queues of Warren."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pyspark_warren.claims.client import Connect
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.claims.plan import Slice, pack
from pyspark_warren.claims.reader import read_task
from pyspark_warren.options.options import Options
from pyspark_warren.source_reading import SourceReading
from pyspark_warren.surroundings import Surroundings


class ClaimReading(SourceReading):
    """A micro-batch is one claim of each queue; connect returns the connection of a process."""

    offsets = Offset

    def __init__(self, options: Options, schema: pa.Schema, connect: Connect) -> None:
        super().__init__(options, schema)
        self._connect = connect

    def begin(self, around: Surroundings | None = None) -> ClaimDriver:
        """Return the driver's side, in this process or in a test's surroundings."""
        broker = self._connect(self.options)
        return ClaimDriver(broker, self.options, around or Surroundings.of_this_process())

    def rows(self, work: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some slices."""
        yield from read_task(self._connect, self.options, work, self.schema)

    def tasks(self, slices: Sequence[Slice]) -> Sequence[Sequence[Slice]]:
        """Return small slices together."""
        whole = self.options.partitions or not self.options.several
        return [(each,) for each in slices] if whole else pack(slices)

    def renewed_every_ms(self) -> int:
        """Return the shorter one of claimTtl and readerExpires."""
        times = (self.options.claim_ttl_ms, self.options.reader_expires_ms)
        return min((each for each in times if each), default=0)
