"""What happens in a world again and again."""

from __future__ import annotations

from random import Random
from typing import Any


class Planned:
    """Acts at random intervals; what `act` does after it was stopped is its own matter.

    setting  field of the world's profile with the mean interval in ms; 0: it never acts
    """

    setting = "fault_every_ms"

    def __init__(self, world: Any, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.stopped = False

    @property
    def every_ms(self) -> int:
        """The mean interval of this world."""
        return int(getattr(self.world.profile, self.setting))

    def begin(self) -> None:
        """Plan the first act."""
        if self.every_ms:
            self.plan()

    def plan(self) -> None:
        """Plan the next act."""
        self.world.agenda.after(self.rng.randrange(2 * self.every_ms), self.act)

    def act(self) -> None:
        """Do one thing, and plan the next."""
        raise NotImplementedError


class Striking(Planned):
    """Something planned that strikes with faults, which are methods, until it is stopped.

    count  the number of faults
    """

    def __init__(self, world: Any) -> None:
        super().__init__(world, world.rng)
        self.count = 0

    def strike(self, kind: str) -> None:
        """Let a fault happen."""
        self.count += 1
        self.world.note("fault", kind, self.count)
        getattr(self, kind)()

    def crash_leader(self) -> None:
        """Crash the one that leads."""
        self.crash(self.leader())

    def crash(self, one: Any = None) -> None:
        """Crash one, or any; it is started again later."""
        raise NotImplementedError

    def leader(self) -> Any:
        """Return one that leads, or else any."""
        raise NotImplementedError
