"""Turns: what is called when, and what one connection's error costs the others."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.raft.runtime.kit import until
from warren_raft.runtime.loop import (
    HEARD_BYTES_FEW,
    PATIENT_MS,
    PATIENT_MS_MAX,
    READ,
    WRITE,
    Listener,
    Loop,
    LoopStage,
    listen,
)
from warren_raft.runtime.net.stream import READ_BYTES_MIN, Stream


class Clock:
    """Time that stands still until told."""

    def __init__(self) -> None:
        self.now = 1000

    def monotonic_ms(self) -> int:
        return self.now

    def epoch_ms(self) -> int:
        return self.now


def test_timers_run_in_their_order_and_once() -> None:
    clock = Clock()
    loop = Loop(clock)
    ran: list[str] = []
    loop.call_later(20, lambda: ran.append("b"))
    loop.call_later(10, lambda: ran.append("a"))
    gone = loop.call_later(15, lambda: ran.append("never"))
    loop.call_later(20, lambda: ran.append("c"))
    gone.cancel()
    gone.cancel()
    for step in (9, 5, 6, 100):
        clock.now += step
        loop.run_turn(0)
    assert ran == ["a", "b", "c"]
    assert not gone.active
    loop.close()


STOPPED = """
import socket, sys
from warren_raft.runtime.loop import Loop

loop, order = Loop(), []
heard = socket.socket(fileno=0)
loop.register(heard, lambda: order.append(heard.recv(10)))
loop.call_later(1_000, lambda: (order.append(b"timer"), loop.stop()))
loop.call_soon(lambda: print("waits", flush=True))
loop.run()
print(order)
"""


def test_a_process_that_was_stopped_reads_its_sockets_before_its_timers_run() -> None:
    """Before, it closed clients as silent ones, with their heartbeats in its sockets."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = subprocess.Popen(
            [sys.executable, "-c", STOPPED],
            stdin=theirs.fileno(),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        with child:
            assert child.stdout is not None and child.stdout.readline() == b"waits\n"
            threading.Event().wait(0.2)  # most often it waits by then; else nothing is tested
            child.send_signal(signal.SIGSTOP)
            while ") T " not in Path(f"/proc/{child.pid}/stat").read_text():
                threading.Event().wait(0.01)
            ours.send(b"alive")
            threading.Event().wait(1.5)
            child.send_signal(signal.SIGCONT)
            assert child.stdout.read() == b"[b'alive', b'timer']\n"


def test_cancelled_timers_do_not_pile_up() -> None:
    loop = Loop(Clock())
    kept = loop.call_later(10_000, lambda: None)
    for _ in range(10_000):
        loop.call_later(3_600_000, lambda: None).cancel()
    assert len(loop._timers) < 300
    assert kept.active and any(item[2] is kept for item in loop._timers)
    loop.close()


def test_what_comes_while_other_sockets_are_read_is_of_the_same_turn() -> None:
    """An acknowledgement that followed a message by microseconds had an entry of its own."""
    loop = Loop(Clock())
    ran: list[str] = []
    heard = 1
    one, to_one = socket.socketpair()
    two, to_two = socket.socketpair()

    def message() -> None:  # more of it stays in the socket: it is read once per turn
        ran.append(one.recv(1).decode())
        loop.heard_bytes += heard
        to_two.send(b"a")
        loop.at_turn_end(LoopStage.GATHER, lambda: ran.append("gather"))

    loop.register(one, message)
    loop.register(two, lambda: ran.append(two.recv(1).decode()))
    to_one.send(b"mm")
    loop.run_turn(0)
    assert ran == ["m", "a", "gather"]
    loop.run_turn(0)
    assert ran[3:] == ["m", "a", "gather"]
    heard = HEARD_BYTES_FEW
    to_one.send(b"m")
    loop.run_turn(0)
    assert ran[6:] == ["m", "gather"], "the turn has enough"
    for each in (one, to_one, two, to_two):
        each.close()
    loop.close()


