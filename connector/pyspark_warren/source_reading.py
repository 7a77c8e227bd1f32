"""Reading of one kind: its driver and its tasks, for a streaming query or a loop of batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from pyspark_warren.options.options import Options
from pyspark_warren.versions import OfOneVersion


class SourceReading(OfOneVersion, ABC):
    """A way of reading with its options; sent to the executors, which only call `rows`.

    offsets  the class of its offsets
    schema   the columns that are read
    doing    what is done, for the texts of errors
    """

    offsets: ClassVar[type[Any]]

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema

    @property
    def doing(self) -> str:
        """What is done, for the texts of errors."""
        return f"reading {self.options.read_text()} at {self.options.addresses()}"

    @abstractmethod
    def begin(self) -> Any:
        """Return the driver's side, which has the calls of `claims.driver.ClaimDriver`."""

    @abstractmethod
    def rows(self, work: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, the same ones whenever it is called."""

    def tasks(self, slices: Sequence[Any]) -> Sequence[Any]:
        """Return the work of each task."""
        return slices

    @property
    def first_has_rows(self) -> bool:
        """Whether a query's first batch reads although it will not be the run's only one."""
        return False

    def renewed_every_ms(self) -> int:
        """Return in what time the driver must be renewed while it runs; 0: it need not be."""
        return 0
