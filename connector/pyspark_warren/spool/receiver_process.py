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
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, Any, Final

from pika.adapters.select_connection import IOLoop

from pyspark_warren.amqp.session import receive_in_large_pieces
from pyspark_warren.errors import WarrenSparkError
from pyspark_warren.spool.consumer import SpoolConsumer
from pyspark_warren.spool.lane import KEEP_IDENTITIES, LaneUse, LaneWriter
from pyspark_warren.spool.search import NONE_DECIDED, DecidedRows
from pyspark_warren.spool.spooling import Spooled, SpoolThread
from pyspark_warren.spool.stdio import (
    SAID_TEXT_MAX,
    failure_line,
    options_of,
    read_lines,
    write_line,
)
from pyspark_warren.spool.store import open_place

RECEIVER_CLOSE_S: Final = 10.0
"""How long the end may take: the spool's last write, the last acknowledgements."""
WATCH_S: Final = 5.0
WARN_AT: Final = 0.8
"""The share of consumerTimeout and of deliveryLimit at which there is a warning."""
_ANSWER: Final = "use ackMode=spool, a longer interval at the broker, or smaller batches"


class SpoolReceiver:
    """The process's one object; everything but the spool's writing runs in the loop's thread.

    Invariant: what is acknowledged is durable, and of this epoch or settled by Spark.
    """

    def __init__(self, task: Mapping[str, Any], out: IO[bytes]) -> None:
        self.options = options_of(task)
        self.loop = IOLoop()
        self._out = out
        self._may_ack = bool(task["may_ack"])
        self._seen = int(task["seen"])
        self.reader, self._lane = str(task["reader"]), str(task["lane"])
        self.decided = DecidedRows(task["decided"])
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

    def say(self, **said: Any) -> None:
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
            seen=self._seen,
            acked_when_spooled=options.ack_mode == "spool",
            decided=self.decided,
            known=self._may_ack,
        )
        return LaneWriter.take_over(
            open_place(options.spool_location), self.reader, self._lane, use
        )

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
    for task in read_lines(stdin):
        try:
            code = SpoolReceiver(task, out).run(stdin)
        except WarrenSparkError as wrong:
            write_line(out, failure_line(wrong))
            code = 0
        sys.stderr.flush()
        # The threads that read and write may be in a call that does not return.
        os._exit(code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
