"""One of a receiver's consumers: session after session, and what each has not acknowledged."""

from __future__ import annotations

import random
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pyspark_warren.amqp.connection import of_receiver, parameters
from pyspark_warren.amqp.renewing import with_token
from pyspark_warren.amqp.session import ENDS_LIKEWISE, Session
from pyspark_warren.errors import BrokerUnavailableError, WarrenSparkError
from pyspark_warren.options.options import Options
from pyspark_warren.spool.search import NONE_DECIDED, PASSED, RELEASED, DecidedRows, Decision
from pyspark_warren.spool.spooling import Spooled, SpoolThread

FILE_ROWS_MAX: Final = 16_384
FILE_BYTES_MAX: Final = 8 << 20
"""A file of the spool is written when that many messages or bytes are there."""
LINGER_S: Final = 0.05
"""A file is written when its first message has waited that long."""
HELD_BYTES_MAX: Final = 64 << 20
"""With that many bytes received while a file is being written, receiving waits for it."""
RECEIVER_PAUSE_S_FIRST: Final = 0.1
RECEIVER_PAUSE_S_MAX: Final = 5.0


class Unacknowledged:
    """The deliveries of a session that are rows and not acknowledged, in the order of their tags.

    Invariant: the tags of the runs ascend. A run is (tag, row, count), each next tag with the next
    row.
    """

    def __init__(self) -> None:
        self._runs: deque[tuple[int, int, int]] = deque()
        self.count = 0

    def add(self, tags: Sequence[int], positions: Sequence[int]) -> None:
        """Take note of which delivery is which row."""
        self.count += len(tags)
        if isinstance(positions, range) and tags[-1] - tags[0] == len(tags) - 1:
            self._runs.append((tags[0], positions.start, len(tags)))
            return
        tag, row, count = tags[0], positions[0], 0
        for next_tag, next_row in zip(tags, positions, strict=True):
            if next_tag != tag + count or next_row != row + count:
                self._runs.append((tag, row, count))
                tag, row, count = next_tag, next_row, 0
            count += 1
        self._runs.append((tag, row, count))

    def pop_until(self, position: int) -> int:
        """Remove deliveries until one has a row at the position or after; return the last tag.

        returns  0 when none was removed
        """
        last = 0
        while self._runs:
            tag, row, count = self._runs[0]
            gone = min(count, position - row)
            if gone <= 0:
                break
            last = tag + gone - 1
            self.count -= gone
            self._runs.popleft()
            if gone < count:
                self._runs.appendleft((tag + gone, row + gone, count - gone))
                break
        return last

    def pop_decided(self, decided: DecidedRows) -> list[tuple[int, int, Decision]]:
        """Remove deliveries of decided rows; return (first tag, count, decision) of each run."""
        taken: list[tuple[int, int, Decision]] = []
        kept: deque[tuple[int, int, int]] = deque()
        for tag, row, count in self._runs:
            at = row
            for first, last, decision in decided.within(row, row + count):
                if at < first:
                    kept.append((tag + at - row, at, first - at))
                taken.append((tag + first - row, last - first, decision))
                at = last
            if at < row + count:
                kept.append((tag + at - row, at, row + count - at))
        if taken:
            self._runs = kept
            self.count -= sum(count for _, count, _ in taken)
        return taken


class ReceiverPort(Protocol):
    """What a consumer needs of its receiver."""

    options: Options
    reader: str
    loop: object
    spool: SpoolThread

    @property
    def ending(self) -> bool:
        """Nothing new is to be begun."""

    def post(self, callback: Callable[[], None]) -> None:
        """Run a callback in the loop's thread."""

    def link(self, text: str) -> None:
        """A consumer is there or gone."""

    def fail(self, wrong: WarrenSparkError) -> None:
        """Give up."""

    def closed(self) -> None:
        """A consumer has ended for good."""

    def acknowledge(self) -> None:
        """Acknowledge what may be."""


