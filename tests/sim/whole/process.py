"""One simulated node: its machine, and the process that runs on it for a while."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from sim.checkers import Violation, require
from sim.whole.files import MemoryFiles
from sim.whole.sync import SimulatedBackgroundWriter, SimulatedWal
from sim.whole.wire import SUSPECTED_AFTER_BEATS, Socket, Watch
from warren_broker.broker.broker import Broker
from warren_broker.config import Limits, Listen, NodeConfig, Queues
from warren_raft.errors import StorageError
from warren_raft.machine import Applied, Meta
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.host import Host, MessageHandler
from warren_raft.runtime.loop import READ, Loop
from warren_raft.runtime.observer import Observer
from warren_raft.storage import synced_mark
from warren_raft.storage.errors import DirectoryOutdated, WriteFailed
from warren_raft.storage.format import (
    FILE_HEADER_BYTES,
    Damaged,
    RecordKind,
    decode_file_header,
    decode_record,
)
from warren_raft.storage.identity import WAL
from warren_raft.storage.wal import file_name, file_number
from warren_raft.types import Membership
from warren_raft.versions import VersionNeeded

if TYPE_CHECKING:
    from sim.whole.world import World

DATA_DIR = Path("/sim")
PORT = 25_672
TURNS_AT_ONCE_MAX = 2_000
"""Where a write needs no time, each message that an operator retries is a turn or two."""
RESTART_MS = 300
IMAGES_MAX = 3
DISCONNECTED_MS = 12_000
"""So long a consumer keeps what it holds on a suspected node: longer than any way is cut."""
LETTERS_RETRY_MS = 500
"""So long a dead letter without a taker waits until it is tried again."""
KEPT = ("/lock", "/node.json")
"""Files that no damage strikes: nothing could heal the name of a node."""


class SimulatedLoop(Loop):
    """A loop that looks at no descriptors: a poster wakes it up by other means, and so do the
    sockets of the simulated network."""

    def register(self, fd: Any, *calls: Any, **named: Any) -> Any:
        """See Loop."""
        if isinstance(fd, Socket):
            return Watch(self, fd, *calls, READ)
        return super().register(fd, *calls, **named)

    def post(self, call: Callable[[], None]) -> None:
        """See Loop."""
        self._posted.append(call)

    def run_turn(self, timeout_ms: int | None) -> None:
        """See Loop; it never waits."""
        self.turn += 1
        self.now_ms = self.clock.monotonic_ms()
        self._run_calls(self._posted)
        self._run_timers()
        self._run_calls(self._soon)
        self._run_stages()


class SimulatedClock:
    """A node's clock, as SystemClock makes it: the wall's steps forward are followed."""

    def __init__(self, machine: Machine) -> None:
        self.agenda = machine.world.agenda
        self.machine = machine
        self.offset_ms = machine.skew_ms

    def monotonic_ms(self) -> int:
        """See Clock."""
        return self.agenda.now_ms

    def epoch_ms(self) -> int:
        """See Clock."""
        if self.machine.skew_ms > self.offset_ms:
            self.offset_ms = self.machine.skew_ms
        return self.agenda.now_ms + self.offset_ms


class Ear:
    """The host's observer: the checkers hear first, then the cluster."""

    def __init__(self, process: Process, cluster: Observer) -> None:
        self.process = process
        self.cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    def applied(self, group: int, meta: Meta, data: bytes, applied: Applied, leading: bool) -> None:
        """See Observer."""
        world = self.process.world
        world.checkers.applied(self.process, group, meta, data, applied)
        world.programs.applied(self.process, group, data)
        self.cluster.applied(group, meta, data, applied, leading)
        world.programs.looked(self.process)

    def leader_changed(self, group: int, leader: str | None, term: int, leading: bool) -> None:
        """See Observer."""
        self.process.world.checkers.leader(self.process, group, term, leading)
        self.cluster.leader_changed(group, leader, term, leading)

    def restored(self, group: int) -> None:
        """See Observer."""
        self.process.world.checkers.restored(self.process, group)
        self.cluster.restored(group)
        self.process.world.programs.looked(self.process)

    def members_changed(self, group: int, membership: Membership) -> None:
        """See Observer."""
        self.process.world.checkers.members_changed(self.process, group, membership)
        self.cluster.members_changed(group, membership)


def last_batch(data: bytes) -> int:
    """Where the last write of a file of the log begins that is whole; 0: there is none."""
    offset, begins, batch, complete = FILE_HEADER_BYTES, 0, 0, 0
    try:
        _, salt, _ = decode_file_header(data)
        while offset < len(data):
            record = decode_record(salt, data, offset)
            if record.batch != batch:
                begins, batch = offset, record.batch
            offset = record.end
            if record.kind is RecordKind.BATCH_END:
                complete = begins
    except Damaged:
        pass
    return complete


