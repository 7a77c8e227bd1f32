"""The network between simulated nodes: what the product's own transport takes for sockets.

A connection carries bytes in order, as TCP does; it is reset, or carries nothing any more without
a word. Handshakes, calls, frames and renewals are the product's.
"""

from __future__ import annotations

import collections
import errno
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from warren_raft.runtime.loop import READ, Loop, LoopTimer, WatchedSocket
from warren_raft.runtime.net.dial import Outcome

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

SUSPECTED_AFTER_BEATS = 5
"""A node suspects a peer that it has not heard for so many intervals of heartbeats."""
SYN_AGAIN_MS = 200
"""So long a caller waits that had no answer, until it asks again."""
LAG_MS_MAX = 2_000
"""After a cut a connection may stay silent for so long: TCP doubles its pause each time."""
TOLD_MS_MAX = 30


class Link:
    """The way between two nodes.

    cut       the ends of which no bytes get through; one end only: a half-open way
    stalled   while it is cut: what was sent, in order
    """

    def __init__(self, one: str, other: str) -> None:
        self.ends = (one, other)
        self.cut = {one: False, other: False}
        self.cut_for_good = False
        self.stalled: list[tuple[Socket, bytes | Exception]] = []

    @property
    def blocked(self) -> bool:
        """Check that no connection is possible: something does not get through."""
        return any(self.cut.values())

    def peer(self, name: str) -> str:
        """The other end."""
        return self.ends[0] if self.ends[1] == name else self.ends[1]


class Ended(Exception):
    """The other side has sent its last byte."""


class Socket:
    """One end of a connection, as `Stream` uses a socket; the system takes all that is sent.

    lost     nothing gets through any more, in either direction
    inbox    received and not read: bytes, in the end why there are no more
    free_at  when what is sent next arrives at the earliest
    """

    family = None

    def __init__(self, process: Process, link: Link, wire: Wire) -> None:
        self.process = process
        self.name = process.name
        self.link = link
        self.wire = wire
        self.peer: Socket
        self.inbox: collections.deque[bytes | Exception] = collections.deque()
        self.watch: Watch | None = None
        self.closed = self.lost = False
        self.free_at = 0

    # What `Stream` and `Transport` call.

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *option: int) -> None:
        """Its buffers are as large as they need be."""

    def getsockopt(self, *option: int) -> int:
        """No error."""
        return 0

    def fileno(self) -> int:
        """Low enough to be accepted."""
        return 0

    def getpeername(self) -> tuple[str, int]:
        """The other node's address."""
        return self.wire.world.addresses[self.peer.name], 0

    def sendmsg(self, buffers: Iterable[Any]) -> int:
        """See socket."""
        return self.send(b"".join(buffers))

    def send(self, data: bytes) -> int:
        """See socket."""
        if self.inbox and isinstance(self.inbox[-1], OSError):
            raise self.inbox[-1]
        self.wire.carry(self, data)
        return len(data)

    def recv(self, size: int) -> bytes:
        """See socket."""
        if not self.inbox:
            raise BlockingIOError
        first = self.inbox[0]
        if isinstance(first, Ended):
            return b""
        if isinstance(first, Exception):
            raise first
        if len(first) > size:
            self.inbox[0] = first[size:]
        else:
            self.inbox.popleft()
        return first[:size]

    def recv_into(self, room: memoryview) -> int:
        """See socket."""
        data = self.recv(len(room))
        room[: len(data)] = data
        return len(data)

    def shutdown(self, how: int) -> None:
        """See socket; no peer is told so while it is to be sent more."""
        self.wire.carry(self, Ended())

    def close(self) -> None:
        """See socket."""
        if not self.closed:
            self.closed = True
            self.watch = None
            self.wire.carry(self, Ended())
            self.wire.forget(self)

    # What the network calls.

    def arrived(self, item: bytes | Exception) -> None:
        """Hand it to the process, which reads it in its next turn."""
        self.inbox.append(item)
        self.process.inject(self.ready)

    def ready(self) -> None:
        """Let the process read once, as its loop would; what it leaves comes in the next turn."""
        watch = self.watch
        if watch is None or not self.inbox or not watch.events & READ:
            return
        try:
            watch.readable()
        except Exception as error:
            if watch.on_error is None:
                raise
            watch.on_error(error)
        if self.watch is not None and self.inbox:
            self.process.inject(self.ready)


