"""The receiver's thread that writes: deliveries become rows of the spool, in order.

The thread of the connections does not wait for the spool: heartbeats continue while a store is
slow, and messages arrive while the last ones are written. What waits is bounded by the prefetch.
"""

from __future__ import annotations

import logging
import queue
import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_warren.amqp10.received import ReceivedMessages
from pyspark_warren.errors import WarrenSparkError
from pyspark_warren.spool.lane import LaneWriter
from pyspark_warren.spool.layout import SCHEMA
from pyspark_warren.spool.recognise import delivery_counts
from pyspark_warren.spool.search import DecidedRows
from warren_wire.kernel import Deliveries

log = logging.getLogger("pyspark_warren")

WRITES_MAX: Final = 2
"""Writes that are under way or wait, for all consumers; one more waits in `SpoolThread.write`."""
_THREAD_CHECK_S: Final = 0.5


class Spooled(NamedTuple):
    """Deliveries of a session that are rows now, durable and of this owner.

    tags         delivery tags, ascending
    positions    the row of each
    end          the lane's end
    size_bytes   of bodies and properties
    recognised   how many of them were rows before
    attempts     the highest delivery count among the redelivered ones
    """

    session: int
    tags: Sequence[int]
    positions: Sequence[int]
    end: int
    size_bytes: int
    recognised: int
    attempts: int


Taken: TypeAlias = Deliveries | ReceivedMessages


def batch_of(taken: Taken) -> pa.RecordBatch:
    """Return deliveries as a record batch over the same memory."""
    count = taken.count

    def column(made: Any) -> pa.Array:
        buffers = [None, pa.py_buffer(made.offsets), pa.py_buffer(made.data)]
        return pa.BinaryArray.from_buffers(pa.binary(), count, buffers)

    octets = pa.UInt8Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(taken.redelivered)])
    return pa.RecordBatch.from_arrays(
        [
            column(taken.body),
            column(taken.properties),
            column(taken.exchange),
            column(taken.routing_key),
            octets.cast(pa.bool_()),
        ],
        schema=SCHEMA,
    )


def highest_delivery_count(batch: pa.RecordBatch) -> int:
    """Return the highest delivery count of the redelivered messages."""
    again = batch.column("properties").filter(batch.column("redelivered"))
    found = (delivery_counts(raw) for raw in pc.unique(again).to_pylist())
    return max((counts[1] for counts in found if counts is not None), default=0)


class SpoolThread:
    """Takes the lane over, then does what it is told, in order, until an error.

    post     runs a callback in the thread of the connections
    owner    called there with the writer once the lane is taken over
    spooled  called there with each `Spooled`
    failed   called there with the error that ended the thread
    """

    def __init__(
        self,
        take_over: Callable[[], LaneWriter],
        post: Callable[[Callable[[], None]], None],
        owner: Callable[[LaneWriter], None],
        spooled: Callable[[Spooled], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._take_over, self._post = take_over, post
        self._owner, self._spooled, self._failed = owner, spooled, failed
        self._slots = threading.Semaphore(WRITES_MAX)
        self._work: queue.SimpleQueue[Callable[[LaneWriter], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="warren-spool", daemon=True)
        self._thread.start()

    def begin_session(
        self, begun: Callable[[int], None], counting: bool = False, compared: bool = False
    ) -> None:
        """Begin a session; `begun` gets its number. counting, compared: see `LaneWriter`."""

        def work(lane: LaneWriter) -> None:
            number = lane.begin_session(counting, compared)
            self._post(lambda: begun(number))

        self._work.put(work)

    def end_session(self, session: int, unsure: Sequence[bytes] = ()) -> None:
        """End a session, after what was given of it; unsure: see `LaneWriter`."""
        self._work.put(lambda lane: lane.end_session(session, unsure))

    def write(self, session: int, taken: Taken) -> None:
        """Make deliveries rows; waits while others wait."""
        while not self._slots.acquire(timeout=_THREAD_CHECK_S):
            if not self._thread.is_alive():
                return

        def work(lane: LaneWriter) -> None:
            batch = batch_of(taken)
            before = lane.recognised
            known = None if isinstance(taken, Deliveries) else bytes(taken.identities)
            positions = lane.take(session, batch, known)
            attempts = highest_delivery_count(batch) if 1 in taken.redelivered else 0
            done = Spooled(
                session,
                array("Q", bytes(taken.tags)),
                positions,
                lane.end,
                taken.size_bytes,
                lane.recognised - before,
                attempts,
            )
            self._slots.release()
            self._post(lambda: self._spooled(done))

        self._work.put(work)

    def settle(self, position: int, decided: DecidedRows, done: Callable[[], None]) -> None:
        """Settle rows before the position, and note what is decided of others."""

        def work(lane: LaneWriter) -> None:
            lane.decide(decided)
            lane.settle(position)
            self._post(done)

        self._work.put(work)

    def finally_(self, done: Callable[[], None]) -> None:
        """Call `done` in the thread of the connections after what was given."""
        self._work.put(lambda lane: self._post(done))

    def _run(self) -> None:
        try:
            lane = self._take_over()
            self._post(lambda: self._owner(lane))
            while True:
                self._work.get()(lane)
        except WarrenSparkError as wrong:
            failure = wrong
            self._post(lambda: self._failed(failure))
        except BaseException as wrong:
            bug = wrong
            log.exception("the receiver's writer failed")
            self._post(lambda: self._failed(bug))
