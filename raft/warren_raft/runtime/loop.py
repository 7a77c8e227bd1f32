"""A node's event loop, made of turns."""

from __future__ import annotations

import collections
import errno
import functools
import heapq
import logging
import os
import select
import socket
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from warren_raft.measures import SECONDS, Histogram

log = logging.getLogger("warren.raft")
READ = select.EPOLLIN
WRITE = select.EPOLLOUT
ROUNDS_MAX = 16
"""How many stages may run in one turn before the sockets are polled again."""
POLL_EVENTS_MAX = 1024
HEARD_BYTES_FEW = 4 << 10
"""A turn that has read less than that from clients looks at the sockets once more: it is a message
or two, and what others do because of the one before comes at the same moment. Where there is more,
turns are full by themselves."""
PATIENT_MS = 5
PATIENT_MS_MAX = 12
"""Patient sockets are looked at that long after the last look: in a turn in which a client was
heard, and in a turn of its own."""
REPLACE_S = 0.1
"""A job that holds the loop's thread for once to twice that long keeps it; another takes over."""
SEATS_MAX = 16
"""Threads of one loop: the one that runs it, its guard, and those held by a job."""
Job = Callable[[], Callable[[], None]]
"""Work that may block; the function that it returns is called on the loop's thread."""


class Clock(Protocol):
    """A source of time; neither clock moves backwards."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary moment; for delays."""

    def epoch_ms(self) -> int:
        """Return milliseconds since the epoch; for the stamps of entries."""


class SystemClock:
    """The operating system's clocks, without backward steps.

    The wall clock's steps forward are followed; after a step back time continues at its ordinary
    pace from where it was: it stays ahead of the wall clock until the process is restarted, but no
    deadline waits for the wall clock to catch up.
    Invariant: epoch - monotonic never decreases.
    """

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def monotonic_ms(self) -> int:
        """See Clock."""
        return time.monotonic_ns() // 1_000_000

    def epoch_ms(self) -> int:
        """See Clock."""
        monotonic = time.monotonic_ns()
        offset = time.time_ns() - monotonic
        if offset > self._offset_ns:
            self._offset_ns = offset
        return (monotonic + self._offset_ns) // 1_000_000


class LoopStage(IntEnum):
    """The order of the work after all ready sockets were read; one may schedule an earlier one."""

    GATHER = 0  # input of the connections becomes submissions and proposals
    RAFT = 1  # the groups' outboxes are written and sent; entries are applied
    DELIVER = 2  # results of applying are passed to the connections
    FLUSH = 3  # one write per connection
    EFFECTS = 4  # what need not be done before these writes, and causes further ones
    SYNC = 5  # writes to disk, after everything that may leave before them
    LATE = 6  # work without a result to wait for, after the write's answers have left


class Replaced(BaseException):
    """Raised on a thread that another one has replaced: it must not touch the loop any more."""


class LoopTimer:
    """A call in the future; `cancel()` may be called at any time, any number of times.

    _entry_ms  of its entry in the loop's heap, which is put back when it is reached too early
    Invariant: while it is active, _entry_ms <= when_ms
    """

    __slots__ = ("_call", "_entry_ms", "_loop", "when_ms")

    def __init__(self, loop: Loop, when_ms: int, call: Callable[[], None]) -> None:
        self.when_ms = self._entry_ms = when_ms
        self._loop = loop
        self._call: Callable[[], None] | None = call

    @property
    def active(self) -> bool:
        """Whether it has neither run nor been cancelled."""
        return self._call is not None

    def cancel(self) -> None:
        """Cancel the call if it has not been made."""
        if self._call is not None:
            self._call = None
            self._loop._timer_cancelled()

    def move(self, when_ms: int) -> None:
        """Make the call at another time; it must be active.

        A timer that is put off with every command, and one that comes nearer and is put off again,
        leave the heap as it is.
        """
        assert self._call is not None, when_ms
        self.when_ms = when_ms
        if when_ms < self._entry_ms:
            self._entry_ms = when_ms
            self._loop._timer_advanced(self)


