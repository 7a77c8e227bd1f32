"""The connections between simulated nodes: in order, at most once, broken and made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from warren_raft import messages as raft_messages
from warren_raft.runtime.config import Address, HostConfig
from warren_raft.runtime.net.handshake import SecondProcess
from warren_raft.storage.errors import DirectoryOutdated, WriteFailed

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World


class Link:
    """One pair of nodes.

    live     bytes travel; epoch counts the connections, what belongs to an older one is lost
    believes which of the two still takes it for established
    cut      the ends of which no bytes get through; one end only: a half-open way
    stalled  while it is cut: what was sent, in order
    spoke    the node that has sent something since its last heartbeat
    told     on this connection: the last write of the log that each end has told of
    """

    def __init__(self, one: str, other: str) -> None:
        self.ends = (one, other)
        self.live = False
        self.epoch = 0
        self.believes = {one: False, other: False}
        self.cut = {one: False, other: False}
        self.cut_for_good = False
        self.stalled: list[tuple[str, Callable[[Process], None]]] = []
        self.free_at = {one: 0, other: 0}
        self.spoke = {one: False, other: False}
        self.told = {one: 0, other: 0}
        self.read_ms = {one: 0, other: 0}

    @property
    def blocked(self) -> bool:
        """Check that no connection is possible: something does not get through."""
        return any(self.cut.values())

    def peer(self, name: str) -> str:
        """The other end."""
        return self.ends[0] if self.ends[1] == name else self.ends[1]


class Wire:
    """All links of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        names = world.names
        self.links = {
            frozenset((a, b)): Link(a, b) for at, a in enumerate(names) for b in names[at + 1 :]
        }
        self.carried = 0
        self.transports: dict[str, SimulatedTransport] = {}

    def of(self, one: str, other: str) -> Link:
        """The link of two nodes."""
        return self.links[frozenset((one, other))]

    def links_of(self, name: str) -> list[Link]:
        """Every link of a node, in a fixed order."""
        return [link for link in self.links.values() if name in link.ends]

    # ------------------------------------------------------------------ carrying

    def send(self, sender: str, link: Link, act: Callable[[Process], None]) -> None:
        """`act` on the other end, later; lost when the connection is."""
        link.spoke[sender] = True
        if not link.live:
            return
        if link.cut[sender]:
            link.stalled.append((sender, act))
            return
        self.world.agenda.at(
            self.arrives(sender, link), self.arrive, link, link.epoch, link.peer(sender), act
        )

    def arrives(self, sender: str, link: Link) -> int:
        """When what is sent now is there: after what was sent before."""
        low, high = self.world.profile.latency_ms
        at_ms = self.world.agenda.now_ms + low + int(self.rng.random() * (high + 1 - low))
        link.free_at[sender] = at_ms = max(at_ms, link.free_at[sender])
        return at_ms

    def beat(self, sender: str, link: Link) -> None:
        """A sign of life, and how far the log is, where nothing else was sent that says so."""
        spoke, link.spoke[sender] = link.spoke[sender], False
        if not link.live or link.cut[sender]:
            return
        news = self.news(sender, link)
        if news is not None:
            self.send(sender, link, news)
        elif not spoke:
            to = link.peer(sender)
            self.world.agenda.at(self.arrives(sender, link), self.heard, link, link.epoch, to)

    def news(self, sender: str, link: Link) -> Callable[[Process], None] | None:
        """How far the sender's log is, for the other end to hear; None: it knows."""
        host = self.transports[sender].owner
        write = host.position()
        if write == link.told[sender]:
            return None
        link.told[sender] = write
        disk, boot_id = host.disk, host.boot_id
        return lambda process: process.host.on_position(sender, disk, write, boot_id)

    def heard(self, link: Link, epoch: int, to: str) -> None:
        """It is there; nothing else happens with it."""
        process = self.world.processes[to].running
        if epoch == link.epoch and process is not None:
            if self.world.agenda.now_ms < process.paused_until:
                process.inject(lambda: self.read(link, epoch, process, lambda process: None))
            else:
                link.read_ms[to] = self.world.agenda.now_ms

    def arrive(self, link: Link, epoch: int, to: str, act: Callable[[Process], None]) -> None:
        """At the other end."""
        process = self.world.processes[to].running
        if epoch == link.epoch and process is not None:
            self.carried += 1
            process.inject(lambda: self.read(link, epoch, process, act))

    def read(
        self, link: Link, epoch: int, process: Process, act: Callable[[Process], None]
    ) -> None:
        """The process takes it off the socket; a reset since has dropped it."""
        if epoch == link.epoch:
            link.read_ms[process.name] = process.clock.monotonic_ms()
            act(process)

    # ------------------------------------------------------------------ connecting

    def connect_later(self, link: Link, delay_ms: int | None = None) -> None:
        """Try to connect."""
        if delay_ms is None:
            delay_ms = self.rng.randrange(5, 80)
        self.world.agenda.after(delay_ms, self.connect, link)

    def connect(self, link: Link) -> None:
        """Both ends are there, and nothing is in the way: a new connection."""
        ends = [self.world.processes[name].running for name in link.ends]
        if link.live or None in ends or not self.known(link):
            return
        if link.blocked or self.judged(link) is not None:
            self.connect_later(link, 200)
            return
        link.live = True
        link.epoch += 1
        link.stalled.clear()
        link.told = dict.fromkeys(link.ends, 0)
        epoch = link.epoch
        for process, other in zip(ends, reversed(ends), strict=True):
            process.inject(
                lambda process=process, other=other: self.up(link, epoch, process, other)
            )

    def known(self, link: Link) -> bool:
        """One of the two would call the other."""
        one, other = link.ends
        return other in self.transports[one].peers or one in self.transports[other].peers

    def judged(self, link: Link) -> str | None:
        """Why one of the two will not have the other; None: they will."""
        for name in link.ends:
            own, other = self.transports[name], self.transports[link.peer(name)]
            try:
                reason = own.owner.judge(other.owner.greeting(name))
            except DirectoryOutdated as error:
                reason = str(error)
                self.world.processes[name].outdated(error)
            except SecondProcess as error:
                # The process before it has died, and this end has not heard so yet.
                reason = str(error)
            except WriteFailed as error:
                self.world.processes[name].write_failed(error)
                return str(error)
            if reason is not None:
                self.world.note("refused", name, link.peer(name), reason)
                return str(reason)
        return None

    def hang_up(self, name: str, peer: str) -> None:
        """One end is to have nothing to do with the other any more."""
        link = self.of(name, peer)
        if link.believes[name]:
            link.believes[name] = False
            if link.live:
                self.broken(link)
            self.transports[name].owner.on_down(peer)

    def up(self, link: Link, epoch: int, process: Process, other: Process) -> None:
        """One end hears that the connection stands."""
        if epoch != link.epoch:
            return
        if link.believes[process.name]:
            process.host.on_down(other.name)
        link.believes[process.name] = True
        link.read_ms[process.name] = process.clock.monotonic_ms()
        self.transports[process.name].met(other.name)
        address = other.host.config.listen
        process.host.on_met(other.host.greeting(process.name), address)
        process.host.on_up(other.name, other.boot_id)

    def broken(self, link: Link, silent: bool = False) -> None:
        """End the connection; `silent`: no side is told, only heartbeats can show it."""
        link.live = False
        link.epoch += 1
        link.stalled.clear()
        for name in link.ends:
            process = self.world.processes[name].running
            if process is not None and not silent and not link.cut[link.peer(name)]:
                delay = self.rng.randrange(30)
                self.world.agenda.after(delay, self.tell_down, link, link.epoch, process)
        if not silent:
            self.connect_later(link)

    def tell_down(self, link: Link, epoch: int, process: Process) -> None:
        """One end is told that it ended."""
        if epoch == link.epoch:
            process.inject(lambda: self.down(link, epoch, process))

    def down(self, link: Link, epoch: int, process: Process) -> None:
        """Tell one end that it ended, and, calling again, whether a process listens there."""
        if epoch != link.epoch or not link.believes[process.name]:
            return
        link.believes[process.name] = False
        other = link.peer(process.name)
        process.host.on_down(other)
        if process.name < other and self.world.processes[other].running is None:
            process.host.on_refused(other)

    def died(self, name: str, silent: bool) -> None:
        """A node's process is gone."""
        for link in self.links_of(name):
            link.believes[name] = False
            self.broken(link, silent)

    def began(self, name: str) -> None:
        """A node's process is there."""
        for link in self.links_of(name):
            link.live = False
            link.believes[name] = False
            self.connect_later(link)

    def renew(self, link: Link, epoch: int, process: Process) -> None:
        """One end has heard nothing for long: the side that calls does so beside the old
        connection, the other one ends it."""
        if epoch != link.epoch or process.dead or not link.believes[process.name]:
            return
        if process.name > link.peer(process.name):
            self.broken(link, silent=True)
            broken = link.epoch
            process.inject(lambda: self.down(link, broken, process))
            self.connect_later(link)
        elif link.blocked:
            self.world.agenda.after(200, self.renew, link, epoch, process)
        else:
            self.broken(link, silent=True)
            self.connect_later(link)

    # ------------------------------------------------------------------ cutting

    def cut(self, link: Link, for_ms: int, sender: str | None = None) -> None:
        """Nothing gets through for a while, or nothing from `sender`; then it does, late, or the
        connection is gone."""
        for name in link.ends:
            link.cut[name] = link.cut[name] or sender in (None, name)
        self.world.agenda.after(for_ms, self.heal, link)

    def heal(self, link: Link) -> None:
        """The way is free again."""
        if not link.blocked or link.cut_for_good:
            return
        link.cut = dict.fromkeys(link.ends, False)
        stalled, link.stalled = link.stalled, []
        if not link.live:
            self.connect_later(link)
        elif self.rng.random() < 0.5:
            self.broken(link)
        else:
            for sender, act in stalled:
                self.send(sender, link, act)


