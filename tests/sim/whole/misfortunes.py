"""What goes wrong with whole nodes, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren_raft.errors import RaftError

if TYPE_CHECKING:
    from sim.whole.process import Machine
    from sim.whole.world import World

KINDS = ("crash", "crash_leader", "crash_all", "pause", "cut", "isolate", "reset", "transfer",
         "slow_disk")  # fmt: skip


class Misfortunes:
    """A stream of them until `stop`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.kinds = [kind for kind in KINDS for _ in range(self.rng.choice((0, 1, 2)))]
        self.stopped = False
        self.count = 0

    def begin(self) -> None:
        """Plan the first."""
        if self.world.profile.fault_every_ms and self.kinds:
            self.plan()

    def plan(self) -> None:
        """Plan the next."""
        mean = self.world.profile.fault_every_ms
        self.world.agenda.after(self.rng.randrange(2 * mean), self.strike)

    def strike(self) -> None:
        """One."""
        if not self.stopped:
            kind = self.rng.choice(self.kinds)
            self.count += 1
            self.world.note("fault", kind, self.count)
            getattr(self, kind)()
            self.plan()

    def stop(self) -> None:
        """No more, and what is broken is mended."""
        self.stopped = True
        for machine in self.world.processes.values():
            machine.slow_until = 0
            if machine.running is None:
                machine.start()
            else:
                machine.running.paused_until = 0
                machine.running.wake(self.world.agenda.now_ms)
        for link in self.world.wire.links.values():
            self.world.wire.heal(link)

    # ------------------------------------------------------------------ the kinds

    def anybody(self) -> Machine:
        """A machine."""
        return self.world.processes[self.rng.choice(self.world.names)]

    def leader(self) -> Machine:
        """The one whose process leads the queue, or else anybody."""
        for machine in self.world.processes.values():
            if machine.running is not None:
                host = machine.running.host
                if any(host.is_leader(group) for group in host.groups() if group):
                    return machine
        return self.anybody()

    def crash(self, machine: Machine | None = None) -> None:
        """A machine stops, and is started again."""
        machine = machine or self.anybody()
        machine.crash(silent=self.rng.random() < 0.3)
        self.world.agenda.after(self.rng.choice((1, 100, 600, 2_000)), machine.start)

    def crash_leader(self) -> None:
        """The one that leads the queue."""
        self.crash(self.leader())

    def crash_all(self) -> None:
        """The power goes."""
        for machine in self.world.processes.values():
            self.crash(machine)

    def pause(self) -> None:
        """A process stands still."""
        process = self.anybody().running
        if process is not None:
            until = self.world.agenda.now_ms + self.rng.choice((50, 400, 1_500))
            process.paused_until = until

    def cut(self) -> None:
        """One connection carries nothing for a while."""
        links = list(self.world.wire.links.values())
        self.world.wire.cut(self.rng.choice(links), self.rng.choice((50, 700, 2_000)))

    def isolate(self) -> None:
        """One node hears nobody for a while."""
        name = (self.leader() if self.rng.random() < 0.5 else self.anybody()).name
        for_ms = self.rng.choice((200, 900, 2_500))
        for link in self.world.wire.links_of(name):
            self.world.wire.cut(link, for_ms)

    def reset(self) -> None:
        """A connection breaks."""
        link = self.rng.choice(list(self.world.wire.links.values()))
        if link.live:
            self.world.wire.broken(link)

    def transfer(self) -> None:
        """The operator moves the queue's leadership."""
        process = self.leader().running
        if process is None:
            return
        for group in process.host.groups():
            if process.host.is_leader(group):
                to = self.rng.choice(process.host.members(group).voters)
                process.inject(lambda group=group, to=to: self.hand_over(process, group, to))

    def hand_over(self, process: object, group: int, to: str) -> None:
        """In the node's turn."""
        try:
            process.host.transfer(group, to)  # type: ignore[attr-defined]
        except RaftError:
            pass

    def slow_disk(self) -> None:
        """A disk takes ten times as long."""
        self.anybody().slow_until = self.world.agenda.now_ms + self.rng.choice((200, 1_500))