class Sockets:
    """A loop with a patient socket and another one, and what was read."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self.read = ""
        self.acks, self.to_acks = socket.socketpair()
        self.messages, self.to_messages = socket.socketpair()
        self.watched = self.loop.register(self.acks, self.ack)
        self.watched.be_patient(True)
        self.loop.register(self.messages, self.message)

    def ack(self) -> None:
        self.read += self.acks.recv(1).decode()

    def message(self) -> None:
        self.read += self.messages.recv(1).decode()
        self.loop.heard_bytes += 1

    def turn(self, ms: int = 0) -> str:
        """Let time pass, and run a turn if the loop would not wait; return what it read."""
        self.clock.now += ms
        before = self.read
        self.loop.run_turn(0)
        return self.read[len(before) :]

    def close(self) -> None:
        for each in (self.acks, self.to_acks, self.messages, self.to_messages):
            each.close()
        self.loop.close()


def test_a_patient_socket_begins_no_turn() -> None:
    """Each acknowledgement was a turn, between two messages."""
    one = Sockets()
    one.to_acks.send(b"aaaa")
    assert one.turn(PATIENT_MS_MAX + 1) == "a", "an idle loop waits for it, too"
    assert one.turn(PATIENT_MS_MAX) == "a", "and no longer, when there are two within that time"
    assert one.turn() == "", "level-triggered, but it is not watched"
    assert one.loop._wait_ms(None) == PATIENT_MS_MAX
    one.to_messages.send(b"mmm")
    assert one.turn(PATIENT_MS - 1) == "m"
    assert one.turn(1) == "ma", "it is of the message's turn"
    assert one.turn(1) == "m"
    assert one.turn(PATIENT_MS_MAX - 1) == "a", "or has waited long enough"
    assert one.turn(PATIENT_MS_MAX - 1) == ""
    assert one.loop._wait_ms(None) == 1
    assert one.turn(2) == ""
    assert one.loop._wait_ms(None) is None, "a look that finds nothing is the last one"
    one.to_acks.send(b"a")
    assert one.turn() == "a"
    one.close()


def test_a_patient_socket_is_watched_when_it_must_be() -> None:
    one = Sockets()
    one.to_acks.send(b"aaa")
    assert one.turn(PATIENT_MS_MAX + 1) + one.turn(1) + one.turn() == "aa"
    one.watched.be_patient(False)
    assert one.turn() == "a"
    one.watched.be_patient(True)
    written: list[int] = []
    one.watched.writable = lambda: written.append(1)
    one.watched.watch(READ | WRITE)
    one.turn()
    assert written, "it has something to send"
    one.watched.be_patient(True)
    assert not one.watched.patient
    one.watched.watch(READ)
    one.watched.be_patient(True)
    one.watched.close()
    one.to_acks.send(b"a")
    assert one.turn(PATIENT_MS_MAX) == ""
    one.close()


def test_stages_run_in_order_and_again_when_a_later_one_asks() -> None:
    loop = Loop(Clock())
    ran: list[str] = []

    def deliver() -> None:
        ran.append("deliver")
        if ran.count("deliver") == 1:
            loop.at_turn_end(LoopStage.RAFT, lambda: ran.append("raft again"))

    loop.at_turn_end(LoopStage.FLUSH, lambda: ran.append("flush"))
    loop.at_turn_end(LoopStage.DELIVER, deliver)
    loop.at_turn_end(LoopStage.GATHER, lambda: ran.append("gather"))
    loop.at_turn_end(LoopStage.RAFT, lambda: ran.append("raft"))
    loop.run_turn(0)
    assert ran == ["gather", "raft", "deliver", "raft again", "flush"]
    loop.close()


def test_late_work_runs_when_the_answers_to_a_write_have_left() -> None:
    loop = Loop(Clock())
    ran: list[str] = []

    def write() -> None:
        ran.append("write")
        loop.at_turn_end(LoopStage.FLUSH, lambda: ran.append("flush"))
        loop.at_turn_end(LoopStage.RAFT, lambda: ran.append("raft"))

    loop.at_turn_end(LoopStage.LATE, lambda: ran.append("late"))
    loop.at_turn_end(LoopStage.SYNC, write)
    loop.run_turn(0)
    assert ran == ["write", "raft", "flush", "late"] and loop.turn == 1
    loop.close()


def test_work_that_never_ends_does_not_keep_the_sockets_waiting() -> None:
    loop = Loop()
    heard: list[bytes] = []
    ours, theirs = socket.socketpair()
    stream = Stream(loop, ours, heard.append, lambda error: None)

    def again() -> None:
        loop.at_turn_end(LoopStage.RAFT, again)

    again()
    theirs.send(b"x")
    until(loop, lambda: heard == [b"x"])
    stream.abort()
    theirs.close()
    loop.close()


def test_a_stream_reads_little_from_then_on() -> None:
    loop, sizes = Loop(), []
    stream, theirs, _ = pair(loop, lambda data: sizes.append(len(data)), buffer_bytes=1 << 20)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    theirs.setblocking(False)

    def fed(octets: int) -> None:
        del sizes[:]
        left = octets

        def came() -> bool:
            nonlocal left
            try:
                left -= theirs.send(bytes(left)) if left else 0
            except BlockingIOError:
                pass
            return sum(sizes) == octets

        until(loop, came)

    fed(1 << 20)
    assert max(sizes) > READ_BYTES_MIN
    stream.read_little()
    fed(1 << 20)
    assert max(sizes) == READ_BYTES_MIN and len(sizes) >= 64
    stream.abort()
    theirs.close()
    loop.close()


def test_a_stream_reads_into_the_room_that_its_owner_has() -> None:
    class Owner:
        place = bytearray(6)
        at = 6

        def room(self) -> memoryview | None:
            return memoryview(self.place)[self.at :] if self.at < len(self.place) else None

        def filled(self, size: int) -> None:
            self.at += size

    loop, owner = Loop(), Owner()
    heard: list[bytes] = []
    ended: list[Exception | None] = []
    ours, theirs = socket.socketpair()
    stream = Stream(loop, ours, heard.append, ended.append, into=owner)
    theirs.send(b"head")
    until(loop, lambda: heard == [b"head"])
    owner.at = 0
    theirs.send(b"body")
    until(loop, lambda: owner.at == 4)
    theirs.send(b"+-next")
    until(loop, lambda: len(heard) == 2)
    assert owner.place == b"body+-" and heard[1] == b"next"
    assert stream.bytes_in == 14
    owner.at = 0
    theirs.close()
    until(loop, lambda: ended == [None])
    loop.close()


def test_a_long_row_of_views_is_sent_in_order_and_joined_once() -> None:
    loop = Loop()
    ours, theirs = socket.socketpair()
    stream = Stream(loop, ours, lambda data: None, lambda error: None)
    large = memoryview(bytes(range(250)) * 200)
    pieces = [each for at in range(300) for each in (b"head", b"%d" % at, large)]
    stream.write(pieces)
    loop.run_turn(0)
    row = stream._out
    received = bytearray()
    wanted = b"".join(pieces)
    theirs.setblocking(False)
    while len(received) < len(wanted):
        try:
            received += theirs.recv(1 << 20)
        except BlockingIOError:
            loop.run_turn(10)
        assert stream._out is row, "what is left is not gone through again for each part"
    assert received == wanted
    stream.abort()
    theirs.close()
    loop.close()


def test_post_wakes_the_loop_from_another_thread() -> None:
    loop = Loop()
    where: list[int] = []

    def other() -> None:
        for _ in range(100):
            loop.post(lambda: where.append(threading.get_ident()))
        loop.stop()

    thread = threading.Thread(target=other)
    thread.start()
    loop.run()
    thread.join()
    assert where == [threading.get_ident()] * 100
    loop.close()


def test_a_job_that_blocks_leaves_the_loop_to_another_thread() -> None:
    loop = Loop()
    main, released, ran = threading.get_ident(), threading.Event(), []
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(threading.get_ident())
        if len(ticks) == 20:
            released.set()
        loop.call_later(10, tick)

    def outcome() -> None:
        ran.append(("outcome", threading.get_ident()))
        loop.stop()

    def job() -> Callable[[], None]:
        ran.append(("job", threading.get_ident()))
        assert released.wait(PATIENCE_S)
        return outcome

    loop.at_turn_end(LoopStage.SYNC, lambda: loop.wait_for(job))
    loop.at_turn_end(LoopStage.SYNC, lambda: ran.append(("next", threading.get_ident())))
    loop.call_later(0, tick)
    loop.run()
    assert len(ticks) >= 20 and main not in ticks[1:] and len(set(ticks[1:])) == 1
    other = ticks[-1]
    assert ran == [("job", main), ("next", other), ("outcome", other)]
    loop.call_later(0, loop.stop)
    loop.run()  # by the caller
    loop.close()


def test_a_job_that_returns_in_time_stays_where_it_is() -> None:
    loop = Loop()
    ran: list[int] = []
    loop.at_turn_end(
        LoopStage.SYNC, lambda: loop.wait_for(lambda: lambda: ran.append(threading.get_ident()))
    )
    loop.call_later(300, loop.stop)
    loop.run()
    assert ran == [threading.get_ident()] and loop._seat == 0
    loop.close()


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("where", ["job", "outcome"])
def test_what_a_job_raises_ends_the_loop(late: bool, where: str) -> None:
    loop = Loop()

    def fail() -> None:
        raise ValueError(where)

    def job() -> Callable[[], None]:
        if late:
            loop.post(replaced.set)  # this thread is here: another one does it
            assert replaced.wait(PATIENCE_S)
        if where == "job":
            fail()
        return fail

    replaced = threading.Event()
    loop.at_turn_end(LoopStage.SYNC, lambda: loop.wait_for(job))
    with pytest.raises(ValueError, match=where):
        loop.run()
    assert loop._seat == late
    loop.close()


def test_the_second_thread_is_replaced_like_the_first() -> None:
    loop = Loop()
    released = threading.Event()
    outcomes: list[int] = []

    def job(number: int) -> Callable[[], None]:
        if number < 3:
            loop.at_turn_end(LoopStage.SYNC, lambda: loop.wait_for(lambda: job(number + 1)))
        else:
            released.set()
        assert released.wait(PATIENCE_S)
        return lambda: done(number)

    def done(number: int) -> None:
        outcomes.append(number)
        if len(outcomes) == 4:
            loop.stop()

    loop.at_turn_end(LoopStage.SYNC, lambda: loop.wait_for(lambda: job(0)))
    loop.run()
    assert sorted(outcomes) == [0, 1, 2, 3] and loop._seat == 3
    loop.close()


def test_an_error_ends_its_own_connection_only() -> None:
    loop = Loop()
    ended: list[Exception | None] = []
    heard: list[bytes] = []

    def fail(data: bytes) -> None:
        raise ValueError("bad frame")

    one, to_one = socket.socketpair()
    two, to_two = socket.socketpair()
    Stream(loop, one, fail, ended.append)
    Stream(loop, two, heard.append, ended.append)
    to_one.send(b"x")
    to_two.send(b"y")
    until(loop, lambda: ended and heard)
    assert isinstance(ended[0], ValueError) and heard == [b"y"]
    assert to_one.recv(1) == b"", "it was closed"
    loop.close()


def test_an_error_of_nobodys_connection_ends_the_loop() -> None:
    loop = Loop()
    loop.call_soon(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        loop.run()
    loop.close()


def pair(
    loop: Loop, on_data: Callable[[bytes], object] = lambda data: None, **settings: Any
) -> tuple[Stream, socket.socket, list[Exception | None]]:
    """Return a stream, the peer's end of it, and the list of the errors with which it ended."""
    ours, theirs = socket.socketpair()
    ended: list[Exception | None] = []
    stream = Stream(loop, ours, on_data, ended.append, **settings)
    return stream, theirs, ended


