"""A consumer at a place of a stream, which runs only while its owner waits for something.

Its deliveries go through the kernel and never to pika, which would reject those that arrive while
it closes a channel: a stream refuses that, with the whole connection.
"""

from __future__ import annotations

import random
import struct
import time
from array import array
from collections.abc import Callable
from datetime import datetime
from typing import Final

from pika.adapters.select_connection import IOLoop

from pyspark_warren.amqp.connection import of_stream, parameters
from pyspark_warren.amqp.session import Session, receive_in_large_pieces
from pyspark_warren.errors import BrokerUnavailableError, OptionError, WarrenSparkError
from pyspark_warren.options.options import Options
from pyspark_warren.rows.properties import decode_properties
from pyspark_warren.surroundings import read_by
from warren_wire.errors import SyntaxRefused
from warren_wire.kernel import Deliveries

OFFSET_HEADER: Final = "x-stream-offset"
_MARKED: Final = bytes((len(OFFSET_HEADER),)) + OFFSET_HEADER.encode() + b"l"
"""The header's name in a table, with the type of its value: a signed 64 bit number follows."""
_NUMBER: Final = struct.Struct(">q")
_TAG: Final = struct.Struct("=Q")
_CONSUMER_CLOSE_S: Final = 2.0
_NO_REPLICA: Final = "replica on the local node"
"""In the text of 406 from a node of the cluster that has no copy of the stream."""
_NO_STREAM: Final = f"invalid arg '{OFFSET_HEADER}'"


def offset_of(properties: bytes) -> int:
    """Return the offset that the broker has put into a message's headers; -1: none.

    Where the bytes of the header occur once they are the broker's; else the table is decoded.
    """
    at = properties.find(_MARKED)
    if at >= 0 and properties.find(_MARKED, at + 1) < 0:
        return int(_NUMBER.unpack_from(properties, at + len(_MARKED))[0])
    try:
        headers = decode_properties(properties, frozenset({"headers"})).get("headers", ())
    except SyntaxRefused:
        return -1
    found = [typed.get("long", -1) for name, typed in headers if name == OFFSET_HEADER]
    return int(max(found, default=-1))


def offsets_of(taken: Deliveries, queue: str) -> array[int]:
    """Return the offset of each message; raises OptionError when one has none."""
    ends = memoryview(taken.properties.offsets).cast("i")
    data = bytes(taken.properties.data)
    found = array("q")
    for row in range(taken.count):
        found.append(offset_of(data[ends[row] : ends[row + 1]]))
    if -1 in found:
        raise OptionError(
            f"option startingOffset is for streams, and queue {queue!r} delivers messages without "
            f"{OFFSET_HEADER}: leave it out"
        )
    return found


def refusal(wrong: WarrenSparkError, queue: str) -> WarrenSparkError:
    """Return the condition for the end of a consumer of a stream."""
    text = str(wrong.args[0])
    if _NO_STREAM in text:
        return OptionError(
            f"option startingOffset is for streams, and queue {queue!r} is none: leave it out "
            f"({text})"
        )
    if _NO_REPLICA in text:
        return BrokerUnavailableError(f"{text}; name the nodes with a replica in hosts")
    return wrong


class StreamConsumer:
    """One consumer on a connection of its own, to hosts in turn, from a random one on.

    place  where it begins: an offset, first, last, or a time
    """

    def __init__(
        self,
        options: Options,
        place: str | int | datetime,
        credit: int,
        doing: str,
        attempt: int | None = None,
    ) -> None:
        receive_in_large_pieces()
        name = of_stream(options, read_by())
        hosts = parameters(options, name)
        hosts.sort(key=lambda one: options.hosts.index((one.host, one.port)))
        which = random.randrange(len(hosts)) if attempt is None else attempt % len(hosts)
        self._queue = options.queue
        self._enough: Callable[[], bool] = lambda: False
        self._failure: WarrenSparkError | None = None
        self._over = False
        self._loop = IOLoop()
        self.begun = False
        arguments = {OFFSET_HEADER: place}
        self._session = Session(
            self._loop, hosts[which], options.queue, credit, doing, self, arguments, name.tag
        )

    @property
    def filled(self) -> Deliveries:
        """The messages received since the last `take`."""
        return self._session.filled

    def take(self) -> Deliveries:
        """Return the messages received since the last call."""
        return self._session.take()

    def acknowledge(self, tag: int) -> None:
        """Acknowledge up to a delivery tag, for more credit."""
        self._session.ack(tag, True)

    def wait(self, enough: Callable[[], bool], wait_s: float) -> bool:
        """Run until there is enough, or the time has passed; return whether there is enough.

        raises  WarrenSparkError: it has ended, or the stream does not exist, or is none
        """
        if enough():
            return True
        if not self._over:
            timer = self._loop.call_later(wait_s, self._loop.stop)
            self._enough = enough
            self._loop.start()
            self._enough = lambda: False
            self._loop.remove_timeout(timer)
        found = enough()
        if self._over and not found:
            raise self._end()
        return found

    def round_trip(self, wait_s: float) -> int:
        """Ask and wait for the answer, which comes after what was sent; return the message count.

        raises  WarrenSparkError: it has ended, or there is no answer
        """
        answers: list[int] = []

        def answered(messages: int) -> None:
            answers.append(messages)
            self._loop.stop()

        self._session.mark(answered)
        deadline = time.monotonic() + wait_s
        while not self.wait(lambda: bool(answers), 1.0):
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(f"stream {self._queue!r}: no answer for {wait_s:g} s")
        return answers[0]

    def close(self) -> None:
        """End it, and its connection."""
        self._enough = lambda: False
        self._session.close()
        if not self._over:
            self._loop.call_later(_CONSUMER_CLOSE_S, self._loop.stop)
            self._loop.start()
        self._loop.close()

    # -------------------------------------------------------------- what the session reports

    def began(self, messages: int, consumers: int) -> None:
        """The consumer is there."""
        self.begun = True
        self.received()

    def received(self) -> None:
        """Stop when there is enough."""
        if self._enough():
            self._loop.stop()

    def ended(self, why: WarrenSparkError | None) -> None:
        """The connection is gone."""
        self._over, self._failure = True, why
        self._loop.stop()

    def _end(self) -> WarrenSparkError:
        if self._failure is None:
            return BrokerUnavailableError(f"the consumer of stream {self._queue!r} was closed")
        return refusal(self._failure, self._queue)


def last_tag(taken: Deliveries) -> int:
    """Return the delivery tag of the last message."""
    return int(_TAG.unpack(taken.tags[-_TAG.size :])[0])