@dataclass(slots=True, eq=False, repr=False)
class WatchedSocket:
    """A file descriptor the loop watches.

    on_error  called with what `readable` or `writable` raised; it must end the connection;
              None: the exception ends the loop
    patient   what comes may wait for PATIENT_MS_MAX
    """

    loop: Loop
    fd: int
    readable: Callable[[], None]
    writable: Callable[[], None] | None
    on_error: Callable[[Exception], None] | None
    events: int
    patient: bool = False

    def watch(self, events: int) -> None:
        """Wait for READ, WRITE, both or neither from now on."""
        if events & WRITE:
            self.be_patient(False)
        if events != self.events:
            self.events = events
            self._poll().modify(self.fd, events)

    def be_patient(self, patient: bool) -> None:
        """Let what comes wait for other work, see `Loop`; not while it waits to be writable."""
        if patient != self.patient and not (patient and self.events & WRITE):
            self._poll().unregister(self.fd)
            self.patient = patient
            self._poll().register(self.fd, self.events)

    def _poll(self) -> select.epoll:
        return self.loop._patient if self.patient else self.loop._epoll

    def close(self) -> None:
        """Stop watching; call it before the descriptor is closed."""
        self.loop._unregister(self)


class Loop:
    """An event loop of sockets, timers and turns, on one thread.

    A turn: wait; call back for every ready socket, and where clients have sent a little, for those
    that have become ready meanwhile; run due timers, then posted and soon calls; then the stages in
    their order until none has work.
    Only `post` and `stop` may be called from other threads. An exception without an error handler
    of its own ends `run`, which raises it.

    The loop's thread may change while `run` continues, as a Go scheduler takes its processor from a
    thread that a system call holds: 1. A small write to the log is made on the loop's thread,
    because waking another one costs as much as the write.  2. The disk hangs, and the system call
    does not return.  3. A guard sees that `wait_for` takes too long, and runs the loop itself.
    4. The call returns: its thread finds that it was replaced, posts the outcome, and ends.

    What comes on a patient socket does not begin a turn: 1. A consumer acknowledges each message,
    and nothing is sent because of that alone.  2. It does so between two messages: the turn's work
    is little, and its caches are cold.  So patient sockets have a poll of their own (`_patient`).
    It is read with the publishers' sockets, PATIENT_MS after the last time, or PATIENT_MS_MAX after
    it if there is no such turn. Where that finds nothing the poll is watched like a socket
    (`_attends`), until there is something twice within that time: an idle loop does not look.
    Replayed by tests/raft/runtime/test_loop.py

    Invariant: one thread at a time runs the loop, the one with the number `_seat`; the guard
    increments `_seat` only while that thread is inside `wait_for`, which does not touch the loop

    heard_bytes  sent by clients and read in this turn, as their connections report it
    on_guard  called by the guard every REPLACE_S, on the guard's thread: to watch for what may
              hold the loop's thread outside `wait_for`. They must not change what the loop's
              thread changes
    turns, lags  see `RaftMeasures`
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.turn = 0
        self.heard_bytes = 0
        self.turns, self.lags = Histogram(SECONDS), Histogram(SECONDS)
        self._epoll, self._patient = select.epoll(), select.epoll()
        self._attends = False
        self._looked_ms = self._found_ms = 0
        self._registrations: dict[int, WatchedSocket] = {}
        self._timers: list[tuple[int, int, LoopTimer]] = []
        self._timer_count = 0
        self._timers_cancelled = 0  # upper bound of the cancelled ones in the heap
        self._soon: collections.deque[Callable[[], None]] = collections.deque()
        self._posted: collections.deque[Callable[[], None]] = collections.deque()
        self._stages: tuple[list[Callable[[], None]], ...] = tuple([] for _ in LoopStage)
        self._stopping = False
        self._running = False
        self._over = threading.Event()
        self._guards: collections.deque[Future[bool]] = collections.deque()
        self.on_guard: list[Callable[[], None]] = []
        self._seat = 0
        self._seat_lock = threading.Lock()
        self._waits_since: float | None = None
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_pending = False
        self.now_ms = self.clock.monotonic_ms()
        self.register(self._wake_fd, self._on_wake)
        patient = self._patient.fileno()
        self._registrations[patient] = WatchedSocket(
            self, patient, lambda: self._call_back(self._look()), None, None, READ
        )
        self._attend(True)

    # ------------------------------------------------------------ registration

    def register(
        self,
        fd: int | socket.socket,
        readable: Callable[[], None],
        writable: Callable[[], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        events: int = READ,
    ) -> WatchedSocket:
        """Call back when `fd` is ready; level-triggered; errors and hang-ups count as ready."""
        number = fd if isinstance(fd, int) else fd.fileno()
        assert number not in self._registrations, number
        registration = WatchedSocket(self, number, readable, writable, on_error, events)
        self._registrations[number] = registration
        self._epoll.register(number, events)
        return registration

    def _unregister(self, registration: WatchedSocket) -> None:
        if self._registrations.get(registration.fd) is registration:
            del self._registrations[registration.fd]
            registration._poll().unregister(registration.fd)

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> LoopTimer:
        """Call once, `delay_ms` from now."""
        return self.call_at(self.clock.monotonic_ms() + max(0, delay_ms), call)

    def call_at(self, when_ms: int, call: Callable[[], None]) -> LoopTimer:
        """Call once, at that time of the monotonic clock."""
        timer = LoopTimer(self, when_ms, call)
        self._timer_count += 1
        heapq.heappush(self._timers, (when_ms, self._timer_count, timer))
        return timer

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call in this turn, or in the next one if this turn's calls have been made already."""
        self._soon.append(call)

    def post(self, call: Callable[[], None]) -> None:
        """Call on the loop's thread; may be called from any thread."""
        self._posted.append(call)
        # A second post before the loop has woken needs no second wake-up: `_on_wake` clears the
        # flag before it takes the calls, so a call appended after that wakes the loop again.
        if not self._wake_pending:
            self._wake_pending = True
            os.eventfd_write(self._wake_fd, 1)

    def at_turn_end(self, stage: LoopStage, call: Callable[[], None]) -> None:
        """Call once in this turn's `stage`; the caller must ask only once per turn."""
        self._stages[stage].append(call)

    # ------------------------------------------------------------ running

    def run(self) -> None:
        """Run turns until `stop`; raises what a callback without an error handler raised."""
        assert not self._running, "this loop is running already"
        self._running = True
        self._over.clear()
        try:
            with ThreadPoolExecutor(SEATS_MAX, "loop") as threads:
                self._begin_guard(threads)
                ended = self._serve()
                while not ended:
                    ended = self._guards.popleft().result()
        finally:
            self._guards.clear()
            self._running = self._stopping = False

    def _serve(self) -> bool:
        """Run turns until the loop ends; return False when another thread has taken over."""
        ended = True
        try:
            self.run_turn(None)
            while not self._stopping:
                self.run_turn(None)
        except Replaced:
            ended = False
        finally:
            if ended:
                self._over.set()
        return ended

    # ------------------------------------------------------------ blocking jobs

    def wait_for(self, job: Job) -> None:
        """Run `job` on this thread, then call what it returns; raises what it raises.

        When it takes long, and the loop was started by `run`, another thread takes over the loop
        and calls what the job returns; then this raises Replaced. To be called at the end of a
        turn, in Stage.SYNC: the turn must do nothing after it.
        """
        seat = self._seat
        self._waits_since = time.monotonic()
        try:
            outcome = job()
        except BaseException as error:
            if self._keeps(seat):
                raise
            self.post(functools.partial(_throw, error))
            raise Replaced from error
        if not self._keeps(seat):
            self.post(outcome)
            raise Replaced
        outcome()

    def _keeps(self, seat: int) -> bool:
        """End the wait; return whether the thread with that number still runs the loop."""
        with self._seat_lock:
            if seat == self._seat:
                self._waits_since = None
                return True
        return False

    def _begin_guard(self, threads: ThreadPoolExecutor) -> None:
        self._guards.append(threads.submit(self._guard, threads))

    def _guard(self, threads: ThreadPoolExecutor) -> bool:
        """Run the loop as soon as its thread is held by a job; see `_serve`."""
        while not self._over.wait(REPLACE_S):
            for call in tuple(self.on_guard):
                call()
            with self._seat_lock:
                since = self._waits_since
                if since is None or time.monotonic() - since < REPLACE_S:
                    continue
                self._waits_since = None
                self._seat += 1
            log.warning(
                "a disk write blocks the event loop's thread: another thread runs the event loop"
            )
            self._begin_guard(threads)
            return self._serve()
        return True

    def stop(self) -> None:
        """Make `run` return at the end of its turn (its first, if it has yet to be called).

        May be called from any thread.
        """
        self._stopping = True
        self.post(_nothing)

    def run_turn(self, timeout_ms: int | None) -> None:
        """Run one turn; wait at most `timeout_ms` (None: without limit) for something to do."""
        wait = self._wait_ms(timeout_ms)
        ready = self._epoll.poll(-1 if wait is None else wait / 1000, POLL_EVENTS_MAX)
        if not ready and wait:
            # 1. The process is stopped while it waits (SIGSTOP, a debugger, `docker pause`), for
            # longer than `wait`.  2. Clients' heartbeats come.  3. It continues: the system call
            # was interrupted, and `poll` returns without a look at the sockets.  The timers would
            # end connections for a silence that was this process's own.
            # Replayed by tests/raft/runtime/test_loop.py
            ready = self._epoll.poll(0, POLL_EVENTS_MAX)
        self.turn += 1
        self.now_ms, began = self.clock.monotonic_ms(), time.monotonic()
        self.heard_bytes = 0
        if ready:
            self._call_back(ready)
        if (self.heard_bytes or not self._attends) and (more := self._more(ready)):
            self._call_back(more)
        if self._timers and self._timers[0][0] <= self.now_ms:
            self._run_timers()
        if self._soon:
            self._run_calls(self._soon)
        self._run_stages()
        turns, took = self.turns, time.monotonic() - began
        turns.counts[bisect_left(turns.bounds, took)] += 1
        turns.total += took

    def _call_back(self, ready: list[tuple[int, int]]) -> None:
        registrations = self._registrations
        for fd, events in ready:
            registration = registrations.get(fd)
            if registration is None:
                continue
            try:
                if events & ~WRITE:  # hang-ups and errors are found by reading
                    registration.readable()
                if events & WRITE and registration.writable is not None:
                    if registrations.get(fd) is registration:
                        registration.writable()
            except Exception as error:  # the fault boundary of a connection: it ends, no other
                if registration.on_error is None:
                    raise
                registration.on_error(error)

    def _more(self, read: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return what else is to be read in this turn, after the sockets in `read`."""
        heard, more = self.heard_bytes, []
        if not self._attends and self.now_ms - self._looked_ms >= (
            PATIENT_MS if heard else PATIENT_MS_MAX
        ):
            more = self._look()
        # 1. A confirm and a delivery have left.  2. The publisher answers with a message, and
        # this turn begins.  3. The consumer's acknowledgement comes 50 µs later.  Unless it is
        # found here, it is a turn of its own, an entry, and a sync on each node; and while the
        # leader makes these, the follower's answer to the message waits in its socket.
        if 0 < heard < HEARD_BYTES_FEW:
            again = self._epoll.poll(0, POLL_EVENTS_MAX)
            if again:
                once = dict(read)  # per turn, or one that always has more would starve others
                more += [one for one in again if one[0] not in once]
        return more

    def _look(self) -> list[tuple[int, int]]:
        """Return which patient sockets are ready."""
        found, now = self._patient.poll(0, POLL_EVENTS_MAX), self.now_ms
        recently = now - self._found_ms <= PATIENT_MS_MAX
        if bool(found) and recently and self._attends:
            self._attend(False)
        elif not (found or recently or self._attends):
            self._attend(True)
        if found:
            self._found_ms = now
        self._looked_ms = now
        return found

    def _attend(self, attends: bool) -> None:
        self._attends = attends
        if attends:
            self._epoll.register(self._patient.fileno(), READ)
        else:
            self._epoll.unregister(self._patient.fileno())

    def close(self) -> None:
        """Close the loop's own descriptors."""
        self._epoll.close()
        self._patient.close()
        os.close(self._wake_fd)

    def _wait_ms(self, timeout_ms: int | None) -> int | None:
        if self._soon or self._stopping or any(self._stages):
            return 0
        if not self._attends:
            left = max(0, self._looked_ms + PATIENT_MS_MAX - self.now_ms)
            timeout_ms = left if timeout_ms is None else min(left, timeout_ms)
        timers = self._timers
        while timers:
            entry_ms, _, timer = timers[0]
            if timer.when_ms == entry_ms and timer._call is not None:
                break
            self._is_void()
        else:
            return timeout_ms
        due = max(0, timers[0][0] - self.clock.monotonic_ms())
        return due if timeout_ms is None else min(due, timeout_ms)

    def _on_wake(self) -> None:
        os.eventfd_read(self._wake_fd)
        self._wake_pending = False
        self._run_calls(self._posted)

    def _run_timers(self) -> None:
        timers, now, late = self._timers, self.now_ms, -1.0
        while timers and timers[0][0] <= now:
            if not self._is_void():
                due_ms, _, timer = heapq.heappop(timers)
                if late < 0.0:
                    lags, late = self.lags, (now - due_ms) / 1000
                    lags.counts[bisect_left(lags.bounds, late)] += 1
                    lags.total += late
                call, timer._call = timer._call, None
                assert call is not None
                call()

    def _is_void(self) -> bool:
        """Remove the heap's first entry if its timer was cancelled or moved; return whether."""
        entry_ms, _, timer = self._timers[0]
        if timer._call is None or timer._entry_ms != entry_ms:
            heapq.heappop(self._timers)
            self._timers_cancelled -= 1
            return True
        if timer.when_ms == entry_ms:
            return False
        timer._entry_ms = timer.when_ms
        self._timer_count += 1
        heapq.heapreplace(self._timers, (timer.when_ms, self._timer_count, timer))
        return True

    def _timer_advanced(self, timer: LoopTimer) -> None:
        self._timer_count += 1
        heapq.heappush(self._timers, (timer.when_ms, self._timer_count, timer))
        self._timer_cancelled()  # the entry that it had

    def _timer_cancelled(self) -> None:
        # Otherwise a timer that is set again for every command would fill the heap until it is due.
        self._timers_cancelled += 1
        if self._timers_cancelled > 64 and self._timers_cancelled * 2 > len(self._timers):
            self._timers[:] = [
                item for item in self._timers if item[2].active and item[2]._entry_ms == item[0]
            ]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _run_calls(self, calls: collections.deque[Callable[[], None]]) -> None:
        for _ in range(len(calls)):  # calls added meanwhile run in the next turn
            calls.popleft()()

    def _run_stages(self) -> None:
        gather, raft, deliver, flush, effects, sync, late = self._stages
        for _ in range(ROUNDS_MAX):
            if gather:
                stage = gather
            elif raft:
                stage = raft
            elif deliver:
                stage = deliver
            elif flush:
                stage = flush
            elif effects:
                stage = effects
            elif sync:
                sync.pop(0)()  # this thread may be replaced in it: the others stay
                continue
            elif late:
                stage = late
            else:
                return
            if len(stage) == 1:  # most often, where messages come one at a time
                stage.pop()()
                continue
            calls = stage[:]
            stage.clear()
            for call in calls:
                call()


def _nothing() -> None:
    pass


def _throw(error: BaseException) -> None:
    raise error


# ------------------------------------------------------------------ sockets


def listen(address: tuple[str, int], backlog: int = 1024) -> list[socket.socket]:
    """Return non-blocking listening sockets for every address of the name (IPv4 and IPv6).

    address  ("" or "*": all interfaces; port 0: one free port, the same for all of them)
    raises   OSError with the address when none is available
    """
    host, port = address
    name = None if host in ("", "*") else host
    infos = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    for family, kind, protocol, _, where in infos:
        bound: tuple[Any, ...] = (where[0], port, *where[2:])
        try:
            sock = socket.socket(
                family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol
            )
        except OSError as error:  # for example a machine without IPv6
            problem = error
            continue
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(bound)
            sock.listen(backlog)
        except OSError as error:
            sock.close()
            problem = error
            if error.errno == errno.EADDRINUSE:
                break
            continue
        port = sock.getsockname()[1]
        sockets.append(sock)
    if problem is not None and (not sockets or problem.errno == errno.EADDRINUSE):
        for sock in sockets:
            sock.close()
        raise OSError(problem.errno, f"cannot listen on {host or '*'}:{port}: {problem.strerror}")
    return sockets


class Listener:
    """A listener that passes on each accepted connection, non-blocking, with its address."""

    ACCEPTS_PER_TURN = 64

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        on_accept: Callable[[socket.socket, Any], None],
    ) -> None:
        self._loop = loop
        self._on_accept = on_accept
        self._sockets = listen(address)
        self._paused: LoopTimer | None = None
        self._registrations = [
            loop.register(sock, functools.partial(self._accept, sock)) for sock in self._sockets
        ]

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop accepting."""
        if self._paused is not None:
            self._paused.cancel()
        for registration in self._registrations:
            registration.close()
        for sock in self._sockets:
            sock.close()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(self.ACCEPTS_PER_TURN):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause()  # the socket stays ready: without a pause the loop would spin
                    return
                if error.errno in (errno.ECONNABORTED, errno.EPROTO, errno.EPERM):
                    continue  # that client has disconnected
                raise
            sock.setblocking(False)
            self._on_accept(sock, address)

    def _pause(self) -> None:
        for registration in self._registrations:
            registration.watch(0)
        self._paused = self._loop.call_later(200, self._resume)

    def _resume(self) -> None:
        for registration in self._registrations:
            registration.watch(READ)
