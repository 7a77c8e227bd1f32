"""One non-blocking connection over the loop: chunks in, gathered writes out."""

from __future__ import annotations

import collections
import errno
import socket
from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from warren_raft.runtime.loop import READ, WRITE, Loop, LoopStage, LoopTimer, WatchedSocket
from warren_raft.storage.files import IOV_MAX

Buffer: TypeAlias = bytes | bytearray | memoryview


class ReadBudget(Protocol):
    """What may be read in one turn of the loop, of all streams that share it."""

    def left(self, turn: int) -> bool:
        """Return whether another stream may read in this turn."""


class RoomOwner(Protocol):
    """An owner of a stream that has the place for some of the bytes to come."""

    def room(self) -> memoryview | None:
        """Return where the next bytes go; None: they go to `on_data`."""

    def filled(self, size: int) -> None:
        """Take note of bytes that are in the room."""


READ_BYTES_MIN = 16 << 10
READ_BYTES_MAX = 1 << 20
"""Bounds of the size of one read, which adapts to the amount that arrives."""
SEND_JOIN_BYTES_MAX = 1024
"""Buffers up to this size are joined with their neighbours instead of gathered one by one."""
FEW_BUFFERS = 8
"""So many buffers are not joined."""
CLOSE_LINGER_MS = 5000
"""How long `close` waits for a peer that does not read."""


