"""The source for any AMQP broker on Spark's driver: which rows are a batch, when it may be settled.

The order of Spark's calls is that of `pyspark_warren.driver`. The offset is a position in the
spool, so that a batch that is run again has the same rows; a `start` is always the end of a batch
in the commit log, so everything before it is settled, and with ackMode=commit acknowledged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from pika import exceptions

from pyspark_warren.amqp.connection import is_no_queue, named, open_blocking
from pyspark_warren.amqp.giving_up import SpoolGivingUp
from pyspark_warren.amqp.lanes import Lane, LaneCounts
from pyspark_warren.amqp.names import of_look
from pyspark_warren.amqp.plan import SpoolSlice, cut_end, slices
from pyspark_warren.amqp.spool.files import stretches
from pyspark_warren.amqp.spool.lane import describe
from pyspark_warren.amqp.spool.store import SpoolPlace, open_place
from pyspark_warren.amqp.spool_offset import SpoolOffset
from pyspark_warren.driver import BATCH_MESSAGES_MAX
from pyspark_warren.errors import BrokerUnavailableError, OptionError
from pyspark_warren.options import Options

log = logging.getLogger("pyspark_warren")

LANE: Final = "0"
"""The one lane of a queue; offsets have room for more queues than one."""
PROBE_S: Final = 0.1
"""Interval of looking whether the queue is empty."""
PROBE_ANSWER_S: Final = 1.0
QUIET_PROBES: Final = 2
"""So many answers in succession without a message mean that nothing more is under way: a broker
may answer before it sends what it has just taken from the queue."""
COUNTS_S: Final = 1.0
"""The greatest age of the counts in the query's progress."""


def spool_location(options: Options) -> str:
    """Return where the spool is; raises OptionError when that is not known."""
    if options.spool_location:
        return options.spool_location
    if options.checkpoint:
        return f"{options.checkpoint.rstrip('/')}/warren-spool"
    raise OptionError(
        "option spoolLocation is missing: a directory that driver and executors can reach, a path "
        "or a URI such as s3://bucket/path, for messages that are received and not yet processed "
        "(broker=amqp)"
    )


