"""The faults of whole nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sim.planned import Striking
from sim.whole.copies import OlderCopy
from sim.whole.policymakers import hand_over
from sim.whole.wire import SUSPECTED_AFTER_BEATS

if TYPE_CHECKING:
    from sim.whole.process import Machine, Process
    from sim.whole.wire import Link
    from sim.whole.world import World

BEHIND_CUT_SHARE = 0.2
"""Of the looks at a disk that is behind, the power fails after so many."""
LOOK_MS = 10
FOR_GOOD_MS = 10_000_000
JUMPS_MS = (-5_000, -300, 300, 5_000, 20_000)


class Misfortunes(Striking):
    """A stream of faults until `stop`.

    copies         the number of directories replaced by older copies
    stutter_to_ms  something stutters until then: two at once would be one long silence
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.copies = 0
        self.stutter_to_ms = 0

    def begin(self) -> None:
        """Schedule the first fault."""
        if self.every_ms and self.world.profile.faults:
            self.plan()
            if self.world.profile.surely:
                due_ms = self.rng.randrange(self.world.profile.safety_ms // 3)
                self.world.agenda.after(due_ms, self.strike_surely)

    def strike_surely(self) -> None:
        """Inject the fault that this world is about."""
        self.strike(self.world.profile.surely)

    def act(self) -> None:
        """Let one misfortune happen."""
        if not self.stopped:
            self.strike(self.rng.choice(self.world.profile.faults))
            self.plan()

    def stop(self) -> None:
        """Stop the faults and repair everything except what is permanently broken."""
        self.stopped = True
        for machine in self.world.processes.values():
            machine.slow_until = machine.hung_until = 0
            machine.files.kernel.full = False
            machine.files.kernel.syncs_to_fail = 0
            if machine.damaged and machine.running is not None:
                machine.crash(silent=False)  # what is damaged and was not read yet is found now
            if machine.running is None:
                machine.start()
            else:
                machine.running.paused_until = 0
                machine.running.wake(self.world.agenda.now_ms)
        for link in self.world.wire.links.values():
            self.world.wire.heal(link)
        for name in self.world.profile.bad:
            self.never_well(self.world.processes[name])

    def never_well(self, machine: Machine) -> None:
        """Leave one of a minority broken; the others must continue without it."""
        kinds = ["down", "down", "cut off"]
        profile = self.world.profile
        swept = profile.vanishing or any(plan.swept for plan in profile.queues)
        if not profile.write_here and not swept:
            # It stands between its clients and the others as before; but what is newly declared
            # is not known there, for its member of the definitions gets nothing on its disk.
            leads = machine.running is not None and self.leads(machine.running)
            kinds += ["hung"] * (4 if leads else 1)
        how = self.rng.choice(kinds)
        self.world.note("never well", machine.name, how)
        machine.lost_for_good = True
        if machine.running is not None:
            machine.running.shunned = how != "hung"
        if how == "down" or machine.running is None:
            machine.crash(silent=self.rng.random() < 0.5)
        elif how == "hung":
            machine.hung_until = self.world.agenda.now_ms + FOR_GOOD_MS
        else:
            for link in self.world.wire.links_of(machine.name):
                self.world.wire.cut(link, FOR_GOOD_MS)
                link.cut_for_good = True

    # ------------------------------------------------------------------ its victims

    def anybody(self) -> Machine:
        """A machine."""
        return self.world.processes[self.rng.choice(self.world.names)]

    def leader(self) -> Machine:
        """Return a machine with a process that leads a queue, or else any."""
        for machine in self.world.processes.values():
            if machine.running is not None and self.leads(machine.running):
                return machine
        return self.anybody()

    def leads(self, process: Process) -> bool:
        """Return whether it leads a queue."""
        host = process.host
        return any(host.is_leader(group) for group in host.groups() if group)

    # ------------------------------------------------------------------ processes

    def crash(self, machine: Machine | None = None, away_ms: int | None = None) -> None:
        """Stop a machine, which is restarted later."""
        machine = machine or self.anybody()
        if machine.absent or machine.gone:
            return
        machine.crash(silent=self.rng.random() < 0.3)
        if away_ms is None:
            away_ms = self.rng.choice((1, 100, 600, 2_000))
        self.world.agenda.after(away_ms, machine.start)

    def crash_all(self) -> None:
        """Crash all machines."""
        for machine in self.world.processes.values():
            self.crash(machine)

    def power_cut(self) -> None:
        """Cut the power of the whole cluster at one moment."""
        for machine in self.world.processes.values():
            if not machine.absent and not machine.gone:
                machine.crash(silent=self.rng.random() < 0.3, power=True)
                self.world.agenda.after(self.rng.choice((1, 100, 600)), machine.start)

    def flapping(self) -> None:
        """Restart one machine repeatedly."""
        machine = self.anybody()
        for at in range(self.rng.choice((2, 4))):
            self.world.agenda.after(at * self.rng.choice((20, 150)), self._again, machine)

    def _again(self, machine: Machine) -> None:
        if not self.stopped and machine.running is not None:
            self.crash(machine, 1)

    def many_lives(self) -> None:
        """Restart a node repeatedly while a queue has no leader that could learn of it."""
        if self.world.profile.unlucky:
            return
        chances = [
            (machine, away)
            for group in self.world.groups()
            if group
            for machine in self.world.processes.values()
            if machine.running is not None
            if (away := self._leaderless(group, machine))
        ]
        if not chances:
            return
        machine, away = self.rng.choice(chances)
        lives, life_ms = self.rng.choice((2, 3, 4)), self.rng.choice((400, 900))
        for name in away:
            self.crash(self.world.processes[name], (lives + 1) * life_ms)
        for at in range(lives):
            self.world.agenda.after(at * life_ms, self._again, machine)

    def _leaderless(self, group: int, machine: Machine) -> list[str]:
        """Without that machine the group has no leader, and the cluster has one."""
        members = [process.name for process in self.world.members(group)]
        away = [name for name in members if name != machine.name][: len(members) // 2 + 1]
        count = len(self.world.names)
        if 2 * len(away) <= len(members) - 1 or 2 * (count - len(away)) <= count:
            return []  # the queue would have a majority still, or the cluster would have none
        return away

    def rolling_restart(self) -> None:
        """Stop each machine cleanly and start it again, one after the other."""
        pause = self.rng.choice((150, 400))
        for at, machine in enumerate(self.world.processes.values()):
            self.world.agenda.after(at * pause, self._restart, machine)

    def _restart(self, machine: Machine) -> None:
        process = machine.running
        if self.stopped or process is None or process.leaving:
            return
        process.leaving = True  # its clients are disconnected
        process.inject(lambda: process.broker.hand_over(self.rng.choice((5, 100))))
        self.world.agenda.after(self.rng.choice((20, 120)), self._stop, process)

    def _stop(self, process: Process) -> None:
        if process.dead:
            return
        process.machine.stop()
        self.world.agenda.after(self.rng.choice((1, 60)), process.machine.start)

    def pause(self, process: Process | None = None) -> None:
        """Pause a process."""
        process = process or self.anybody().running
        if process is not None:
            until = self.world.agenda.now_ms + self.rng.choice((50, 400, 1_500))
            process.paused_until = until

    def pause_leader(self) -> None:
        """Pause the process that leads."""
        self.pause(self.leader().running)

    def clock_jump(self) -> None:
        """Set a clock forward."""
        machine = self.anybody()
        if self.world.profile.skew_ms and machine.jumped_ms < max(JUMPS_MS):
            jump = self.rng.choice(JUMPS_MS)
            machine.jumped_ms += max(0, jump)
            machine.skew_ms += jump

    # ------------------------------------------------------------------ ways

    def cut(self) -> None:
        """Cut one connection for a while."""
        links = list(self.world.wire.links.values())
        if links:
            self.world.wire.cut(self.rng.choice(links), self.rng.choice((50, 700, 2_000)))

    def half_cut(self) -> None:
        """Cut one direction of a connection."""
        links = list(self.world.wire.links.values())
        if links:
            link = self.rng.choice(links)
            sender = self.rng.choice(link.ends)
            self.world.wire.cut(link, self.rng.choice((50, 700, 2_000)), sender)

    def stutter(self) -> None:
        """Silence a connection, or a node, for as long as it takes to be suspected or to be called
        again; let it speak for a moment, amid a handshake perhaps; and again."""
        wire, rng = self.world.wire, self.rng
        name = self.anybody().name
        links = wire.links_of(name)
        if links and rng.random() < 0.5:
            links = [rng.choice(links)]
        ways = {link: rng.choice((None, name, link.peer(name))) for link in links}
        at_ms = 0
        for silent_ms, speaks_ms in self._stuttering():
            for link, sender in ways.items():
                self.world.agenda.after(at_ms, self._silence, link, sender)
                self.world.agenda.after(at_ms + silent_ms, wire.speak, link)
            at_ms += silent_ms + speaks_ms

    def _silence(self, link: Link, sender: str | None) -> None:
        if not self.stopped:
            self.world.wire.silence(link, sender)

    def doze(self) -> None:
        """Pause a process, let it run for a few turns, pause it again, and so on."""
        process = (self.leader() if self.rng.random() < 0.3 else self.anybody()).running
        at_ms = 0
        if process is not None:
            for silent_ms, speaks_ms in self._stuttering():
                self.world.agenda.after(at_ms, self._doze, process, silent_ms)
                at_ms += silent_ms + speaks_ms

    def _doze(self, process: Process, for_ms: int) -> None:
        if not self.stopped:
            process.stands_still(for_ms)

    def _stuttering(self) -> list[tuple[int, int]]:
        """How long something is silent, and speaks, again and again; nothing: something does."""
        if self.world.agenda.now_ms < self.stutter_to_ms:
            return []
        rng, beat_ms = self.rng, self.world.profile.heartbeat_ms
        # It is suspected after so many beats, and called again after twice as many.
        silent_ms = int(SUSPECTED_AFTER_BEATS * beat_ms * rng.choice((1.2, 2.4, 2.4)))
        speaks_ms = rng.choice((1, 1, 3, 40, 200))
        turns = [
            (silent_ms + rng.randrange(beat_ms), speaks_ms + rng.randrange(speaks_ms))
            for _ in range(rng.choice((3, 5)))
        ]
        self.stutter_to_ms = self.world.agenda.now_ms + sum(map(sum, turns))
        return turns

    def isolate(self) -> None:
        """Isolate one node for a while."""
        name = (self.leader() if self.rng.random() < 0.5 else self.anybody()).name
        for_ms = self.rng.choice((200, 900, 2_500))
        for link in self.world.wire.links_of(name):
            self.world.wire.cut(link, for_ms)

    def half_isolate(self) -> None:
        """Cut all incoming, or all outgoing, messages of one node for a while."""
        name = (self.leader() if self.rng.random() < 0.5 else self.anybody()).name
        for_ms = self.rng.choice((200, 900, 2_500))
        deaf = self.rng.random() < 0.5
        for link in self.world.wire.links_of(name):
            self.world.wire.cut(link, for_ms, link.peer(name) if deaf else name)

    def reset(self) -> None:
        """Break a connection."""
        wire = self.world.wire
        links = [link for link in wire.links.values() if wire.connected(link)]
        if links:
            wire.broken(self.rng.choice(links))

    # ------------------------------------------------------------------ disks

    def slow_disk(self) -> None:
        """Slow a disk down by a factor of ten."""
        self.anybody().slow_until = self.world.agenda.now_ms + self.rng.choice((200, 1_500))

    def hung_disk(self) -> None:
        """Hang a disk for a while; the leader's more often."""
        machine = self.leader() if self.rng.random() < 0.6 else self.anybody()
        machine.hung_until = self.world.agenda.now_ms + self.rng.choice((300, 1_500, 4_000))

    def disk_behind(self) -> None:
        """Slow a disk, and cut the power when its node has applied entries that are not on it.

        One at a time: entries that a majority of disks lack are not applied.
        """
        machine = self.anybody()
        now_ms = self.world.agenda.now_ms
        if any(other.slow_until > now_ms for other in self.world.processes.values()):
            return
        machine.slow_until = now_ms + self.rng.choice((600, 1_500))
        self._cut_behind(machine)

    def _cut_behind(self, machine: Machine) -> None:
        if self.stopped or self.world.agenda.now_ms >= machine.slow_until:
            return
        if not self._is_behind(machine.running) or self.rng.random() >= BEHIND_CUT_SHARE:
            self.world.agenda.after(LOOK_MS, self._cut_behind, machine)
            return
        machine.slow_until = 0
        machine.crash(silent=self.rng.random() < 0.3, power=True)
        self.world.agenda.after(self.rng.choice((1, 100, 600)), machine.start)

    def _is_behind(self, process: Process | None) -> bool:
        """Return whether it applied entries not on its disk while dependent files are written."""
        if (
            process is None
            or process.background_writer is None
            or not process.background_writer.jobs
        ):
            return False
        groups = process.host._groups.values()
        return any(group.node.applied > group.node.log.durable for group in groups)

    def sync_fails(self) -> None:
        """Make a sync fail: the node must stop."""
        self.anybody().files.kernel.syncs_to_fail = 1

    def disk_full(self) -> None:
        """Fill a disk for a while."""
        machine = self.anybody()
        machine.files.kernel.full = True
        self.world.agenda.after(self.rng.choice((100, 600, 2_000)), self._space, machine)

    def _space(self, machine: Machine) -> None:
        machine.files.kernel.full = False

    # ------------------------------------------------------------------ the unlucky

    def _unlucky(self) -> Machine:
        return self.world.processes[self.rng.choice(self.world.profile.unlucky)]

    def wipe(self) -> None:
        """Restart a machine with an empty disk."""
        machine = self._unlucky()
        machine.crash(silent=self.rng.random() < 0.3)
        machine.lose_disk()
        self.world.agenda.after(self.rng.choice((1, 100, 600)), machine.start)

    def rot(self) -> None:
        """Flip a bit of a file."""
        machine = self._unlucky()
        path = machine.some_file(self.rng)
        if path is not None:
            offset = self.rng.randrange(machine.rots_below(path))
            machine.damaged = True
            self.world.note("rot", machine.name, path)
            machine.files.rot(path, offset, 1 << self.rng.randrange(8))
            if self.rng.random() < 0.5:
                self.crash(machine)

    def lose_file(self) -> None:
        """Remove a file of a node that is down."""
        self._spoil(lambda machine, path: machine.files.kernel.put(path, None))

    def empty_file(self) -> None:
        """Empty a file of a node that is down."""
        self._spoil(lambda machine, path: machine.files.kernel.put(path, b""))

    def old_file(self) -> None:
        """Restore an earlier content of a file, or a removed file, of a node that is down."""

        def older(machine: Machine, path: str) -> None:
            found = machine.older(path)
            # How short the newest file of the log may be, `synced` says: see `OlderCopy`.
            if found and path != machine.newest_log():
                machine.files.kernel.put(path, self.rng.choice(found))

        self._spoil(older)

    def old_directory(self) -> None:
        """Replace the whole directory by an older copy."""
        self._copied(newest_only=False)

    def old_newest_file(self) -> None:
        """Replace the newest file of the log, and the files that name it, by older copies."""
        self._copied(newest_only=True)

    def _copied(self, newest_only: bool) -> None:
        machine = self._unlucky()
        unfit = machine.damaged or machine.aged or machine.to_copy or machine.lost_for_good
        if machine.running is not None and not unfit:
            copy = OlderCopy(machine, newest_only)
            delay_ms = self.rng.choice((30, 100, 400))
            self.world.agenda.after(delay_ms, copy.take_down, self.rng.random() < 0.3)

    def _spoil(self, damage: Callable[[Machine, str], None]) -> None:
        """Damage one file or two, and no more on that disk: detection has its limits."""
        machine = self._unlucky()
        if machine.absent or machine.damaged or machine.aged or machine.lost_for_good:
            return
        # 1. An older copy starts, and is noticed: its `node.json` says so.  2. An older `node.json`
        # is put there as well. The peers notice the copy once more; the start alone cannot.
        if machine.noticed:
            return
        machine.crash(silent=self.rng.random() < 0.3)
        for _ in range(self.rng.choice((1, 1, 2))):
            paths = sorted(
                {*machine.files.paths(), *(path for image in machine.images for path in image)}
            )
            if paths:
                newest = machine.newest_log()
                path = self.rng.choice(paths)
                if newest in paths and self.rng.random() < 0.4:
                    path = newest  # the most important one
                machine.damaged = True
                self.world.note("spoilt", machine.name, path)
                damage(machine, path)
        self.world.agenda.after(self.rng.choice((1, 100, 600)), machine.start)

    def misdirect(self) -> None:
        """Write a sector to another one's place."""
        machine = self._unlucky()
        source, target = machine.some_file(self.rng), machine.some_file(self.rng)
        if source is not None and target is not None:
            sector = machine.files.sector
            data = machine.files.safe_bytes(source)
            at = self.rng.randrange(len(data)) // sector * sector
            end = machine.rots_below(target)
            to = self.rng.randrange(end) // sector * sector
            machine.damaged = True
            self.world.note("misdirect", machine.name, source, at, target, to)
            machine.files.misdirect(target, to, data[at : min(at + sector, at + end - to)])

    # ------------------------------------------------------------------ operators

    def transfer(self) -> None:
        """Transfer a queue's leadership on an operator's request."""
        process = self.leader().running
        if process is None:
            return
        for group in process.host.groups():
            if process.host.is_leader(group):
                to = self.rng.choice(process.host.members(group).voters)
                process.inject(partial(hand_over, process, group, to))