class Machine:
    """A computer with a disk and a clock; `running` is the process on it.

    jumped_ms  how far its clock was set forward in all
    stops      how often a process stopped by itself, because of the disk
    disks      how many disks it has had
    damaged    its disk does not hold what was written any more
    hung_until its disk takes what is written, and no sync of it returns before that
    images     copies of its disk that an operator made
    to_copy    a copy was made of its disk, and will be put back
    copying    it stays down until an older copy of its disk is there, see `OlderCopy`; or until
               the disk says that it is one
    aged       its disk is an older copy of what it was, and no node has noticed: that disk's id
    noticed    a node has, and only `node.json` says so until the next start sets the copy aside
    absent     it is not there yet; gone: it has left the cluster, for good
    lost_for_good  it is one of a minority that never becomes well again
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.rng = Random(world.rng.randrange(1 << 48))
        self.files = MemoryFiles(self.rng, world.profile.sector_bytes)
        self.files.kernel.on_names = lambda unsynced: world.checkers.directories.named(
            self, unsynced
        )
        skew = world.profile.skew_ms
        self.skew_ms = self.rng.choice((0, self.rng.randrange(-skew, skew))) if skew else 0
        self.jumped_ms = 0
        self.running: Process | None = None
        self.lives = 0
        self.stops = 0
        self.disks = 1
        self.damaged = False
        self.absent = False
        self.gone = False
        self.lost_for_good = False
        self.slow_until = 0
        self.hung_until = 0
        self.images: list[dict[str, bytes]] = []
        self.to_copy = self.copying = False
        self.aged = 0
        self.noticed = False

    def peers(self) -> list[str]:
        """The other nodes that its configuration names: a joiner knows some, which know nothing
        of it."""
        founders = self.world.names[: self.world.profile.nodes]
        if self.name in founders:
            return [name for name in founders if name != self.name]
        return founders[-2:]

    def sync_ms(self) -> int:
        """How long the next sync takes."""
        took = self.rng.randrange(*self.world.profile.sync_ms)
        now_ms = self.world.agenda.now_ms
        return took * (10 if now_ms < self.slow_until else 1) + max(0, self.hung_until - now_ms)

    def start(self) -> None:
        """Start a process, if there is none."""
        if self.running is not None or self.gone or self.lost_for_good or self.copying:
            return
        self.absent = False
        self.lives += 1
        self.running = Process(self)
        try:
            self.running.start()
        except OSError as error:
            self.refused()
            require(self.files.kernel.refused > 0, "a start failed", self.name, error)
            self.world.agenda.after(RESTART_MS, self.start)
        except VersionNeeded as error:
            self.world.programs.needed(self, error)
        except StorageError as error:
            self.refused()
            require(self.damaged, "a node cannot start", self.name, str(error))
            self.world.note("refused", self.name, str(error))
            self.lose_disk()  # as the refusal says: give it an empty directory
            self.start()

    def refused(self) -> None:
        """A process could not begin."""
        process, self.running = self.running, None
        assert process is not None
        process.dead = True
        process.loop.close()
        self.world.wire.died(self.name, silent=False)
        self.files.crash()

    def lose_disk(self) -> None:
        """Another disk, an empty one, is put in its place."""
        assert self.running is None, self.name
        self.world.note("wiped", self.name)
        self.files.lose()
        self.images.clear()
        self.disks += 1
        self.damaged = self.noticed = False
        self.aged = 0

    def some_file(self, rng: Random) -> str | None:
        """A file of the log, with something in it that may rot; None: there is none."""
        if not self.files.exists(DATA_DIR / WAL):
            return None
        paths = [
            path for path in self.files.paths() if not path.endswith(KEPT) and self.rots_below(path)
        ]
        newest = self.newest_log()
        if newest in paths and rng.random() < 0.4:
            return newest  # on which the most rests
        return rng.choice(paths) if paths else None

    def newest_log(self) -> str:
        """The newest file of the log."""
        wal = DATA_DIR / WAL
        names = self.files.names(wal) if self.files.exists(wal) else []
        return str(wal / file_name(max([file_number(name) or 0 for name in names], default=0)))

    def older(self, path: str) -> list[bytes]:
        """What that file once held."""
        now = self.files.safe_bytes(path) if path in self.files.paths() else None
        held = [image[path] for image in self.images if path in image]
        held += [self.files.kernel.former[path]] if path in self.files.kernel.former else []
        return [data for data in held if data != now]

    def rots_below(self, path: str) -> int:
        """So many bytes of it may be damaged.

        In the log's newest file those that are known to have been on disk: damage to what was
        written last cannot be told from a torn write, unless `synced` says where the log ended, or
        a later write is whole. What says so is damaged only while nothing else is.
        """
        wal = DATA_DIR / WAL
        if path in (str(wal / synced_mark.NAME), str(DATA_DIR / synced_mark.NAME)) and self.damaged:
            return 0
        data = self.files.safe_bytes(path)
        files = [file_number(name) or 0 for name in self.files.names(wal)]
        if path != str(wal / file_name(max(files, default=0))):
            return len(data)
        known = synced_mark.read(self.files, wal)
        end = min(len(data), known.end) if path == str(wal / file_name(known.file)) else 0
        return end if self.damaged else max(end, last_batch(data))

    def crash(self, silent: bool, power: bool | None = None) -> None:
        """Cut the power of this machine; or end the process alone, while the system runs on."""
        if power is None:
            power = self.rng.random() < 0.5
        process, self.running = self.running, None
        if process is not None:
            self.world.note("crash", self.name, silent)
            process.dead = True
            process.loop.close()
            self._cut_short(process.wal, 8)
            self._cut_short(process.background_writer, 30)
            if not power:
                self.files.kill()
            self.world.wire.died(self.name, silent)
        if self.name in self.world.profile.unlucky and len(self.images) < IMAGES_MAX:
            self.images.append(self.files.image())
        if power:
            self.files.crash()  # also of what a process wrote that has ended since
        if self.aged:
            # Its own writes count after another start, as if nothing was missing: that is not
            # promised to be noticed (membership.md). An operator gives it an empty disk.
            self.lose_disk()

    def _cut_short(self, writer: Any, steps_max: int) -> None:
        """Cut the power during a write."""
        if writer is not None and self.rng.random() < 0.6:
            self.files.kernel.steps_left = self.rng.randrange(steps_max)
            writer.cut_short()
            self.files.kernel.steps_left = None

    def stop(self) -> None:
        """The process ends in good order: what it has written is on the disk."""
        process = self.running
        if process is not None:
            self.world.note("stop", self.name)
            process.host.stop()
            self.crash(silent=False)

    def write_failed(self, error: WriteFailed) -> None:
        """Its process ends because of the disk, which must have refused something."""
        if not self.files.kernel.refused:
            raise Violation(f"{self.name} stopped, though its disk is well: {error}") from error
        self.stopped(error)

    def stopped(self, error: Exception) -> None:
        """Start the process again after it has ended by itself."""
        self.world.note("stopped", self.name, str(error))
        self.stops += 1
        self.crash(silent=False)
        self.world.agenda.after(RESTART_MS, self.start)

    def outdated(self, error: DirectoryOutdated) -> None:
        """A peer knows that its directory was a later one once: it begins again by itself, as the
        product's process does, and sets everything aside."""
        require(self.aged or self.damaged, "no older copy was put there", self.name, str(error))
        self.world.note("outdated", self.name, str(error))
        assert self.running is not None
        host, aged = self.running.host, self.aged
        self.images.clear()
        self.aged = 0
        self.crash(silent=False, power=False)
        self.aged = aged
        self.copying = True
        self.note_outdated(host, self.disks, error.reason)

    def note_outdated(self, host: Host, disks: int, reason: str) -> None:
        """There is no next process before it is on disk, which has to wait for space."""
        if self.disks == disks:
            try:
                host.note_outdated(reason)
            except OSError:
                self.world.agenda.after(RESTART_MS, self.note_outdated, host, disks, reason)
                return
        self.aged = 0
        self.noticed = True
        self.copying = False
        self.world.agenda.after(RESTART_MS, self.start)