class SpoolDriver:
    """One run of one query; see the module.

    mint     generates a new reader name
    changed  is notified of what the receiver says

    Invariant: nothing is acknowledged before a checkpoint has the reader's name, and with
    ackMode=commit nothing at or above the highest `start` or committed `end`.
    """

    def __init__(
        self,
        options: Options,
        mint: Callable[[], str],
        changed: threading.Condition | None = None,
    ) -> None:
        self._options = options
        self._mint = mint
        self._changed = changed or threading.Condition()
        self._place: SpoolPlace | None = None
        self._initial: SpoolOffset | None = None
        self._lane: Lane | None = None
        self._reader = ""
        self._looked = False
        self._ready_at_start: int | None = None
        self._target: int | None = None
        self._asked_at = 0.0
        self._start = 0
        self._giving_up = SpoolGivingUp(options, self._spool, LANE)
        self._doing = f"reading queue {options.queue!r} at {options.addresses()}"

    # -------------------------------------------------------------- Spark's calls

    def initial(self) -> SpoolOffset:
        """Return the offset where a query without a checkpoint starts; always the same."""
        if self._initial is None:
            self._look()
            self._initial = SpoolOffset(
                self._options.vhost, self._options.queue, self._mint(), (), registered=False
            )
        return self._initial

    def latest(self, start: SpoolOffset, limit: int | None) -> SpoolOffset:
        """Settle up to `start`; return where the next batch ends, `start` when there is none.

        limit  maximum number of rows; None: all that is ready
        """
        self._check_is_ours(start)
        if not start.registered:
            if limit is not None:
                return self.joined(start)
            end = self._all(start, may_ack=False)
            return start.at({LANE: 0}) if end == start else end
        lane = self.begin(start)
        part = self._giving_up.standing(start).next_part()
        if part is not None:
            self.check_link()
            return self._giving_up.begins(start.at({}, part))
        if limit is None and self._ready_at_start is None:
            return self._all(start, may_ack=True)
        at = start.position(LANE)
        if self._ready_at_start is not None:
            self.wait_for_all(start)
        else:
            lane.wait(lambda: lane.end > at, self._options.poll_interval_ms / 1000)
            self.check_link()
        rows_max = BATCH_MESSAGES_MAX if limit is None else max(1, limit)
        return self.cut(start, rows_max, self._options.max_bytes)

    def plan(self, start: SpoolOffset, end: SpoolOffset) -> tuple[SpoolSlice, ...]:
        """Return the slices of a batch; after a crash, of one that an earlier run has begun."""
        for offset in (start, end):
            self._check_is_ours(offset)
        if self._lane is not None and self._reader == end.reader and end.registered:
            self._lane.acknowledge()
        given_up = self._giving_up.plan(start, end)
        if given_up is not None:
            return given_up
        rows = end.read_since(start, LANE)
        if not rows.rows:
            return ()
        found = stretches(self._spool(), end.reader, LANE, rows.first, rows.last)
        return slices(end.reader, LANE, found, self._options.partitions)

    def settle(self, upto: SpoolOffset) -> None:
        """Settle rows before that offset, the end of a committed batch; a repeat is harmless.

        With a search `latest` does it alone: this call may be late, with what has changed since.
        """
        if upto.search is None and self._lane is not None and self._reader == upto.reader:
            self._settle(self._lane, upto)

    def prepare_available_now(self) -> None:
        """Limit further batches to what is ready now, and what the spool has."""
        self._ready_at_start = self._look(again=True)

    def backlog(self) -> dict[str, Any] | None:
        """Return the counts for the query's progress, about a second old."""
        lane = self._lane
        if lane is None:
            return None
        if time.monotonic() - self._asked_at >= COUNTS_S:
            self._asked_at = time.monotonic()
            lane.probe()
        counts = lane.counts
        shown: dict[str, Any] = {
            "messages_recognised": lane.recognised,
            "queue": self._options.queue,
            "rows_spooled": max(0, lane.end - self._start),
        }
        if counts is not None:
            shown["messages_ready"] = counts.ready
            shown["messages_unacknowledged"] = counts.unacknowledged
            shown["consumers"] = counts.consumers
        if self._giving_up.last is not None:
            shown["given_up"] = self._giving_up.last
        if lane.warning:
            shown["warning"] = lane.warning
        return shown

    def close(self) -> None:
        """End the receiver."""
        if self._lane is not None:
            self._lane.close()

    @property
    def receiver(self) -> Lane | None:
        """The lane, once there is one."""
        return self._lane

    # ---------------------------------------- steps of `latest`, for a driver of several queues

    def look(self) -> None:
        """Raise BrokerRefusedError when there is no such queue, or it may not be read; once."""
        self._look()

    def exists(self) -> bool:
        """Return whether the broker has the queue; raises what else it answers."""
        try:
            self._ready()
        except exceptions.ChannelClosedByBroker as wrong:
            if is_no_queue(wrong):
                return False
            raise named(wrong, self._doing, self._options.addresses()) from None
        return True

    def joined(self, start: SpoolOffset) -> SpoolOffset:
        """Return the end of a batch without rows for a reader that no checkpoint knows.

        It puts the reader's name into the checkpoint before anything is received under it: the
        rows of a name that is lost would stay for ever. The spool is described before: a checkpoint
        that finds none has lost it.
        """
        self._look()
        place = self._spool()
        with place.named("describing the spool"):
            place.store.make(place.reader_folder(start.reader))
            describe(place, start.reader, start.vhost, start.queue)
        return start.at({LANE: 0})

    def begin(self, start: SpoolOffset) -> Lane:
        """Return the lane with its receiver, settled up to `start`, which is registered."""
        lane = self._running(start, may_ack=True)
        self._settle(lane, start)
        return lane

    def wait_for_all(self, start: SpoolOffset) -> None:
        """Trigger availableNow: wait for rows beyond `start`, or for the end of the run."""
        assert self._lane is not None, "begin comes first"
        self._wait_for_more(self._lane, start.position(LANE))

    def available(self, start: SpoolOffset) -> tuple[int, int]:
        """Return the durable rows beyond `start` and their bytes."""
        lane = self._lane
        assert lane is not None, "begin comes first"
        rows = lane.end if self._target is None else min(lane.end, self._target)
        size = sum(size for _, size in self._reports(lane, start))
        return max(0, rows - start.position(LANE)), size

    def check_link(self) -> None:
        """Raise BrokerUnavailableError: there was no connection for requestTimeout."""
        if self._lane is not None:
            self._check_link(self._lane)

    def cut(self, start: SpoolOffset, rows_max: int, bytes_max: int | None) -> SpoolOffset:
        """Return where a batch of at most so many durable rows and bytes ends."""
        lane = self._lane
        assert lane is not None, "begin comes first"
        at = start.position(LANE)
        if lane.end <= at:
            self._giving_up.check_room(start)
            return start
        end = cut_end(at, self._reports(lane, start), rows_max, bytes_max)
        if self._target is not None:
            end = min(end, self._target)
        if end <= at:
            return start
        search = self._giving_up.standing(start).next_rows(end)
        return self._giving_up.begins(start.at({LANE: end}, search))

    # -------------------------------------------------------------- steps

    def _check_is_ours(self, offset: SpoolOffset) -> None:
        offset.check_is_of(self._options.vhost, self._options.queue)

    def _spool(self) -> SpoolPlace:
        if self._place is None:
            self._place = open_place(spool_location(self._options))
        return self._place

    def _look(self, again: bool = False) -> int:
        """Return how many messages the queue has ready; raises BrokerRefusedError: no such queue.

        Only once, unless `again`: before a query begins, so that it fails with the reason.
        """
        if self._looked and not again:
            return 0
        try:
            found = self._ready()
        except (exceptions.AMQPError, OSError) as wrong:
            raise named(wrong, self._doing, self._options.addresses()) from None
        self._looked = True
        return found

    def _ready(self) -> int:
        """Ask the broker for the queue's ready messages; raises pika's errors."""
        connection = open_blocking(self._options, self._doing, of_look(self._options))
        try:
            found = connection.channel().queue_declare(self._options.queue, passive=True)
            return int(found.method.message_count)
        finally:
            if connection.is_open:
                connection.close()

    def _running(self, start: SpoolOffset, may_ack: bool) -> Lane:
        """Return the lane, with its receiver."""
        if self._lane is None or self._reader != start.reader:
            self._spool()
            self._look()
            if self._lane is not None:
                self._lane.close()
            self._reader = start.reader
            seen = start.position(LANE)
            decided = self._giving_up.standing(start).decisions(seen)
            self._lane = Lane(
                self._options, start.reader, LANE, seen, may_ack, self._changed, decided
            )
        elif may_ack:
            self._lane.acknowledge()
        self._lane.check()
        return self._lane

    def _settle(self, lane: Lane, upto: SpoolOffset) -> None:
        """Settle what was written before `upto`, except rows that a search has yet to read."""
        position = upto.position(LANE)
        self._start = max(self._start, position)
        search = self._giving_up.standing(upto)
        lane.settle(search.settled(position), search.decisions(position))
        lane.forget_reports(position)

    def _all(self, start: SpoolOffset, may_ack: bool) -> SpoolOffset:
        """Return the end of a batch with all that is ready: trigger once."""
        lane = self._running(start, may_ack)
        most = self._options.prefetch * self._options.receivers
        received_when_all: int | None = None

        def enough(counts: LaneCounts) -> bool:
            nonlocal received_when_all
            received = counts.end + lane.recognised
            if received_when_all is None:
                received_when_all = received + counts.ready + counts.unwritten
            # A queue to which others publish steadily may never be empty.
            return counts.unacknowledged >= most or (
                received >= received_when_all and counts.end > start.position(LANE)
            )

        self._wait_until_empty(lane, enough)
        return self.cut(start, BATCH_MESSAGES_MAX, None)

    def _wait_for_more(self, lane: Lane, at: int) -> None:
        """Trigger availableNow: wait for rows beyond `at`, or for the end of the run."""
        self._wait_for_owner(lane)
        if self._target is None:
            assert self._ready_at_start is not None and lane.base is not None
            self._target = max(lane.base, at) + self._ready_at_start
        if lane.end <= at and (at < self._target or lane.counts is None):
            self._wait_until_empty(lane, lambda _: lane.end > at)

    def _wait_for_owner(self, lane: Lane) -> None:
        while not lane.wait(lambda: lane.base is not None, PROBE_S):
            self._check_link(lane)

    def _wait_until_empty(self, lane: Lane, enough: Callable[[LaneCounts], bool]) -> None:
        """Wait until the queue has nothing ready and all that was received is in the spool.

        enough  whether to wait no longer
        raises  BrokerUnavailableError: for requestTimeout nothing has moved, or no answer came
        """
        self._wait_for_owner(lane)
        quiet, last = 0, None
        still = _Standstill(self._doing, self._options.request_timeout_ms / 1000)
        while True:
            probe = lane.probe()
            found = lane.wait_for_counts(probe, PROBE_ANSWER_S)
            self._check_link(lane)
            still.check(found, lane)
            if found is None:
                continue
            if enough(found):
                return
            silent = found.ready == 0 and found.unwritten == 0
            same = last is None or found.end == last
            quiet, last = (quiet + 1 if silent and same else 0), found.end
            if quiet >= QUIET_PROBES:
                return
            lane.wait(lambda: False, PROBE_S)

    def _check_link(self, lane: Lane) -> None:
        if lane.down_s() > self._options.request_timeout_ms / 1000:
            raise BrokerUnavailableError(f"{self._doing}: {lane.down_text}")

    def _reports(self, lane: Lane, start: SpoolOffset) -> list[tuple[int, int]]:
        """Return (end, bytes) of what is durable, from `start` or from the file that it is in."""
        at, end = start.position(LANE), lane.end
        reports = [report for report in lane.reports if report[0] <= end]
        if lane.base is None or lane.base <= at:
            return reports
        before = stretches(self._spool(), start.reader, LANE, at, lane.base)
        return [(each.position + each.rows, each.size_bytes) for each in before] + reports