class SimulatedTransport:
    """What a host takes for its transport."""

    def __init__(self, world: World, config: HostConfig, owner: Any) -> None:
        self.world = world
        self.owner = owner
        self.name = config.node
        self.port = config.listen[1]
        self.peers: list[str] = []
        self.wire = world.wire

    def start(self) -> None:
        """The world connects."""

    def close(self) -> None:
        """The world knows."""

    def add_peer(self, node: str, address: Address) -> None:
        """Call it from now on."""
        if node not in self.peers:
            self.peers.append(node)
            link = self.wire.of(self.name, node)
            if not link.live:
                self.wire.connect_later(link)

    def met(self, node: str) -> None:
        """Take the caller for a peer."""
        if node not in self.peers:
            self.peers.append(node)

    def remove_peer(self, node: str) -> None:
        """End the connection, call it no more."""
        if node in self.peers:
            self.peers.remove(node)
            self.wire.hang_up(self.name, node)

    def up(self, node: str) -> bool:
        """This end takes the connection for established; there is none to oneself."""
        return node != self.name and self.wire.of(self.name, node).believes[self.name]

    def send_raft(
        self, node: str, batch: Sequence[raft_messages.AnyRaftMessage], now: bool = False
    ) -> bool:
        """As bytes when the world says so."""
        if not self.up(node):
            return False
        sender, given = self.name, list(batch)
        process = self.world.processes[sender].running
        assert process is not None
        for message in given:
            self.world.checkers.sent(process, message)
        if self.world.profile.codec:
            given = [raft_messages.decode(raft_messages.encode(message)) for message in given]
        link = self.wire.of(sender, node)
        news = self.wire.news(sender, link) if link.live else None

        def received(process: Process) -> None:
            if news is not None:  # of the write that the messages rest on
                news(process)
            process.host.on_raft(sender, given)

        self.wire.send(sender, link, received)
        return False

    def send_message(self, node: str, buffers: Sequence[Any]) -> bool:
        """An application message."""
        if not self.up(node):
            return False
        sender, body = self.name, b"".join(buffers)
        self.wire.send(
            sender,
            self.wire.of(sender, node),
            lambda process: process.host.on_message(sender, memoryview(body)),
        )
        return True

    def tell_condition(self, node: str | None, condition: int) -> None:
        """With the next heartbeat's luck."""
        sender = self.name
        for peer in self.peers if node is None else [node]:
            if self.up(peer):
                self.wire.send(
                    sender,
                    self.wire.of(sender, peer),
                    lambda process: process.host.on_condition(sender, condition),
                )

    def backlog_bytes(self, node: str) -> int:
        """The kernel takes everything."""
        return 0

    def renew(self, node: str) -> None:
        """The connection has been silent for long."""
        link = self.wire.of(self.name, node)
        process = self.world.processes[self.name].running
        assert process is not None
        self.wire.renew(link, link.epoch, process)

    def heard_again(self, node: str) -> None:
        """What was begun beside the old connection replaces it: a reset is harmless."""

    def heartbeat(self) -> list[tuple[str, int]]:
        """A sign of life on every connection; when each peer was last heard."""
        heard = []
        for node in self.peers:
            link = self.wire.of(self.name, node)
            if link.believes[self.name]:
                self.wire.beat(self.name, link)
                heard.append((node, link.read_ms[self.name]))
        return heard