class Watch(WatchedSocket):
    """A socket that a loop watches."""

    def __init__(self, loop: Loop, sock: Socket, *calls: Any) -> None:
        super().__init__(loop, 0, *calls)
        self.sock = sock
        sock.watch = self
        if sock.inbox:
            sock.process.inject(sock.ready)

    def watch(self, events: int) -> None:
        """See WatchedSocket."""
        self.events = events
        self.sock.process.inject(self.sock.ready)

    def close(self) -> None:
        """See WatchedSocket."""
        self.sock.watch = None


class SimulatedListener:
    """A node's port for peers; see `loop.Listener`."""

    def __init__(
        self, process: Process, address: tuple[str, int], on_accept: Callable[[Any, Any], None]
    ) -> None:
        self.process = process
        self.port = address[1]
        self.on_accept = on_accept
        self.wire = process.world.wire
        self.wire.listeners[process.name] = self

    def accept(self, sock: Socket) -> None:
        """Pass it on, or close it."""
        if self.wire.listeners.get(self.process.name) is self:
            self.on_accept(sock, sock.getpeername())
        else:
            sock.close()

    def close(self) -> None:
        """See Listener."""
        if self.wire.listeners.get(self.process.name) is self:
            del self.wire.listeners[self.process.name]


class SimulatedConnector:
    """One attempt to connect; see `dial.Connector`."""

    def __init__(
        self, process: Process, address: tuple[str, int], timeout_ms: int, done: Outcome
    ) -> None:
        self.process = process
        self.wire = process.world.wire
        self.to = self.wire.node_at(address[0])
        self.done: Outcome | None = done
        self.timer: LoopTimer = process.loop.call_later(timeout_ms, self._timed_out)
        self._ask()

    def cancel(self) -> None:
        """See Connector."""
        self.done = None
        self.timer.cancel()

    def _ask(self) -> None:
        if self.done is None or self.process.dead:
            return
        wire, agenda = self.wire, self.process.world.agenda
        if wire.of(self.process.name, self.to).blocked or self.to in wire.off:
            agenda.after(SYN_AGAIN_MS, self._ask)
        else:
            agenda.after(wire.latency_ms(), self._asked)

    def _asked(self) -> None:
        if self.done is None or self.process.dead:
            return
        agenda, listener = self.process.world.agenda, self.wire.listeners.get(self.to)
        if listener is None:
            refused = OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            agenda.after(self.wire.latency_ms(), self._answer, refused)
            return
        caller, called = self.wire.connect(self.process, listener.process)
        listener.process.inject(lambda: listener.accept(called))
        agenda.after(self.wire.latency_ms(), self._answer, caller)

    def _answer(self, outcome: Any) -> None:
        self.process.inject(lambda: self._finish(outcome))

    def _timed_out(self) -> None:
        self._finish(OSError(errno.ETIMEDOUT, "no answer to the attempt to connect"))

    def _finish(self, outcome: Any) -> None:
        done, self.done = self.done, None
        self.timer.cancel()
        if done is not None:
            done(outcome)
        elif isinstance(outcome, Socket):
            outcome.close()


