"""One queue of a query on Spark's driver, at any AMQP broker: its receiver, its spool, its rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from pyspark_warren.errors import BrokerUnavailableError, OptionError
from pyspark_warren.options.options import Options
from pyspark_warren.options.specs import AMQP
from pyspark_warren.spool.brokers import SOME, NoQueueError, ready_of
from pyspark_warren.spool.files import stretches
from pyspark_warren.spool.giving_up import SpoolGivingUp
from pyspark_warren.spool.lane import describe
from pyspark_warren.spool.lanes import Lane, LaneCounts
from pyspark_warren.spool.offset import SpoolPosition, SpoolSlice, cut_end, slices
from pyspark_warren.spool.stdio import ReceiverTask
from pyspark_warren.spool.store import SpoolPlace, open_place

PROBE_S: Final = 0.1
"""Interval of looking whether the queue is empty."""
PROBE_ANSWER_S: Final = 1.0
QUIET_PROBES: Final = 2
"""So many answers in succession without a message mean that nothing more is under way: a broker
may answer before it sends what it has just taken from the queue."""
UNDER_WAY_S: Final = 10.0
"""How long such answers are not believed while fewer have come than were ready at first; others may
have taken them, or their time is over."""
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


class QueueSpool:
    """One run of a query in one queue; see `spool_driver.SpoolDriver` for Spark's calls.

    options  with the queue's name in `queue`
    changed  is notified of what the receiver says

    Invariant: nothing is acknowledged before a checkpoint has the reader's name, and with
    ackMode=commit nothing at or above the highest `start` or committed `end`.
    """

    def __init__(self, options: Options, changed: threading.Condition) -> None:
        self._options = options
        self._changed = changed
        self._place: SpoolPlace | None = None
        self._reader = ""
        self._ready_at_start: int | None = None
        self._target: int | None = None
        self._asked_at = 0.0
        self._start = 0
        self._giving_up = SpoolGivingUp(options, self._spool)
        self._doing = f"reading queue {options.queue!r} at {options.addresses()}"
        self.lane: Lane | None = None

    # -------------------------------------------------------------- the broker

    def look(self, again: bool = False) -> int:
        """Return how many messages the queue has ready, or SOME; raises NoQueueError.

        Only once, unless `again`: before a query begins, so that it fails with the reason.
        """
        if self._ready_at_start is None or again:
            self._ready_at_start = ready_of(self._options, self._doing)
        return self._ready_at_start

    def exists(self) -> bool:
        """Return whether the broker has the queue; raises what else it answers."""
        try:
            ready_of(self._options, self._doing)
        except NoQueueError:
            return False
        return True

    def limit_to_ready(self) -> None:
        """Limit further batches to what is ready now, and what the spool has."""
        self.look(again=True)

    # -------------------------------------------------------------- steps of `latest`

    def joined(self, start: SpoolPosition) -> SpoolPosition:
        """Return the end of a batch without rows for a reader that no checkpoint knows.

        It puts the reader's name into the checkpoint before anything is received under it: the
        rows of a name that is lost would stay for ever. The spool is described before: a checkpoint
        that finds none has lost it.
        """
        self.look()
        place = self._spool()
        with place.named("describing the spool"):
            place.store.make(place.reader_folder(start.reader))
            options = self._options
            describe(place, start.reader, options.vhost, start.queue, options.broker)
        return start.at(0)

    def begin(self, start: SpoolPosition) -> Lane:
        """Return the lane with its receiver, settled up to `start`, which a checkpoint has."""
        lane = self._running(start, may_ack=True)
        self._settle(lane, start)
        return lane

    def next_part(self, start: SpoolPosition) -> SpoolPosition | None:
        """Return the end of a batch that reads a part of one that failed; None: none is due."""
        part = self._giving_up.standing(start).next_part()
        if part is None:
            return None
        self.check_link()
        return self._giving_up.begins(start.at(start.row, part))

    def everything(
        self, start: SpoolPosition, known: bool, rows_max: int, bytes_max: int | None
    ) -> SpoolPosition:
        """Return the end of a batch with all that is ready, up to the limits: trigger once.

        known      a checkpoint has `start`; else nothing is acknowledged before the next run
        bytes_max  None: the trigger has told that there is no limit. Otherwise the run may as well
                   continue, and does not fail where the broker delivers nothing
        """
        if known:
            self.begin(start)
            part = self.next_part(start)
            if part is not None:
                return part
        lane = self._running(start, may_ack=known)
        most = self._options.prefetch * self._options.receivers
        received_when_all: int | None = None

        def enough(counts: LaneCounts) -> bool:
            nonlocal received_when_all
            received = counts.end + lane.recognised
            if received_when_all is None and counts.ready != SOME:
                received_when_all = received + counts.ready + counts.unwritten
            # A queue to which others publish steadily may never be empty.
            return (
                counts.unacknowledged >= most
                or (
                    received_when_all is not None
                    and received >= received_when_all
                    and counts.end > start.row
                )
                or counts.end - start.row >= rows_max
            )

        try:
            self._wait_until_empty(lane, enough)
        except _NothingDeliveredError:
            if bytes_max is None:
                raise
        return self.cut(start, rows_max, bytes_max)

    def wait_for_all(self, start: SpoolPosition) -> None:
        """Trigger availableNow: wait for rows beyond `start`, or for the end of the run."""
        lane = self._begun()
        self._wait_for_owner(lane)
        if self._target is None:
            self._target = self._found_target(lane, start)
        target = self._target
        if lane.end <= start.row and (target is None or start.row < target or lane.counts is None):
            self._wait_until_empty(lane, lambda _: lane.end > start.row)

    def _found_target(self, lane: Lane, start: SpoolPosition) -> int | None:
        """Return where a run of availableNow ends; None: that is not known yet.

        A broker that does not count ready messages says when there are no more for the credit that
        it has: what was ready then was received before.
        """
        assert self._ready_at_start is not None and lane.base is not None
        if self._ready_at_start != SOME:
            return max(lane.base, start.row) + self._ready_at_start
        found = lane.wait_for_counts(lane.probe(), PROBE_ANSWER_S)
        if found is None or found.ready == SOME:
            return None
        return found.end + found.unwritten

    def available(self, start: SpoolPosition) -> tuple[int, int]:
        """Return the durable rows beyond `start` and their bytes."""
        lane = self._begun()
        rows = lane.end if self._target is None else min(lane.end, self._target)
        size = sum(size for _, size in self._reports(lane, start))
        return max(0, rows - start.row), size

    def check_link(self) -> None:
        """Raise BrokerUnavailableError: there was no connection for requestTimeout."""
        lane = self.lane
        if lane is not None and lane.down_s() > self._options.request_timeout_ms / 1000:
            raise BrokerUnavailableError(f"{self._doing}: {lane.down_text}")

    def cut(self, start: SpoolPosition, rows_max: int, bytes_max: int | None) -> SpoolPosition:
        """Return where a batch of at most so many durable rows and bytes ends."""
        lane = self._begun()
        if lane.end <= start.row:
            self._giving_up.check_room(start)
            return start
        end = cut_end(start.row, self._reports(lane, start), rows_max, bytes_max)
        if self._target is not None:
            end = min(end, self._target)
        if end <= start.row:
            return start
        search = self._giving_up.standing(start).next_rows(end)
        return self._giving_up.begins(start.at(end, search))

    # -------------------------------------------------------------- a batch's plan and end

    def plan(self, start: SpoolPosition | None, end: SpoolPosition) -> tuple[SpoolSlice, ...]:
        """Return the slices of a batch; after a crash, of one that an earlier run has begun."""
        if self.lane is not None and self._reader == end.reader:
            self.lane.acknowledge()
        given_up = self._giving_up.plan(start, end)
        if given_up is not None:
            return given_up
        rows = end.read_since(start)
        if not rows.rows:
            return ()
        found = stretches(self._spool(), end.reader, rows.first, rows.last)
        return slices(end.queue, end.reader, found, self._options.partitions)

    def settle(self, upto: SpoolPosition) -> None:
        """Settle rows before that position, the end of a committed batch; a repeat is harmless.

        With a search `begin` does it alone: this call may be late, with what has changed since.
        """
        if upto.search is None and self.lane is not None and self._reader == upto.reader:
            self._settle(self.lane, upto)

    def backlog(self) -> dict[str, Any] | None:
        """Return the counts for the query's progress, about a second old."""
        lane = self.lane
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
            shown["messages_unacknowledged"] = counts.unacknowledged
            if self._options.broker == AMQP:
                shown["messages_ready"] = counts.ready
                shown["consumers"] = counts.consumers
        if self._giving_up.last is not None:
            shown["given_up"] = self._giving_up.last
        if lane.warning:
            shown["warning"] = lane.warning
        return shown

    def close(self) -> None:
        """End the receiver."""
        if self.lane is not None:
            self.lane.close()

    # -------------------------------------------------------------- steps

    def _spool(self) -> SpoolPlace:
        if self._place is None:
            self._place = open_place(spool_location(self._options))
        return self._place

    def _begun(self) -> Lane:
        assert self.lane is not None, "begin comes first"
        return self.lane

    def _running(self, start: SpoolPosition, may_ack: bool) -> Lane:
        """Return the lane, with its receiver."""
        if self.lane is None or self._reader != start.reader:
            self._spool()
            self.look()
            if self.lane is not None:
                self.lane.close()
            self._reader = start.reader
            decided = self._giving_up.standing(start).decisions(start.row)
            task = ReceiverTask(self._options, start.reader, start.row, may_ack, decided)
            self.lane = Lane(task, self._changed)
        elif may_ack:
            self.lane.acknowledge()
        self.lane.check()
        return self.lane

    def _settle(self, lane: Lane, upto: SpoolPosition) -> None:
        """Settle what was written before `upto`, except rows that a search has yet to read."""
        position = upto.row
        self._start = max(self._start, position)
        search = self._giving_up.standing(upto)
        lane.settle(search.settled(position), search.decisions(position))
        lane.forget_reports(position)

    def _wait_for_owner(self, lane: Lane) -> None:
        while not lane.wait(lambda: lane.base is not None, PROBE_S):
            self.check_link()

    def _wait_until_empty(self, lane: Lane, enough: Callable[[LaneCounts], bool]) -> None:
        """Wait until the queue has nothing ready and all that was received is in the spool.

        enough  whether to wait no longer
        raises  BrokerUnavailableError: for requestTimeout nothing has moved, or no answer came

        1. The first receiver asks for messages.  2. A busy broker counts them as taken and has yet
        to read them.  3. Two answers say that nothing is ready, and a run with one batch would end
        without a row. So what was ready before the receiver began is waited for, a while.
        """
        self._wait_for_owner(lane)
        quiet, last = 0, None
        quiet_since_s = time.monotonic()
        due = (lane.base or 0) + max(0, self._ready_at_start or 0)
        still = _Standstill(self._doing, self._options.request_timeout_ms / 1000)
        while True:
            probe = lane.probe()
            found = lane.wait_for_counts(probe, PROBE_ANSWER_S)
            self.check_link()
            still.check(found, lane)
            if found is None:
                continue
            if enough(found):
                return
            silent = found.ready == 0 and found.unwritten == 0
            same = last is None or found.end == last
            quiet, last = (quiet + 1 if silent and same else 0), found.end
            if not quiet:
                quiet_since_s = time.monotonic()
            all_came = found.end + lane.recognised >= due
            if quiet >= QUIET_PROBES and (
                all_came or time.monotonic() - quiet_since_s > UNDER_WAY_S
            ):
                return
            lane.wait(lambda: False, PROBE_S)

    def _reports(self, lane: Lane, start: SpoolPosition) -> list[tuple[int, int]]:
        """Return (end, bytes) of what is durable, from `start` or from the file that it is in."""
        at, end = start.row, lane.end
        reports = [report for report in lane.reports if report[0] <= end]
        if lane.base is None or lane.base <= at:
            return reports
        before = stretches(self._spool(), start.reader, at, lane.base)
        return [(each.position + each.rows, each.size_bytes) for each in before] + reports


class _NothingDeliveredError(BrokerUnavailableError):
    """The queue has messages, and the broker delivers none of them to this receiver."""


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
        ready = "some" if found.ready == SOME else found.ready
        raise _NothingDeliveredError(
            f"{self._doing}: the queue has {ready} messages ready, and the broker delivers "
            f"none {waited} ({found.consumers} consumers): another one is its single active "
            "consumer or has a higher priority, or the queue is a stream; stop the other one, or "
            "read with a trigger that waits"
        )