class SpoolConsumer:
    """A place for one session at a time.

    number  of the session in the lane; 0 before the lane has begun it
    """

    def __init__(self, receiver: ReceiverPort, index: int) -> None:
        self._receiver = receiver
        options = receiver.options
        self._name = of_receiver(options, receiver.reader, index)
        self._doing = f"reading queue {options.queue!r}"
        self._session: Session | None = None
        self._number = 0
        self._writing = 0
        self._unacknowledged = Unacknowledged()
        self._arrivals: deque[tuple[float, int]] = deque()
        self._flush_timer: object | None = None
        self._failures = 0
        self._refusals = 0
        self._attempt = random.randrange(len(options.hosts))

    # -------------------------------------------------------------- for the receiver

    @property
    def up(self) -> bool:
        """Messages come."""
        return self._session is not None and self._session.consuming

    @property
    def there(self) -> bool:
        """There is a connection, or an attempt at one."""
        return self._session is not None

    @property
    def unwritten(self) -> int:
        """Messages received and not in the spool yet."""
        return self._writing + (0 if self._session is None else self._session.filled.count)

    @property
    def unacknowledged(self) -> int:
        """Messages in the spool and not acknowledged."""
        return self._unacknowledged.count

    def oldest_s(self) -> float:
        """Return the age of the oldest delivery that is not acknowledged; 0: there is none."""
        return time.monotonic() - self._arrivals[0][0] if self._arrivals else 0.0

    def probe(self, answer: Callable[[int, int], None]) -> None:
        """Ask for the queue's counts."""
        assert self._session is not None
        self._session.probe(answer)

    def close(self) -> None:
        """End the session, and begin none."""
        if self._session is not None:
            self._session.close()

    def acknowledge(self, position: int, decided: DecidedRows = NONE_DECIDED) -> None:
        """Acknowledge deliveries with rows before the position, and answer those of decided rows.

        1. A row at fault is released, and its message delivered again, as a new row.  2. It waits
        for a batch that passes; settled rows that were delivered again after it wait behind it.
        3. Each restart counts a delivery of theirs, up to the queue's limit.  So they do not wait.
        """
        if decided:
            self._answer(decided)
        last = self._unacknowledged.pop_until(position)
        if last and self._session is not None:
            self._session.ack(last, True)
            while self._arrivals and self._arrivals[0][1] <= last:
                self._arrivals.popleft()
        if decided and position:
            self._answer(DecidedRows([(0, position, PASSED)]))

    def _answer(self, decided: DecidedRows) -> None:
        """Answer deliveries of decided rows one by one: rows before them may still wait."""
        for first, count, decision in self._unacknowledged.pop_decided(decided):
            for tag in range(first, first + count):
                if self._session is None:
                    return  # the broker delivers them again
                if decision == PASSED:
                    self._session.ack(tag, False)
                else:
                    self._session.nack(tag, requeue=decision == RELEASED)
        if not self._unacknowledged.count and not self.unwritten:
            self._arrivals.clear()

    def spooled(self, done: Spooled) -> None:
        """Deliveries are rows; those of a session that has ended are forgotten."""
        if self._number == 0 or done.session != self._number:
            return
        self._writing -= len(done.tags)
        self._unacknowledged.add(done.tags, done.positions)
        self._flush_if_due()

    # -------------------------------------------------------------- sessions

    def connect(self) -> None:
        """Try the next host, when there is a token if one is needed."""
        if not self._receiver.ending and self._session is None:
            with_token(self._receiver.options, self._receiver.post, self._connect)

    def _connect(self, failure: WarrenSparkError | None) -> None:
        if self._receiver.ending or self._session is not None:
            return
        options = self._receiver.options
        try:
            if failure is not None:
                raise failure
            hosts = parameters(options, self._name)
        except BrokerUnavailableError as wrong:  # of the token endpoint
            self.ended(wrong)
            return
        except WarrenSparkError as wrong:
            self._receiver.fail(wrong)
            return
        hosts.sort(key=lambda one: options.hosts.index((one.host, one.port)))
        one = hosts[self._attempt % len(hosts)]
        self._attempt += 1
        prefetch, tag = options.prefetch, self._name.tag
        self._session = Session(
            self._receiver.loop, one, options.queue, prefetch, self._doing, self, tag=tag
        )

    def began(self, messages: int, consumers: int) -> None:
        """Begin a session in the lane; deliveries wait for its number."""
        self._failures = self._refusals = 0
        session = self._session

        def begun(number: int) -> None:
            if self._session is session:
                self._number = number
                self._flush_if_due()
            else:
                self._receiver.spool.end_session(number)

        counting = session is not None and session.counts_returns
        self._receiver.spool.begin_session(begun, counting)
        self._receiver.link("")

    def received(self) -> None:
        """Write what is there when it is due."""
        self._flush_if_due()

    def ended(self, why: WarrenSparkError | None) -> None:
        """Forget the session; try again unless another attempt would end likewise."""
        self._session = None
        if self._number:
            self._receiver.spool.end_session(self._number)
        self._number = self._writing = 0
        self._unacknowledged = Unacknowledged()
        self._arrivals.clear()
        if why is None or self._receiver.ending:
            self._receiver.closed()
            return
        self._receiver.link(str(why.args[0]))
        refused = isinstance(why, ENDS_LIKEWISE)
        self._refusals = self._refusals + 1 if refused else 0
        if self._refusals >= len(self._receiver.options.hosts):
            self._receiver.fail(why)
            return
        doubled_s = RECEIVER_PAUSE_S_FIRST * 2 ** min(self._failures, 9)
        pause_s = 0.0 if refused else min(RECEIVER_PAUSE_S_MAX, doubled_s)
        self._failures += 1
        self._receiver.loop.call_later(pause_s, self.connect)  # type: ignore[attr-defined]

    # -------------------------------------------------------------- files

    def _flush_if_due(self, late: bool = False) -> None:
        """Write a file when it is large enough or has waited; one at a time."""
        session = self._session
        if session is None or not self._number or not session.filled.count:
            return
        filled = session.filled
        large = filled.count >= FILE_ROWS_MAX or filled.size_bytes >= FILE_BYTES_MAX
        held = self._writing + self._unacknowledged.count + filled.count
        full = held >= self._receiver.options.prefetch  # nothing more comes before an ack
        if self._writing and filled.size_bytes < HELD_BYTES_MAX:
            return
        if not (large or full or late):
            if self._flush_timer is None:
                self._flush_timer = self._receiver.loop.call_later(  # type: ignore[attr-defined]
                    LINGER_S, self._late
                )
            return
        taken = session.take()
        self._writing += taken.count
        self._arrivals.append((time.monotonic(), array("Q", bytes(taken.tags[-8:]))[0]))
        self._receiver.spool.write(self._number, taken)

    def _late(self) -> None:
        self._flush_timer = None
        self._flush_if_due(late=True)
