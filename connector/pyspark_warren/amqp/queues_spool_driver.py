"""The source for several queues of any AMQP broker on Spark's driver: one offset for all.

Each queue has a `SpoolDriver` with what that promises: a receiver, a spool and positions of its
own. What this driver adds is the wait for all of them at once, and the division of a micro-batch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark_warren.amqp.lanes import Lane
from pyspark_warren.amqp.plan import SpoolSlice
from pyspark_warren.amqp.queues_spool_offset import QueuesSpoolOffset
from pyspark_warren.amqp.spool_driver import LANE, SpoolDriver
from pyspark_warren.amqp.spool_offset import SpoolOffset
from pyspark_warren.driver import BATCH_MESSAGES_MAX
from pyspark_warren.errors import CheckpointError
from pyspark_warren.offset import check_same_vhost
from pyspark_warren.options import Options
from pyspark_warren.share import divide

log = logging.getLogger("pyspark_warren")


class QueueSlice(NamedTuple):
    """The work of one Spark task, and the queue that it is of."""

    queue: str
    part: SpoolSlice


class QueuesSpoolDriver:
    """One run of one query that reads several queues; see `SpoolDriver` for Spark's calls.

    A queue joins with a batch that has no row of it and puts its reader's name into the checkpoint.
    A queue that the checkpoint has and the options do not name is refused: messages of its last
    batches may be in Spark's tables and not acknowledged yet, and another consumer would have them
    again. It may be left out when the broker does not have it any more.

    mint  generates a new reader name
    """

    def __init__(self, options: Options, mint: Callable[[], str]) -> None:
        self._options = options
        self._mint = mint
        self._changed = threading.Condition()
        self._drivers: dict[str, SpoolDriver] = {}
        self._initial: QueuesSpoolOffset | None = None
        self._available_now = False
        self._compared = False
        self._turns: list[str] = list(options.queues)
        for name in options.queues:
            self._drivers[name] = self._driver(name)

    def _driver(self, queue: str) -> SpoolDriver:
        options = replace(self._options, queue=queue, queues=())
        return SpoolDriver(options, self._mint, self._changed)

    # -------------------------------------------------------------- Spark's calls

    def initial(self) -> QueuesSpoolOffset:
        """Return the offset where a query without a checkpoint starts; always the same."""
        if self._initial is None:
            for driver in self._drivers.values():
                driver.look()
            self._initial = QueuesSpoolOffset(self._options.vhost, self._mint(), {}, False)
        return self._initial

    def latest(self, start: QueuesSpoolOffset, limit: int | None) -> QueuesSpoolOffset:
        """Settle up to `start`; return where the next batch ends, `start` when there is none.

        limit  maximum number of rows; None: all that is ready
        """
        self._compare(start)
        if limit is None and not self._available_now:
            found = {
                name: driver.latest(start.of(name), None) for name, driver in self._drivers.items()
            }
            return start if found == start.queues else start.at(found)
        joining = {name: start.of(name) for name in self._drivers if name not in start.queues}
        if joining:
            return start.at({name: self._drivers[name].joined(at) for name, at in joining.items()})
        known = {name: start.queues[name] for name in self._drivers}
        lanes = {name: self._drivers[name].begin(at) for name, at in known.items()}
        if self._available_now:
            for name, at in known.items():
                self._drivers[name].wait_for_all(at)
        else:
            self._wait_for_any(lanes, known)
        found = self._cut(known, BATCH_MESSAGES_MAX if limit is None else max(1, limit))
        return start if found == known else start.at(found)

    def plan(self, start: QueuesSpoolOffset, end: QueuesSpoolOffset) -> tuple[QueueSlice, ...]:
        """Return the slices of a batch, queue by queue; after a crash, of one that was begun."""
        found = []
        for name, last in sorted(end.queues.items()):
            driver = self._drivers.get(name) or self._driver(name)
            found += [QueueSlice(name, part) for part in driver.plan(start.of(name), last)]
        return tuple(found)

    def settle(self, upto: QueuesSpoolOffset) -> None:
        """Settle rows before that offset, the end of a committed batch; a repeat is harmless."""
        for name, offset in upto.queues.items():
            if name in self._drivers:
                self._drivers[name].settle(offset)

    def prepare_available_now(self) -> None:
        """Limit further batches to what is ready now, and what the spools have."""
        self._available_now = True
        for driver in self._drivers.values():
            driver.prepare_available_now()

    def backlog(self) -> dict[str, Any] | None:
        """Return the sums of the queues' counts for the query's progress."""
        found = {name: driver.backlog() or {} for name, driver in self._drivers.items()}
        names = {name for each in found.values() for name in each} - {"queue", "warning"}
        if not names:
            return None
        shown: dict[str, Any] = {
            name: sum(each.get(name, 0) for each in found.values()) for name in sorted(names)
        }
        shown["queues"] = {
            name: each["messages_ready"] for name, each in found.items() if "messages_ready" in each
        }
        warnings = [each["warning"] for each in found.values() if "warning" in each]
        return {**shown, "warning": "; ".join(warnings)} if warnings else shown

    def close(self) -> None:
        """End the receivers."""
        for driver in self._drivers.values():
            driver.close()

    @property
    def drivers(self) -> dict[str, SpoolDriver]:
        """The driver of each queue."""
        return self._drivers

    # -------------------------------------------------------------- steps

    def _compare(self, start: QueuesSpoolOffset) -> None:
        """Raise CheckpointError where the checkpoint is of another vhost, or has other queues."""
        if self._compared:
            return
        check_same_vhost(start.vhost, self._options.vhost)
        for name in sorted(set(start.queues) - set(self._drivers)):
            if self._driver(name).exists():
                raise CheckpointError(
                    f"the query of this checkpoint reads queue {name!r}, which option queues does "
                    "not name: what it has of that queue may not be acknowledged yet; name the "
                    "queue, delete it, or use another checkpointLocation"
                )
            log.warning("queue %r was deleted and is not read any more", name)
        self._compared = True

    def _wait_for_any(self, lanes: dict[str, Lane], known: dict[str, SpoolOffset]) -> None:
        """Wait up to pollInterval until a queue has durable rows beyond its position."""
        until = time.monotonic() + self._options.poll_interval_ms / 1000
        with self._changed:
            while not any(lane.end > known[name].position(LANE) for name, lane in lanes.items()):
                for lane in lanes.values():
                    lane.check()
                left_s = until - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
        for driver in self._drivers.values():
            driver.check_link()

    def _cut(self, known: dict[str, SpoolOffset], rows_max: int) -> dict[str, SpoolOffset]:
        """Divide the limits of a micro-batch among the queues that have rows.

        When there are more of those than rows, the longest waiting ones get one each.
        """
        ready = {name: self._drivers[name].available(at) for name, at in known.items()}
        sharing = self._options.queue_sharing
        rows = {name: found for name, (found, _) in ready.items()}
        given = divide(rows_max, rows, self._turns, sharing)
        sizes = {name: ready[name][1] for name in given}
        turns = [name for name in self._turns if name in given]
        parts = divide(self._options.max_bytes, sizes, turns, sharing)
        ends = dict(known)
        for name, most in given.items():
            ends[name] = self._drivers[name].cut(known[name], most, parts.get(name, 1))
        served = [name for name in given if ends[name] != known[name]]
        self._turns = [name for name in self._turns if name not in served] + served
        return ends
