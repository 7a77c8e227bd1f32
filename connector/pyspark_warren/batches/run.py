"""One run of a loop of batches: what is done, and in which order.

A batch takes these steps, in this order:
1. `latest`: the driver settles what is committed, and says where the next batch ends.
2. The offset log has the batch: from now on it has these rows and this number, come what may.
3. The function gets the rows and the number.
4. The commit log has the batch. Step 1 of the next one settles it.

Killed after  what the next run does
1             `latest` from the same start gives the same claim, or what the spool has then
2, 3          runs the function again: same rows, same number
4             settles the batch, and begins the next one
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pyspark_warren.batches.checkpoint import Checkpoint
from pyspark_warren.batches.log import Standing
from pyspark_warren.errors import CheckpointError, named_conditions
from pyspark_warren.source_reading import SourceReading
from pyspark_warren.surroundings import Renewer


class BatchRun:
    """One run of a loop: the driver, the checkpoint, and where the logs stand.

    process  gives a batch to the function: its number, and the work of its tasks

    Invariant: a claim is opened, and a row acknowledged, only as Spark's own order of calls does it
    (`claims.driver`): `start` is in the commit log, `plan` follows the offset log.
    """

    def __init__(
        self,
        reading: SourceReading,
        checkpoint: Checkpoint,
        process: Callable[[int, list[Any]], None],
    ) -> None:
        self._reading = reading
        self._checkpoint = checkpoint
        self._process = process
        self._limit = reading.options.max_messages
        self._renewer: Renewer | None = None
        self._at = checkpoint.standing()
        self._again = self._at.end is not None
        with named_conditions(reading.doing):
            self._driver = reading.begin()

    def prepare_available_now(self) -> None:
        """Limit the run to what is ready now."""
        with named_conditions(self._reading.doing):
            self._driver.prepare_available_now()

    def step(self) -> bool | None:
        """Run the next batch; return whether it had rows, None when there is no batch."""
        if self._at.end is None:
            end = self._latest()
            if end is None:
                return None
            self._at = self._checkpoint.begin(self._at, end)
        ran = self._run_batch(self._at)
        self._at = self._checkpoint.done(self._at)
        return ran

    def settle(self) -> None:
        """Settle the last batch, before the end of a run that may be the last for long."""
        if self._at.end is None and self._at.start is not None:
            with named_conditions(self._reading.doing):
                self._driver.settle(self._offset(self._at.start))

    def close(self) -> None:
        """End what runs beside the loop."""
        if self._renewer is not None:
            self._renewer.stop()
        self._driver.close()

    def _latest(self) -> Mapping[str, Any] | None:
        with named_conditions(self._reading.doing):
            start = self._start()
            end = self._driver.latest(start, self._limit)
        self._keep_renewed()
        return None if end == start else json_of(end)

    def _run_batch(self, at: Standing) -> bool:
        assert at.end is not None, at
        with named_conditions(self._reading.doing):
            slices = self._driver.plan(self._start(), self._offset(at.end))
        self._keep_renewed()
        tasks = list(self._reading.tasks(slices))
        # A batch that an earlier run has begun may have none because its claim was lost: what the
        # function wrote then is replaced, too.
        if tasks or self._again:
            try:
                self._process(at.number, tasks)
            except Exception:
                with suppress(CheckpointError):
                    self._checkpoint.check_owner()  # a newer loop may have settled these rows
                raise
        self._again = False
        return bool(tasks)

    def _start(self) -> Any:
        return self._driver.initial() if self._at.start is None else self._offset(self._at.start)

    def _offset(self, stored: Mapping[str, Any]) -> Any:
        return self._reading.offsets.from_dict(stored)

    def _keep_renewed(self) -> None:
        every_ms = self._reading.renewed_every_ms()
        if every_ms and self._driver.attached and not (self._renewer and self._renewer.alive):
            self._renewer = Renewer(self._driver.renew, every_ms)


def json_of(offset: Any) -> Mapping[str, Any]:
    """Return an offset as the log has it."""
    made: Mapping[str, Any] = json.loads(json.dumps(offset.to_dict()))
    return made