class Wire:
    """All links of a world, and the connections on them.

    off  machines without power: they answer nothing
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        names = world.names
        self.links = {
            frozenset((a, b)): Link(a, b) for at, a in enumerate(names) for b in names[at + 1 :]
        }
        self.listeners: dict[str, SimulatedListener] = {}
        self.sockets: dict[str, list[Socket]] = {name: [] for name in names}
        self.off: set[str] = set()

    def of(self, one: str, other: str) -> Link:
        """The link of two nodes."""
        return self.links[frozenset((one, other))]

    def links_of(self, name: str) -> list[Link]:
        """Every link of a node, in a fixed order."""
        return [link for link in self.links.values() if name in link.ends]

    def node_at(self, address: str) -> str:
        """The node with that address."""
        return next(name for name, host in self.world.addresses.items() if host == address)

    def latency_ms(self) -> int:
        """How long something is on its way."""
        low, high = self.world.profile.latency_ms
        return low + int(self.rng.random() * (high + 1 - low))

    def connected(self, link: Link) -> list[Socket]:
        """The sockets of the first end of a link."""
        one, other = link.ends
        return [sock for sock in self.sockets[one] if sock.peer.name == other]

    # ------------------------------------------------------------------ carrying

    def connect(self, caller: Process, called: Process) -> tuple[Socket, Socket]:
        """Make a connection."""
        link = self.of(caller.name, called.name)
        ends = Socket(caller, link, self), Socket(called, link, self)
        for end, other in zip(ends, reversed(ends), strict=True):
            end.peer = other
            self.sockets[end.name].append(end)
        return ends

    def forget(self, sock: Socket) -> None:
        """It is closed."""
        if sock in self.sockets[sock.name]:
            self.sockets[sock.name].remove(sock)

    def carry(self, sender: Socket, item: bytes | Exception) -> None:
        """Bring it to the other end, after what was sent before."""
        if sender.lost:
            return
        if sender.link.cut[sender.name]:
            sender.link.stalled.append((sender, item))
            return
        at_ms = self.world.agenda.now_ms + self.latency_ms()
        sender.free_at = at_ms = max(at_ms, sender.free_at)
        self.world.agenda.at(at_ms, self._arrive, sender.peer, item)

    def _arrive(self, to: Socket, item: bytes | Exception) -> None:
        if to.lost or to.name in self.off:
            return
        if not to.process.dead and not to.closed:
            to.arrived(item)
        elif isinstance(item, bytes):
            self.reset(to.peer)  # there is no such connection, says the other machine

    def reset(self, sock: Socket) -> None:
        """Tell one end that the connection is gone; what it has not read is."""
        sock.lost = sock.peer.lost = True
        if not sock.closed and not sock.process.dead:
            sock.inbox.clear()
            sock.arrived(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def broken(self, link: Link, silent: bool = False) -> None:
        """End the connections; `silent`: no side is told, only heartbeats can show it."""
        link.stalled.clear()
        for sock in self.connected(link):
            for end in (sock, sock.peer):
                end.lost = True
                if not silent and not link.cut[end.peer.name]:
                    self.world.agenda.after(self.rng.randrange(TOLD_MS_MAX), self.reset, end)

    def died(self, name: str, silent: bool) -> None:
        """A node's process has ended; `silent`: with its machine."""
        self.listeners.pop(name, None)
        if silent:
            self.off.add(name)
        sockets, self.sockets[name] = self.sockets[name], []
        for sock in sockets:
            sock.closed = True
            if silent:
                continue
            if self.rng.random() < 0.5:
                self.carry(sock, ConnectionResetError(errno.ECONNRESET, "after the last byte"))
            elif not sock.lost and not sock.link.cut[name]:
                self.world.agenda.after(self.rng.randrange(TOLD_MS_MAX), self.reset, sock.peer)

    def began(self, name: str) -> None:
        """A node's process is there."""
        self.off.discard(name)

    # ------------------------------------------------------------------ cutting

    def cut(self, link: Link, for_ms: int, sender: str | None = None) -> None:
        """Nothing gets through for a while, or nothing from `sender`; then it does, late, or the
        connection is gone."""
        self.silence(link, sender)
        self.world.agenda.after(for_ms, self.heal, link)

    def silence(self, link: Link, sender: str | None) -> None:
        """Let nothing through, or nothing from `sender`."""
        for name in link.ends:
            link.cut[name] = link.cut[name] or sender in (None, name)

    def heal(self, link: Link) -> None:
        """The way is free again."""
        if not link.blocked or link.cut_for_good:
            return
        dice = self.rng.random()
        if dice < 0.5:
            link.cut = dict.fromkeys(link.ends, False)
            self.broken(link)
        else:
            self.speak(link, self.rng.randrange(LAG_MS_MAX) if dice < 0.7 else 0)

    def speak(self, link: Link, lag_ms: int = 0) -> None:
        """The way is free, and what was sent meanwhile comes; at the earliest after lag_ms."""
        if link.cut_for_good:
            return
        link.cut = dict.fromkeys(link.ends, False)
        stalled, link.stalled = link.stalled, []
        until_ms = self.world.agenda.now_ms + lag_ms
        for sock in self.connected(link):
            for end in (sock, sock.peer):
                end.free_at = max(end.free_at, until_ms)
        for sock, item in stalled:
            self.carry(sock, item)