class Process:
    """One life of a node: the parts as `warren_broker.node` puts them together.

    leaving  it is being stopped in good order: no client connects to it any more
    shunned  it will never be well again: its clients connect elsewhere
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.world = machine.world
        self.name = machine.name
        self.clock = SimulatedClock(machine)
        self.dead = False
        self.leaving = False
        self.shunned = False
        self.background_writer: SimulatedBackgroundWriter | None = None
        self.wal: SimulatedWal | None = None
        self.paused_until = 0
        self.wake_at: int | None = None
        self.boot_id = (machine.lives << 32) + 1 + machine.world.names.index(self.name)
        self.loop = SimulatedLoop(self.clock)
        self.broker = Broker(self.loop, self._host, self._settings())
        self.cluster = self.broker.cluster
        self.host = self.cluster.host

    def _host(self, observer: Observer, on_message: MessageHandler) -> Host:
        ear: Any = Ear(self, observer)
        machine, world = self.machine, self.world
        host = Host(
            HostConfig(
                node=self.name,
                cluster="sim",
                secret=b"simulated",
                listen=(world.addresses[self.name], PORT),
                peers={name: (world.addresses[name], PORT) for name in machine.peers()},
                data_dir=DATA_DIR,
                raft=world.profile.config,
                heartbeat_ms=world.profile.heartbeat_ms,
                suspect_after_ms=SUSPECTED_AFTER_BEATS * world.profile.heartbeat_ms,
                wal_file_bytes=world.profile.wal_file_bytes,
                memtable_bytes=world.profile.memtable_bytes,
                snapshot_entries_min=world.profile.snapshot_entries_min,
                snapshot_bytes_min=200,
                retained_bytes_max=world.profile.retained_bytes_max,
                versions=world.programs.drawn(),
            ),
            self.loop,
            ear,
            on_message,
            machine.files,
            machine.rng,
        )
        host.boot_id = self.boot_id
        return host

    def _settings(self) -> NodeConfig:
        world = self.world
        return NodeConfig(
            node=self.name,
            cluster="sim",
            secret="what the simulated nodes have in common",
            listen=Listen(peers=f"{world.addresses[self.name]}:{PORT}"),
            peers={
                name: f"{world.addresses[name]}:{PORT}"
                for name in sorted((*self.machine.peers(), self.name))
            },
            queues=Queues(
                consumer_disconnected_timeout_ms=DISCONNECTED_MS,
                dead_letter_worker_consumer_prefetch=world.profile.window,
                dead_letter_worker_publisher_confirm_timeout_ms=LETTERS_RETRY_MS,
            ),
            limits=Limits(queue_in_flight_bytes_max=1 << 20, node_in_flight_bytes_max=8 << 20),
        )

    @property
    def serves(self) -> bool:
        """Return whether clients may connect to it."""
        return self.broker.definitions.ready and not self.leaving and not self.shunned

    def start(self) -> None:
        """Recover and join."""
        self.host.start()
        self.world.programs.started(self)
        self.machine.noticed = False
        if self.machine.aged != self.host.disk:
            self.machine.aged = 0  # what the start found out by itself was set aside
        self.world.checkers.started(self)
        self.broker.start()
        self.world.wire.began(self.name)
        self.wake(self.world.agenda.now_ms)

    # ------------------------------------------------------------------ turns

    def after_sync(self, act: Callable[[], None]) -> None:
        """`act` when the next sync is done, if this process lives to see it."""
        self.world.agenda.after(self.machine.sync_ms(), self.synced, act)

    def stands_still(self, for_ms: int) -> None:
        """Its own thread waits for something."""
        self.paused_until = max(self.paused_until, self.world.agenda.now_ms + for_ms)

    def synced(self, act: Callable[[], None]) -> None:
        """The disk has answered; a paused process hears of it later."""
        if not self.dead:
            act()
            self.wake(self.world.agenda.now_ms)

    def inject(self, call: Callable[[], None]) -> None:
        """Something arrives: call it in the next turn."""
        if not self.dead:
            self.loop.call_soon(call)
            self.wake(self.world.agenda.now_ms)

    def wake(self, at_ms: int) -> None:
        """There is a turn at that time."""
        at_ms = max(at_ms, self.paused_until)
        if self.wake_at is None or at_ms < self.wake_at:
            self.wake_at = at_ms
            self.world.agenda.at(at_ms, self.turn, at_ms)

    def turn(self, planned_ms: int) -> None:
        """Turns until there is nothing more to do now; then a turn at the next timer."""
        if self.dead or self.wake_at != planned_ms:
            return
        self.wake_at = None
        if self.world.agenda.now_ms < self.paused_until:
            self.wake(self.paused_until)
            return
        try:
            wait_ms = self._turns()
        except WriteFailed as error:
            self.machine.write_failed(error)
            return
        except DirectoryOutdated as error:
            self.machine.outdated(error)
            return
        except VersionNeeded as error:
            self.world.programs.needed(self.machine, error)
            return
        if wait_ms is not None:
            self.wake(self.world.agenda.now_ms + wait_ms)

    def _turns(self) -> int | None:
        for _ in range(TURNS_AT_ONCE_MAX):
            self.loop.run_turn(0)
            if self.dead:
                return None
            for peer in self.host._transport._peers.values():
                peer.check()
            wait_ms = self.loop._wait_ms(None)
            if wait_ms != 0 and not self.loop._posted:
                return wait_ms
        raise AssertionError(f"{self.name} turns without end")