class _Standstill:
    """How long a run that waits for a queue's end has seen nothing move."""

    def __init__(self, doing: str, limit_s: float) -> None:
        self._doing, self._limit_s = doing, limit_s
        self._moved_s = time.monotonic()
        self._seen: tuple[object, ...] = ()

    def check(self, found: LaneCounts | None, lane: Lane) -> None:
        """Raise BrokerUnavailableError after the limit.

        A new connection is a movement, and so is a write into the spool, however slow.

        found  the receiver's answer; None: none came
        """
        seen = (lane.end, lane.recognised, lane.pid, lane.links, found)
        if found is not None and (seen != self._seen or found.unwritten):
            self._seen, self._moved_s = seen, time.monotonic()
        if time.monotonic() - self._moved_s <= self._limit_s:
            return
        waited = f"for requestTimeout={self._limit_s:g}s"
        if found is None:
            raise BrokerUnavailableError(
                f"{self._doing}: the receiver (process {lane.pid}) has not answered {waited}: it "
                "is stopped, or the broker does not answer it; end that process, or raise "
                "requestTimeout"
            )
        raise BrokerUnavailableError(
            f"{self._doing}: the queue has {found.ready} messages ready, and the broker delivers "
            f"none {waited} ({found.consumers} consumers): another one is its single active "
            "consumer or has a higher priority, or the queue is a stream; stop the other one, or "
            "read with a trigger that waits"
        )
