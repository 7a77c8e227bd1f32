"""The source for any AMQP broker on Spark's driver: which rows are a batch, when it may be settled.

The order of Spark's calls is that of `claims.driver`. The offset is a position in the spool of each
queue, so that a batch that is run again has the same rows; a `start` is always the end of a batch
in the commit log, so everything before it is settled, and with ackMode=commit acknowledged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark_warren.claims.offset import check_queues
from pyspark_warren.claims.plan import BATCH_MESSAGES_MAX
from pyspark_warren.claims.selection import divide
from pyspark_warren.errors import CheckpointError
from pyspark_warren.options.options import Options
from pyspark_warren.spool.lanes import Lane
from pyspark_warren.spool.offset import SpoolOffset, SpoolPosition, SpoolSlice
from pyspark_warren.spool.queue_spool import QueueSpool

log = logging.getLogger("pyspark_warren")


class SpoolDriver:
    """One run of one query, which reads one queue or more.

    Each queue has a receiver, a spool and positions of its own (`QueueSpool`). A queue joins with a
    batch that has no row of it and puts its reader's name into the checkpoint. A queue that the
    checkpoint has and the options do not name is refused: messages of its last batches may be in
    Spark's tables and not acknowledged yet, and another consumer would have them again. It may be
    left out when the broker does not have it any more.

    mint    generates a new reader name
    queues  the queues of the options, by name
    """

    def __init__(self, options: Options, mint: Callable[[], str]) -> None:
        self._options = options
        self._mint = mint
        self._changed = threading.Condition()
        self._initial: SpoolOffset | None = None
        self._available_now = False
        self._compared = False
        names = options.queues or (options.queue,)
        self._turns: list[str] = list(names)
        self.queues: dict[str, QueueSpool] = {name: self._made(name) for name in names}

    def _made(self, queue: str) -> QueueSpool:
        return QueueSpool(replace(self._options, queue=queue, queues=()), self._changed)

    # -------------------------------------------------------------- Spark's calls

    def initial(self) -> SpoolOffset:
        """Return the offset where a query without a checkpoint starts; always the same."""
        if self._initial is None:
            for queue in self.queues.values():
                queue.look()
            self._initial = SpoolOffset(self._options.vhost, self._mint(), registered=False)
        return self._initial

    def latest(self, start: SpoolOffset, limit: int | None, alone: bool = False) -> SpoolOffset:
        """Settle up to `start`; return where the next batch ends, `start` when there is none.

        limit  maximum number of rows; None: all that is ready
        alone  the run may have no other batch, so it has what is ready, up to the limit
        """
        self._check_is_ours(start)
        self._compare(start)
        at = {name: start.of(name, self._options.several) for name in self.queues}
        if (alone or limit is None) and not self._available_now:
            ends = {
                name: self.queues[name].everything(each, name in start.queues, *self._share(limit))
                for name, each in at.items()
            }
            return start if ends == start.queues else start.at(ends)
        joining = {name: each for name, each in at.items() if name not in start.queues}
        if joining:
            return start.at(
                {name: self.queues[name].joined(each) for name, each in joining.items()}
            )
        lanes = {name: self.queues[name].begin(each) for name, each in at.items()}
        for name, each in at.items():
            part = self.queues[name].next_part(each)
            if part is not None:
                return start.at({name: part})
        if self._available_now:
            for name, each in at.items():
                self.queues[name].wait_for_all(each)
        else:
            self._wait_for_any(lanes, at)
        ends = self._cut(at, BATCH_MESSAGES_MAX if limit is None else max(1, limit))
        return start if ends == at else start.at(ends)

    def plan(self, start: SpoolOffset, end: SpoolOffset) -> tuple[SpoolSlice, ...]:
        """Return the slices of a batch, queue by queue; after a crash, of one that was begun."""
        found: list[SpoolSlice] = []
        for offset in (start, end):
            self._check_is_ours(offset)
        for name, last in sorted(end.queues.items()):
            queue = self.queues.get(name) or self._made(name)
            found += queue.plan(start.queues.get(name), last)
        return tuple(found)

    def settle(self, upto: SpoolOffset) -> None:
        """Settle rows before that offset, the end of a committed batch; a repeat is harmless."""
        for name, position in upto.queues.items():
            if name in self.queues:
                self.queues[name].settle(position)

    def prepare_available_now(self) -> None:
        """Limit further batches to what is ready now, and what the spools have."""
        self._available_now = True
        for queue in self.queues.values():
            queue.limit_to_ready()

    def backlog(self) -> dict[str, Any] | None:
        """Return the queues' counts for the query's progress."""
        found = {name: queue.backlog() or {} for name, queue in self.queues.items()}
        if not self._options.several:
            return found[self._options.queue] or None
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
        for queue in self.queues.values():
            queue.close()

    # -------------------------------------------------------------- steps

    def _check_is_ours(self, offset: SpoolOffset) -> None:
        check_queues(self._options, offset.vhost, offset.queues, self.queues.__contains__)

    def _compare(self, start: SpoolOffset) -> None:
        """Raise CheckpointError where the checkpoint has queues that the options do not name."""
        if self._compared:
            return
        for name in sorted(set(start.queues) - set(self.queues)):
            if self._made(name).exists():
                raise CheckpointError(
                    f"the query of this checkpoint reads queue {name!r}, which the options do "
                    "not name: what it has of that queue may not be acknowledged yet; name the "
                    "queue (option queues), delete it, or use another checkpointLocation"
                )
            log.warning("queue %r was deleted and is not read any more", name)
        self._compared = True

    def _wait_for_any(self, lanes: Mapping[str, Lane], at: Mapping[str, SpoolPosition]) -> None:
        """Wait up to pollInterval until a queue has durable rows beyond its position."""
        first, *others = lanes.values()

        def any_has_rows() -> bool:
            for lane in others:
                lane.check()
            return any(lane.end > at[name].row for name, lane in lanes.items())

        first.wait(any_has_rows, self._options.poll_interval_ms / 1000)  # they share `_changed`
        for queue in self.queues.values():
            queue.check_link()

    def _share(self, limit: int | None) -> tuple[int, int | None]:
        """Return the most rows and bytes of each queue in a batch that may be the only one."""
        if limit is None:
            return BATCH_MESSAGES_MAX, None
        count = len(self.queues)
        return max(1, limit // count), max(1, self._options.max_bytes // count)

    def _cut(self, at: Mapping[str, SpoolPosition], rows_max: int) -> dict[str, SpoolPosition]:
        """Divide the limits of a micro-batch among the queues that have rows.

        When there are more of those than rows, the longest waiting ones get one each.
        """
        ready = {name: self.queues[name].available(each) for name, each in at.items()}
        sharing = self._options.queue_sharing
        rows = {name: found for name, (found, _) in ready.items()}
        given = divide(rows_max, rows, self._turns, sharing)
        sizes = {name: ready[name][1] for name in given}
        turns = [name for name in self._turns if name in given]
        parts = divide(self._options.max_bytes, sizes, turns, sharing)
        ends = {
            name: self.queues[name].cut(each, given.get(name, 1), parts.get(name, 1))
            if name in given or not rows[name]
            else each
            for name, each in at.items()
        }
        served = [name for name in given if ends[name] != at[name]]
        self._turns = [name for name in self._turns if name not in served] + served
        return ends