class Stream:
    """A connected socket: `on_data` receives bytes, `write` sends once per turn.

    on_data      called with at most READ_BYTES_MAX bytes, at most once per turn
    on_closed    called once and last, with the error that ended it (None: the peer or `close`)
    on_drained   called when the unsent bytes have fallen to `low` after they were above `high`
    reads, writes  of the socket that have moved bytes
    paused       whether reading is paused
    budget       what the owner has set bounds the reads in a turn; None: nothing does
    into         asked before each read for room for the bytes, which then do not go to `on_data`
    An exception from `on_data` is passed to `on_error` when there is one, else it ends the stream
    and is passed to `on_closed`.
    Invariants: out_bytes is the sum of the bytes in `_out`;  congested implies it was above high
    """

    __slots__ = (
        "_closing",
        "_ending",
        "_flush_asked",
        "_fresh",
        "_hang_up_timer",
        "_into",
        "_on_closed",
        "_on_data",
        "_on_drained",
        "_out",
        "_read_bytes",
        "_read_bytes_max",
        "_registration",
        "budget",
        "bytes_in",
        "bytes_out",
        "closed",
        "congested",
        "high",
        "last_read_ms",
        "loop",
        "low",
        "out_bytes",
        "paused",
        "reads",
        "sock",
        "writes",
    )

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_data: Callable[[bytes], None],
        on_closed: Callable[[Exception | None], None],
        *,
        high: int = 8 << 20,
        low: int = 2 << 20,
        on_drained: Callable[[], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        buffer_bytes: int | None = None,
        into: RoomOwner | None = None,
    ) -> None:
        assert 0 <= low <= high, (low, high)
        self.loop = loop
        self.sock = sock
        self.out_bytes = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.reads = 0
        self.writes = 0
        self.closed = False
        self.congested = False
        self.high = high
        self.low = low
        self.last_read_ms = loop.now_ms
        self._on_data = on_data
        self._on_closed = on_closed
        self._on_drained = on_drained
        self._into = into
        self.budget: ReadBudget | None = None
        self._out: collections.deque[Buffer] = collections.deque()
        self._flush_asked = False
        self._fresh = False
        self._closing = False
        self._ending = False
        self._hang_up_timer: LoopTimer | None = None
        self.paused = False
        self._read_bytes = READ_BYTES_MIN
        self._read_bytes_max = READ_BYTES_MAX
        tune(sock, buffer_bytes)
        self._registration: WatchedSocket = loop.register(
            sock, self._readable, self._writable, on_error if on_error is not None else self.abort
        )

    # ------------------------------------------------------------ writing

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Send these, in order, at the end of this turn; they must not be changed afterwards."""
        if self.closed or self._closing:
            return
        out, size = self._out, 0
        for buffer in buffers:
            length = len(buffer)
            if length:
                out.append(buffer)
                size += length
        self.out_bytes += size
        self._fresh = True
        if size and not self._flush_asked and not self._registration.events & WRITE:
            self._flush_asked = True
            self.loop.at_turn_end(LoopStage.FLUSH, self._flush_at_turn_end)
        if self.out_bytes > self.high:
            self.congested = True

    def send(self, data: Buffer) -> None:
        """Write one buffer."""
        self.write((data,))

    def flush(self) -> None:
        """Send now as much as the socket accepts."""
        if not self.closed and self._out and not self._registration.events & WRITE:
            self._send_out()

    def _flush_at_turn_end(self) -> None:
        self._flush_asked = False
        if self._out and not self.closed and not self._registration.events & WRITE:
            self._send_out()

    def _writable(self) -> None:
        self._send_out()

    def _send_out(self) -> None:
        try:
            blocked = self._transmit()
        except OSError as error:
            self.abort(error)
            return
        if blocked:
            self._watch(write=True)
        else:
            if self._registration.events & WRITE:
                self._watch(write=False)
            if self._ending:
                self._say_no_more()
                return
            if self._closing and self._hang_up_timer is None:
                self._finish(None)
                return
        if self.congested and self.out_bytes <= self.low:
            self.congested = False
            if self._on_drained is not None:
                self._on_drained()

    def _transmit(self) -> bool:
        """Pass bytes to the socket until it accepts no more; return whether some are left."""
        out = self._out
        try:
            if len(out) <= FEW_BUFFERS and self.out_bytes <= READ_BYTES_MAX:
                sent = self.sock.sendmsg(out)
                self.writes += 1
                if sent == self.out_bytes:  # most often: a turn writes little
                    out.clear()
                    self.out_bytes = 0
                    self.bytes_out += sent
                    return False
                self._sent(sent)
                return True
            while self._out:
                wanted, batch = self._gather()
                sent = self.sock.sendmsg(batch)
                self.writes += 1
                self._sent(sent)
                if sent < wanted:
                    break
        except BlockingIOError:
            pass
        return bool(self._out)

    def _gather(self) -> tuple[int, list[Buffer]]:
        """Return the size of the first buffers and the buffers, small neighbours joined."""
        if len(self._out) > FEW_BUFFERS:
            self._join_small()
        batch: list[Buffer] = []
        wanted = 0
        for buffer in self._out:
            batch.append(buffer)
            wanted += len(buffer)
            if len(batch) == IOV_MAX or wanted >= READ_BYTES_MAX:
                break
        return wanted, batch

    def _join_small(self) -> None:
        """Join small neighbours, once for all that was written since the last time.

        A long row of large views is passed over once, and not again for each part that is sent.
        """
        if not self._fresh:
            return
        self._fresh = False
        joined: collections.deque[Buffer] = collections.deque()
        run: list[Buffer] = []
        for buffer in self._out:
            if len(buffer) <= SEND_JOIN_BYTES_MAX:
                run.append(buffer)
                continue
            if run:
                joined.append(b"".join(run) if len(run) > 1 else run[0])
                run = []
            joined.append(buffer)
        if run:
            joined.append(b"".join(run) if len(run) > 1 else run[0])
        self._out = joined

    def _sent(self, sent: int) -> None:
        out = self._out
        self.out_bytes -= sent
        self.bytes_out += sent
        while sent:
            first = out[0]
            length = len(first)
            if length <= sent:
                out.popleft()
                sent -= length
            else:
                out[0] = memoryview(first)[sent:]
                return

    # ------------------------------------------------------------ reading

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading`; TCP then blocks the peer."""
        self.paused = True
        self._watch()

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""
        self.paused = False
        self._watch()

    def _readable(self) -> None:
        if self.paused and not self.closed:
            # Only a hang-up or an error wakes a paused stream: nothing reads from it.
            self._hung_up()
            return
        if self.budget is not None and not self.budget.left(self.loop.turn):
            return  # the socket stays ready, and the next turn comes at once
        room = None if self._into is None or self._closing else self._into.room()
        if room is not None:
            self._read_into(room)
            return
        try:
            data = self.sock.recv(self._read_bytes)
        except BlockingIOError:
            return
        except OSError as error:
            self.abort(error)
            return
        if not data:
            self._finish(None)
            return
        size = len(data)
        self.reads += 1
        self.bytes_in += size
        self.last_read_ms = self.loop.now_ms
        if size == self._read_bytes and size < self._read_bytes_max:
            self._read_bytes *= 4 if size * 4 <= self._read_bytes_max else 1
        elif size * 16 < self._read_bytes and self._read_bytes > READ_BYTES_MIN:
            self._read_bytes //= 4
        if not self._closing:
            self._on_data(data)
        else:
            self._dropped(data)

    def be_patient(self, patient: bool) -> None:
        """Let what comes wait for other work of the loop, or do not."""
        if not self.closed:
            self._registration.be_patient(patient)

    def read_little(self) -> None:
        """Read READ_BYTES_MIN at most per turn from now on: what comes takes long to process."""
        self._read_bytes = self._read_bytes_max = READ_BYTES_MIN

    def _read_into(self, room: memoryview) -> None:
        try:
            size = self.sock.recv_into(room[:READ_BYTES_MAX])
        except BlockingIOError:
            return
        except OSError as error:
            self.abort(error)
            return
        if not size:
            self._finish(None)
            return
        self.reads += 1
        self.bytes_in += size
        self.last_read_ms = self.loop.now_ms
        assert self._into is not None
        self._into.filled(size)

    def _dropped(self, data: bytes) -> None:
        """Take note of bytes that came after this side had ended; no application gets them."""

    def _hung_up(self) -> None:
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._finish(OSError(code or errno.ECONNRESET, "the connection was reset"))

    # ------------------------------------------------------------ ending

    def end(self) -> None:
        """Close towards a peer that may still be sending, so that it receives the last bytes.

        1. This side has sent its last message and closes.  2. Unread bytes are in the socket.
        3. The kernel answers with a reset, which discards what the peer has not read yet: the last
        message.
        So further bytes are read and dropped until the peer hangs up, for up to CLOSE_LINGER_MS.
        """
        if self.closed or (self._closing and self._hang_up_timer is None):
            return
        self._cancel_hang_up_timer()
        self._closing = self._ending = True
        self.paused = False
        self._watch()
        self.loop.call_later(CLOSE_LINGER_MS, self.abort)
        if self._out:
            self.flush()
        else:
            self._say_no_more()

    def await_hang_up(self, linger_ms: int) -> None:
        """Send unsent bytes, then wait for the peer to close, for up to linger_ms; then `end`.

        For a peer that closes the socket itself and takes an earlier end of it for an error.
        Bytes that still come are dropped.
        """
        if self.closed or self._closing:
            return
        self._closing = True
        self.paused = False
        self._hang_up_timer = self.loop.call_later(linger_ms, self.end)
        self._watch()
        self.flush()

    def _cancel_hang_up_timer(self) -> None:
        if self._hang_up_timer is not None:
            self._hang_up_timer.cancel()
            self._hang_up_timer = None

    def _say_no_more(self) -> None:
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._finish(None)  # the peer has closed already

    def close(self) -> None:
        """Send unsent bytes within CLOSE_LINGER_MS, then close; read nothing more."""
        if self.closed or self._closing:
            return
        self._closing = True
        if self._out:
            self.paused = True
            self._watch()
            self.flush()
            if not self.closed:
                self.loop.call_later(CLOSE_LINGER_MS, self.abort)
        else:
            self._finish(None)

    def abort(self, error: Exception | None = None) -> None:
        """Close at once and drop unsent bytes."""
        self._finish(error)

    def _finish(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        self._cancel_hang_up_timer()
        self._registration.close()
        self.sock.close()
        self._out.clear()
        self.out_bytes = 0
        on_closed = self._on_closed
        # The callbacks' owner refers to this stream, and the stream to it: without this the memory
        # of a connection would stay until the garbage collector runs.
        self._on_data = self._on_closed = _nothing
        self._on_drained = self._into = None
        on_closed(error)

    def _watch(self, write: bool | None = None) -> None:
        if self.closed:
            return
        events = 0 if self.paused else READ
        if write or (write is None and self._registration.events & WRITE):
            events |= WRITE
        self._registration.watch(events)


def _nothing(_: object) -> None:
    """Ignore a callback: a closed stream calls this."""


def tune(sock: socket.socket, buffer_bytes: int | None = None) -> None:
    """Make a socket non-blocking, without delay, and with buffers of that size when given."""
    sock.setblocking(False)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
