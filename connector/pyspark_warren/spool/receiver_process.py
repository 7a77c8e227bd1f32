"""The receiver process: consumes a queue, puts the messages into the spool, acknowledges them.

    python -m pyspark_warren.spool.receiver_process    started by the driver; see `stdio`

One process has a queue's lane of the spool, with as many consumers as the option receivers says,
each on a connection of its own. Where something fails, what is not acknowledged is delivered again
to whichever consumer, and the lane recognises it.

A delivery is acknowledged when its row is **ackable**: with ackMode=commit below the position that
Spark has committed, with ackMode=spool below the lane's end, as long as the spool is not too far
ahead of Spark and the reader's name is in the checkpoint. What is decided of single rows
(`DecidedRows`) comes before that.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO, Any, Final

from pika.adapters.select_connection import IOLoop

from pyspark_warren.amqp.connection import of_receiver, parameters
from pyspark_warren.amqp.renewing import with_token
from pyspark_warren.amqp.session import ENDS_LIKEWISE, receive_in_large_pieces
from pyspark_warren.errors import BrokerUnavailableError, WarrenSparkError
from pyspark_warren.spool.brokers import AnySession, open_session
from pyspark_warren.spool.lane import KEEP_IDENTITIES, LaneUse, LaneWriter
from pyspark_warren.spool.search import NONE_DECIDED, PASSED, RELEASED, DecidedRows, Decision
from pyspark_warren.spool.spooling import Spooled, SpoolThread
from pyspark_warren.spool.stdio import (
    SAID_TEXT_MAX,
    ReceiverTask,
    failure_line,
    read_lines,
    write_line,
)
from pyspark_warren.spool.store import open_place

FILE_ROWS_MAX: Final = 16_384
FILE_BYTES_MAX: Final = 8 << 20
"""A file of the spool is written when that many messages or bytes are there."""
LINGER_S: Final = 0.05
"""A file is written when its first message has waited that long."""
HELD_BYTES_MAX: Final = 64 << 20
"""With that many bytes received while a file is being written, receiving waits for it."""
RECEIVER_PAUSE_S_FIRST: Final = 0.1
RECEIVER_PAUSE_S_MAX: Final = 5.0
RECEIVER_CLOSE_S: Final = 10.0
"""How long the end may take: the spool's last write, the last acknowledgements."""
WATCH_S: Final = 5.0
WARN_AT: Final = 0.8
"""The share of consumerTimeout and of deliveryLimit at which there is a warning."""
_ANSWER: Final = "use ackMode=spool, a longer interval at the broker, or smaller batches"


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