@pytest.mark.parametrize("piece", [1, 700, 5_000, 300_000])
def test_all_bytes_arrive_in_their_order(piece: int) -> None:
    loop = Loop()
    stream, theirs, _ = pair(loop)
    pieces = [bytes([i % 256]) * piece for i in range(max(3, 3_000_000 // max(piece, 3000)))]
    total = b"".join(pieces)
    for at in range(0, len(pieces), 7):
        stream.write(pieces[at : at + 7])
    assert stream.out_bytes == len(total)
    theirs.setblocking(False)
    received = bytearray()

    def receive() -> bool:
        try:
            received.extend(theirs.recv(1 << 16))
        except BlockingIOError:
            pass
        return len(received) >= len(total)

    until(loop, receive)
    assert bytes(received) == total
    assert stream.out_bytes == 0 and stream.bytes_out == len(total)
    stream.abort()
    loop.close()


def test_a_reader_that_stops_is_felt_and_then_forgotten() -> None:
    loop = Loop()
    felt: list[str] = []
    stream, theirs, ended = pair(
        loop, high=100_000, low=10_000, on_drained=lambda: felt.append("drained")
    )
    for _ in range(100):
        stream.send(bytes(100_000))
    loop.run_turn(0)
    assert felt == [] and stream.congested
    theirs.setblocking(False)

    def receive() -> bool:
        try:
            while theirs.recv(1 << 20):
                pass
        except BlockingIOError:
            pass
        return bool(felt)

    until(loop, receive)
    assert felt == ["drained"] and not stream.congested and stream.out_bytes <= 10_000
    stream.close()
    until(loop, lambda: ended)
    assert ended == [None]
    loop.close()


def test_close_sends_what_is_unsent_first() -> None:
    loop = Loop()
    stream, theirs, ended = pair(loop)
    stream.send(b"last words")
    stream.close()
    stream.send(b"too late")
    until(loop, lambda: ended)
    assert theirs.recv(100) == b"last words" and theirs.recv(100) == b""
    loop.close()


def test_end_hears_the_peer_out() -> None:
    """Unread bytes would make the kernel reset the connection, and drop the last ones sent."""
    loop = Loop()
    heard: list[bytes] = []
    stream, theirs, ended = pair(loop, heard.append)
    stream.send(b"last words")
    stream.end()
    stream.send(b"too late")
    theirs.send(b"still talking")
    for _ in range(3):
        loop.run_turn(0)
    theirs.send(b"and talking")
    loop.run_turn(0)
    assert theirs.recv(100) == b"last words" and theirs.recv(100) == b""
    assert heard == [] and not ended
    theirs.close()
    until(loop, lambda: ended == [None])
    loop.close()


def test_end_of_a_peer_that_never_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren_raft.runtime.net.stream.CLOSE_LINGER_MS", 30)
    loop = Loop()
    stream, theirs, ended = pair(loop)
    stream.end()
    assert not ended
    until(loop, lambda: ended)
    theirs.close()
    loop.close()


def test_a_peer_that_hangs_up_itself_sees_no_end_before() -> None:
    loop = Loop()
    heard: list[bytes] = []
    stream, theirs, ended = pair(loop, heard.append)
    theirs.setblocking(False)
    stream.send(b"close-ok")
    stream.await_hang_up(60_000)
    theirs.send(b"still talking")
    for _ in range(3):
        loop.run_turn(0)
    assert theirs.recv(100) == b"close-ok"
    with pytest.raises(BlockingIOError):
        theirs.recv(100)
    assert heard == [] and not ended
    theirs.close()
    until(loop, lambda: ended == [None])
    loop.close()


def test_a_peer_that_should_hang_up_and_does_not_is_closed() -> None:
    loop = Loop()
    stream, theirs, _ = pair(loop)
    stream.send(b"close-ok")
    stream.await_hang_up(30)
    theirs.settimeout(0)
    got: list[bytes] = []

    def closed() -> bool:
        try:
            got.append(theirs.recv(100))
        except BlockingIOError:
            return False
        return got[-1] == b""

    until(loop, closed)
    assert got == [b"close-ok", b""]
    theirs.close()
    loop.close()


def test_an_end_does_not_wait_for_the_hang_up() -> None:
    loop = Loop()
    stream, theirs, ended = pair(loop)
    stream.await_hang_up(60_000)
    stream.end()
    assert theirs.recv(100) == b""
    theirs.close()
    until(loop, lambda: ended == [None])
    loop.close()


def test_a_paused_stream_takes_nothing_but_notices_its_end() -> None:
    loop = Loop()
    heard: list[bytes] = []
    stream, theirs, ended = pair(loop, heard.append)
    stream.pause_reading()
    theirs.send(b"x")
    for _ in range(3):
        loop.run_turn(0)
    assert heard == []
    stream.resume_reading()
    until(loop, lambda: heard == [b"x"])
    stream.pause_reading()
    theirs.close()
    until(loop, lambda: ended)
    loop.close()


def test_a_listener_hands_over_connections_and_a_taken_port_is_named() -> None:
    loop = Loop()
    accepted: list[socket.socket] = []
    listener = Listener(loop, ("127.0.0.1", 0), lambda sock, address: accepted.append(sock))
    clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(3)]
    until(loop, lambda: len(accepted) == 3)
    with pytest.raises(OSError, match=rf"cannot listen on 127.0.0.1:{listener.port}"):
        listen(("127.0.0.1", listener.port))
    listener.close()
    for sock in (*clients, *accepted):
        sock.close()
    loop.close()


def test_localhost_is_every_address_it_stands_for() -> None:
    sockets = listen(("localhost", 0))
    assert len({sock.getsockname()[1] for sock in sockets}) == 1
    for sock in sockets:
        sock.close()