class SpoolConsumer:
    """A place for one session at a time.

    number  of the session in the lane; 0 before the lane has begun it
    """

    def __init__(self, receiver: SpoolReceiver, index: int) -> None:
        self._receiver = receiver
        options = receiver.options
        self._name = of_receiver(options, receiver.reader, index)
        self._doing = f"reading queue {options.queue!r}"
        self._session: AnySession | None = None
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
        self._session = open_session(
            self._receiver.loop, options, one, self._doing, self, self._name.tag
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
        compared = session is not None and not session.marks_returns
        self._receiver.spool.begin_session(begun, counting, compared)
        self._receiver.link("")

    def received(self) -> None:
        """Write what is there when it is due."""
        self._flush_if_due()

    def ended(self, why: WarrenSparkError | None) -> None:
        """Forget the session; try again unless another attempt would end likewise."""
        session, self._session = self._session, None
        if self._number:
            unsure = () if session is None else session.unsure
            self._receiver.spool.end_session(self._number, unsure)
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
        self._receiver.loop.call_later(pause_s, self.connect)

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
                self._flush_timer = self._receiver.loop.call_later(LINGER_S, self._late)
            return
        taken = session.take()
        self._writing += taken.count
        self._arrivals.append((time.monotonic(), array("Q", bytes(taken.tags))[-1]))
        self._receiver.spool.write(self._number, taken)

    def _late(self) -> None:
        self._flush_timer = None
        self._flush_if_due(late=True)


class SpoolReceiver:
    """The process's one object; everything but the spool's writing runs in the loop's thread.

    Invariant: what is acknowledged is durable, and of this epoch or settled by Spark.
    """

    def __init__(self, task: ReceiverTask, out: IO[bytes]) -> None:
        self.options, self._task = task.options, task
        self.loop = IOLoop()
        self._out = out
        self._may_ack = task.may_ack
        self.reader = task.reader
        self.decided = DecidedRows(task.decided)
        self.settled = self.end = 0
        self._ending = False
        self._code = 0
        self._warned: set[str] = set()
        self._up = False
        self.consumers: list[SpoolConsumer] = []
        self.spool = SpoolThread(
            self._take_over, self.post, self._owns, self._spooled, self._spool_failed
        )

    def run(self, stdin: IO[bytes]) -> int:
        """Receive until the driver's lines end or something fails; return the exit code."""
        threading.Thread(target=self._listen, args=(stdin,), daemon=True).start()
        self.loop.call_later(WATCH_S, self._watch)
        self.loop.start()
        return self._code

    def post(self, callback: Callable[[], None]) -> None:
        """Run a callback in the loop's thread; callable from any."""
        self.loop.add_callback_threadsafe(callback)

    # -------------------------------------------------------------- the driver

    def say(self, **said: object) -> None:
        """Tell the driver; where it is gone, this process ends soon."""
        try:
            write_line(self._out, said)
        except (OSError, ValueError):
            self.finish()

    def warn_once(self, topic: str, text: str) -> None:
        """Send a warning, once for each topic."""
        if topic not in self._warned:
            self._warned.add(topic)
            self.say(say="warning", text=text[:SAID_TEXT_MAX])

    def _listen(self, stdin: IO[bytes]) -> None:
        try:
            for said in read_lines(stdin):
                self.post(partial(self._told, said))
        except (OSError, ValueError) as wrong:
            print(f"the receiver's orders cannot be read: {wrong}", file=sys.stderr)
        self.post(self.finish)

    def _told(self, said: dict[str, Any]) -> None:
        if self._ending:
            return
        if "settle" in said:
            position, decided = int(said["settle"]), DecidedRows(said["decided"])
            self.spool.settle(position, decided, lambda: self._settled(position, decided))
        if "acknowledge" in said:
            self._may_ack = True
            self.acknowledge()
        if "probe" in said:
            self._probe(int(said["probe"]))

    def _probe(self, number: int) -> None:
        def answer(ready: int, consumers: int) -> None:
            self.say(
                say="queue",
                probe=number,
                ready=ready,
                consumers=consumers,
                unwritten=sum(each.unwritten for each in self.consumers),
                unacknowledged=sum(each.unacknowledged for each in self.consumers),
                end=self.end,
            )

        for each in self.consumers:
            if each.up:
                each.probe(answer)
                return

    # -------------------------------------------------------------- the spool

    def _take_over(self) -> LaneWriter:
        options = self.options
        use = LaneUse(
            options.vhost,
            options.queue,
            keep=max(KEEP_IDENTITIES, 2 * options.prefetch * options.receivers),
            seen=self._task.seen,
            acked_when_spooled=options.ack_mode == "spool",
            decided=self.decided,
            known=self._may_ack,
            broker=options.broker,
        )
        place = open_place(options.spool_location)
        return LaneWriter.take_over(place, self.reader, use)

    def _owns(self, lane: LaneWriter) -> None:
        self.settled, self.end = lane.settled, lane.end
        self.say(say="owner", end=self.end, settled=self.settled)
        if not self._ending:
            self.consumers = [SpoolConsumer(self, i) for i in range(self.options.receivers)]
            for each in self.consumers:
                each.connect()

    def _spooled(self, done: Spooled) -> None:
        self.end = done.end
        for each in self.consumers:
            each.spooled(done)
        self.acknowledge()
        self.say(say="rows", end=done.end, bytes=done.size_bytes, recognised=done.recognised)
        limit = self.options.delivery_limit
        if limit and done.attempts >= WARN_AT * limit:
            self.warn_once(
                "deliveries",
                f"a message of queue {self.options.queue!r} was delivered and returned "
                f"{done.attempts} times, near the queue's delivery limit of {limit} "
                f"(deliveryLimit): above that the broker drops it or dead-letters it; {_ANSWER}",
            )

    def _settled(self, position: int, decided: DecidedRows) -> None:
        self.settled = max(self.settled, position)
        self.decided = decided
        self.acknowledge()

    def _spool_failed(self, wrong: BaseException) -> None:
        if isinstance(wrong, WarrenSparkError):
            self.fail(wrong)
        else:
            self._code = 1
            self.finish()

    # -------------------------------------------------------------- acknowledgements

    @property
    def ackable(self) -> int:
        """Rows before this position may be acknowledged."""
        options = self.options
        if not self._may_ack:
            return 0
        if options.ack_mode == "commit":
            return self.settled
        ahead = max(2 * options.max_messages, options.prefetch * options.receivers)
        return min(self.end, self.settled + ahead)

    def acknowledge(self) -> None:
        """Acknowledge what may be, and answer what is decided."""
        ackable = self.ackable
        decided = self.decided if self._may_ack else NONE_DECIDED
        for each in self.consumers:
            each.acknowledge(ackable, decided)

    # -------------------------------------------------------------- connections

    def link(self, text: str) -> None:
        """Tell the driver when the first consumer is there, or the last one is gone."""
        up = any(each.up for each in self.consumers)
        if up != self._up or not up:
            self._up = up
            self.say(say="link", up=up, text=text[:SAID_TEXT_MAX])

    def _watch(self) -> None:
        """Look at the age of what is not acknowledged."""
        limit_s = self.options.consumer_timeout_ms / 1000
        oldest_s = max((each.oldest_s() for each in self.consumers), default=0.0)
        if limit_s and oldest_s > WARN_AT * limit_s:
            self.warn_once(
                "timeout",
                f"a message of queue {self.options.queue!r} is not acknowledged for "
                f"{oldest_s:.0f} s: its batch is not committed. After {limit_s:.0f} s "
                f"(consumerTimeout) the broker takes it back and counts a failed delivery; "
                f"{_ANSWER}",
            )
        if not self._ending:
            self.loop.call_later(min(WATCH_S, limit_s * (1 - WARN_AT) or WATCH_S), self._watch)

    # -------------------------------------------------------------- the end

    def fail(self, wrong: WarrenSparkError) -> None:
        """Give up: nothing more is acknowledged, and the driver is told why."""
        if not self._ending:
            self.say(**failure_line(wrong))
            self._may_ack = False
            self._end()

    def finish(self) -> None:
        """End after what is under way: the last rows, the last acknowledgements."""
        if not self._ending:
            self._ending = True
            self.loop.call_later(RECEIVER_CLOSE_S, self._stop)
            self.spool.finally_(self._end)

    def _end(self) -> None:
        self._ending = True
        self.loop.call_later(RECEIVER_CLOSE_S, self._stop)
        for each in self.consumers:
            each.close()
        self.closed()

    def closed(self) -> None:
        """Stop when the last consumer is gone."""
        if self._ending and not any(each.there for each in self.consumers):
            self._stop()

    def _stop(self) -> None:
        self.loop.stop()

    @property
    def ending(self) -> bool:
        """Nothing new is to be begun."""
        return self._ending


def main() -> int:
    """Run a receiver for the task in the first line."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    receive_in_large_pieces()
    stdin, out = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    for line in read_lines(stdin):
        try:
            code = SpoolReceiver(ReceiverTask.read(line), out).run(stdin)
        except WarrenSparkError as wrong:
            write_line(out, failure_line(wrong))
            code = 0
        sys.stderr.flush()
        # The threads that read and write may be in a call that does not return.
        os._exit(code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
